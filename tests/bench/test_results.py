"""The machine form: documented field by field, and JSON for every reader."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

Bench = Any
PAGE = Path(__file__).parents[2] / "docs" / "results.md"
# Raw counts behind the figures, which their names say enough about.
UNTOLD = {
    "config",
    "in_force",
    "repetitions",
    "spread",
    "rounds",
    "policy_records",
    "prefetches",
    "engine_account",
}


def test_every_field_of_a_mode_is_told(bench: Bench) -> None:
    result = bench("stock,stock+cap,bidirectional", pool=0.5, duration=30.0, frontier=(4, 8), engine="sim:h200")
    told = set(re.findall(r"`(\w+)(?:\.\w+)*`", PAGE.read_text(encoding="utf-8")))
    for mode in result["modes"].values():
        assert set(mode) - UNTOLD <= told
    assert set(result) <= told
    point = result["frontier"]["modes"]["stock"]["points"][0]
    assert {"agents", "tasks_per_minute", "ttft_after_tool_p95_ms", "spread", "tasks"} <= set(point) & told


@pytest.mark.parametrize(
    "numbers",
    [
        {"tool_calls": 0, "chains": 1},
        {"tool_calls": 0, "chains": 2, "output_tokens": 1},
        # No task ends in so short a window.
        {"duration": 2.0, "start_spread": 0.0},
        {"duration": 0.01, "start_spread": 0.0, "frontier": (1, 3)},
    ],
)
def test_it_is_strict_json_even_where_nothing_was_measured(bench: Bench, numbers: dict[str, Any]) -> None:
    result = bench("stock-off,stock,stock+cap,bidirectional", pool=1.0, repeat=2, **{"chains": 4, **numbers})
    assert json.loads(json.dumps(result, allow_nan=False)) == json.loads(json.dumps(result))
