"""Engines by name."""

import subprocess
import sys

import pytest

from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import SimEngine
from agentkv.engines.spec import open_engine
from agentkv.engines.vllm import VLLMEngine
from agentkv.errors import EngineUnavailable, NotSupported, SetupError


def silence(request: object) -> list[int]:
    return [1]


@pytest.mark.parametrize("spec", ["vllm", "vllm:some/model"])
async def test_vllm_is_made_and_not_started(spec: str) -> None:
    engine = open_engine(spec)
    assert isinstance(engine, VLLMEngine)
    with pytest.raises(EngineUnavailable, match="not started"):
        _ = engine.info
    await engine.aclose()


async def test_sim_takes_preset_options_and_script() -> None:
    engine = open_engine("sim:cpu", options={"block_size": 16}, script=silence)
    assert isinstance(engine, SimEngine)
    assert engine.info.block_size == 16
    await engine.aclose()


async def test_sim_without_a_script_makes_up_what_its_model_says() -> None:
    async with open_engine("sim") as engine:
        deltas = [
            each async for each in engine.generate(GenerateRequest(request_id="r", token_ids=[1, 2], max_tokens=50))
        ]
    assert deltas[-1].finish == "stop"


def test_a_script_answers_for_no_real_model() -> None:
    with pytest.raises(SetupError, match="'vllm' takes no script"):
        open_engine("vllm", script=silence)


@pytest.mark.parametrize("spec", ["", "vlm:x", "sim:", "vllm:", "openai:gpt", "http:host"])
def test_unknown_form_lists_the_known_ones(spec: str) -> None:
    with pytest.raises(SetupError, match=r"'vllm', 'vllm:MODEL' .* 'sim' or 'sim:PRESET'"):
        open_engine(spec)


@pytest.mark.parametrize("spec", ["http://localhost:8000", "https://host"])
def test_servers_come_later(spec: str) -> None:
    with pytest.raises(NotSupported, match="over HTTP"):
        open_engine(spec)


async def test_an_engine_is_returned_as_it_is() -> None:
    engine = open_engine("vllm")
    assert open_engine(engine) is engine
    with pytest.raises(SetupError, match="made already: give seed where it is made"):
        open_engine(engine, options={"seed": 1})
    with pytest.raises(SetupError, match="neither an engine nor a spec"):
        open_engine(42)  # type: ignore[arg-type]


def test_naming_engines_loads_none_of_them() -> None:
    code = (
        "import sys; from agentkv.engines.spec import open_engine; open_engine('vllm')\n"
        "print([name for name in ('torch', 'vllm', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n"
