"""Each example on the simulated engine, through its own script, and as a user calls it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import agentkv as akv
from agentkv.engines.clock import RealClock
from agentkv.tools import Context, Outcome, Tool, ToolCall, invoke

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
PARTS = ("resident", "prefilled", "new", "tail", "cold", "evicted", "diverged", "salted", "uncached")
SECONDS = 30
# A block of a page that shows a command and what it prints, and the one thing that differs from run to run.
SHOWN = re.compile(
    r"^```console\n\$ agentkv (?P<command>run [^\n]*)\n(?P<output>(?!\$).+?)^```$", re.MULTILINE | re.DOTALL
)
RUN_ID = re.compile(r"\brun [0-9a-f]{16}\b")

Load = Callable[[str], ModuleType]


def target(module: ModuleType) -> akv.Agent[None, object] | akv.Graph[None, object]:
    """What ``agentkv run FILE`` takes: the graph, or else the agent."""
    return getattr(module, "graph", None) or module.agent


async def run(module: ModuleType, mode: akv.TransferMode) -> akv.Result[object]:
    kv = akv.KVConfig(kv_transfer_mode=mode)
    async with akv.Runtime(akv.testing.sim(module.script), kv=kv) as rt:
        return await rt.run(target(module), module.prompt)


def agentkv(*arguments: str) -> str:
    """What the command line prints; fails if it fails."""
    command = [Path(sys.executable).with_name("agentkv"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples() -> None:
    assert {"hello_tool", "parallel_tools", "plan_act_replan"} <= set(NAMES)
    assert {"compare_candidates", "research_fanout", "two_agents"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_prefilling_ahead_changes_no_output(steady: Load, name: str) -> None:
    module = steady(name)
    ahead = await run(module, "bidirectional")
    without = await run(module, "prefix")
    module.script.assert_complete()
    assert ahead.output == without.output
    assert ahead.messages == without.messages
    assert without.kv.totals.prefetched == 0
    for step in (*ahead.kv.steps, *without.kv.steps):
        # what a sibling, or a prefetch that was cut off, is computing at that moment may be found too
        assert step.cached == step.predicted or ((step.branch or step.adopted) and step.cached > step.predicted)
        assert sum(getattr(step, part) for part in PARTS) == step.prompt


@pytest.mark.parametrize("name", ["parallel_tools", "plan_act_replan"])
async def test_examples_with_a_slow_tool_gain_by_prefilling_ahead(load: Load, name: str) -> None:
    ahead, without = await run(load(name), "bidirectional"), await run(load(name), "prefix")
    assert ahead.kv.totals.prefetched_used >= 64
    assert ahead.kv.totals.wasted == 0
    assert ahead.kv.ttft_after_tool[0] < without.kv.ttft_after_tool[0]


async def test_the_demo_has_something_to_prefill_and_time_for_it(load: Load) -> None:
    result = await run(load("plan_act_replan"), "auto")
    tools = {span.label: span.seconds for span in result.kv.spans if span.kind == "tool"}
    assert tools["measure_writes"] >= 3
    assert result.kv.steps[1].prefilled >= 200


async def test_one_short_result_gains_nothing_and_the_report_says_why(load: Load) -> None:
    result = await run(load("hello_tool"), "bidirectional")
    assert result.kv.totals.prefetched_used == 0
    assert "less than a whole block" in result.kv.saving()


@pytest.mark.parametrize("name", ["compare_candidates", "research_fanout"])
async def test_what_joins_need_is_prefilled_while_branches_run(load: Load, name: str) -> None:
    ahead, without = await run(load(name), "bidirectional"), await run(load(name), "prefix")
    assert ahead.kv.totals.prefetched_used >= 32
    assert sum(step.computed for step in ahead.kv.steps) < sum(step.computed for step in without.kv.steps)
    assert ahead.kv.overlap > 0


async def test_the_winner_goes_on_without_computing_its_chain_again(load: Load) -> None:
    result = await run(load("compare_candidates"), "prefix")
    assert [place for place, _ in result.kv.branches][-1] == "best.judge"
    assert result.kv.steps[-1].computed < 64
    assert "Tension the belt tonight" in result.messages[3].content


async def test_two_agents_by_hand_say_what_the_graph_says(load: Load) -> None:
    module = load("two_agents")
    async with akv.Runtime(akv.testing.sim(module.script)) as rt:
        chain = await module.by_hand(rt)
        async with rt.start(module.graph, module.prompt) as run:
            await run.result()
        [whole] = run.state.chains.values()
        assert chain.ids == whole.chain.ids()
        assert [step.branch for step in chain.steps] == ["", "fork.store", "fork.store", ""]
        await chain.release()


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_from_the_command_line(name: str) -> None:
    report = json.loads(agentkv("run", f"examples/{name}.py", "--engine", "sim", "--json"))
    assert report["outcome"] == "run_finished"
    assert report["output"]


def test_two_agents_run_by_hand() -> None:
    command = [sys.executable, "-W", "error", "examples/two_agents.py", "sim"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("prompt") == 4


def test_the_demo_compares_both_modes() -> None:
    command = [sys.executable, "-W", "error", "examples/plan_act_replan.py", "sim"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("=== kv_transfer_mode=bidirectional") == 2
    assert done.stdout.count("=== kv_transfer_mode=prefix") == 2
    found = re.search(r"prefilled ahead (\S+) s, prefix caching alone (\S+) s", done.stdout)
    assert found is not None
    assert float(found[1]) < float(found[2]) / 2


async def ask(tool: Tool[object, ..., object], arguments: dict[str, object]) -> Outcome:
    call = ToolCall("call_0001", tool.name, json.dumps(arguments))
    return await invoke(tool, call, Context(None), RealClock())


@pytest.mark.parametrize("topic", ["../../hello_tool", "/etc/passwd", "", "disk.md", "disk\u0000", None, ["disk"]])
async def test_read_runbook_opens_its_topics_only(load: Load, topic: object) -> None:
    tool = load("plan_act_replan").read_runbook
    assert (await ask(tool, {"topic": topic})).status == "invalid"
    assert (await ask(tool, {"topic": "disk"})).status == "ok"


def test_tools_open_files_under_their_folder_only() -> None:
    command = [sys.executable, "tests/examples/opened.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    folder = ROOT / "examples" / "data"
    opened = [Path(line) for line in done.stdout.splitlines()]
    assert folder / "runbooks" / "disk.md" in opened
    assert [path for path in opened if not path.is_relative_to(folder)] == []


def shown() -> list[tuple[str, str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (page.name, found["command"], found["output"]) for page in pages for found in SHOWN.finditer(page.read_text())
    ]


@pytest.mark.parametrize(("page", "command", "output"), shown())
def test_pages_show_what_the_command_line_prints(page: str, command: str, output: str) -> None:
    printed = RUN_ID.sub("run ID", agentkv(*command.split()))
    wanted = RUN_ID.sub("run ID", output)
    assert wanted in printed, f"{page} shows\n{wanted}\nbut {command!r} prints\n{printed}"


def test_the_readme_shows_a_ledger() -> None:
    assert "README.md" in {page for page, _, _ in shown()}
