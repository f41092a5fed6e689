"""JSON that is nested without end, in every file and option that users name: a clear error, as for any other text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkv.bench.calibrate import read_measured
from agentkv.bench.steady_result import read_steady
from agentkv.chain.template import read_json
from agentkv.cli.engine_options import parse_engine_options
from agentkv.cli.memory import read_model
from agentkv.engines.model_folder import find_model
from agentkv.engines.sim_preset import read_preset
from agentkv.errors import AgentKVError
from agentkv.store.event import decode_event

DEEP = "[" * 100_000


@pytest.mark.parametrize("read", [read_measured, read_steady, read_model, read_preset, read_json])
def test_a_file_that_is_nested_without_end_is_named(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(DEEP)
    with pytest.raises(AgentKVError, match=r"deep\.json"):
        read(path)


@pytest.mark.parametrize("text", [DEEP, "[]"])
def test_a_result_or_preset_that_is_something_else_is_named(text: str, tmp_path: Path) -> None:
    for read in (read_measured, read_preset):
        path = tmp_path / "other.json"
        path.write_text('{"workload": {"kind": "seed"}, "modes": []}' if read is read_measured else text)
        with pytest.raises(AgentKVError, match=r"other\.json"):
            read(path)


def test_an_event_and_an_option_that_are_nested_without_end_are_named() -> None:
    with pytest.raises(AgentKVError, match="event 3 of run 'r' is damaged"):
        decode_event("r", 3, DEEP)
    with pytest.raises(AgentKVError, match="--engine-option"):
        parse_engine_options([f"a={DEEP}"])


@pytest.mark.parametrize("text", [DEEP, "[]"])
def test_a_model_folder_with_another_configuration_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(AgentKVError, match=r"config\.json"):
        find_model(str(tmp_path), tokenizer=False)
