"""A script that starts its engine unguarded is told so, at once, and ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentkv.engines.guard import require_entry_guard

START = """
import asyncio
from agentkv.engines.vllm import VLLMEngine
async def main():
    async with VLLMEngine("no/such/folder"):
        pass
"""
SPAWN = """
import multiprocessing, threading
from agentkv.engines.guard import require_entry_guard
def work():
    print("worked")
def check():
    # From a thread the call does not come from the main module's frame.
    if multiprocessing.current_process().name != "MainProcess":
        require_entry_guard()
check()
process = multiprocessing.get_context("spawn").Process(target=work)
process.start()
process.join()
raise SystemExit(process.exitcode)
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, *arguments, str(script)] if arguments else [sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_unguarded_script_is_refused_with_the_line_and_the_remedy(tmp_path: Path) -> None:
    done = run(tmp_path, START + "asyncio.run(main())\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "agentkv.errors.EngineStartError: script.py, line 7: starting an engine runs the main module again in the "
        'engine\'s process: put what starts it under `if __name__ == "__main__":`'
    )


@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', 'if "__main__" == __name__:'])
def test_guarded_script_gets_as_far_as_its_model(tmp_path: Path, guard: str) -> None:
    done = run(tmp_path, START + f"{guard}\n    asyncio.run(main())\n")
    assert "model 'no/such/folder': no such folder" in done.stderr.splitlines()[-1]


def test_a_spawned_process_that_comes_to_start_an_engine_says_so_and_ends(tmp_path: Path) -> None:
    done = run(tmp_path, SPAWN)
    assert done.returncode == 1
    assert "worked" not in done.stdout
    assert "ran the main module and came to start an engine again: put what starts it under" in done.stderr


def test_code_that_is_given_on_the_command_line_does_not_run_again() -> None:
    code = "from agentkv.engines.guard import require_entry_guard; require_entry_guard(); print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n"


def test_a_test_runner_may_start_engines() -> None:
    require_entry_guard()
