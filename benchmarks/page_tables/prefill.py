"""The table of docs/prefill.md."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentkv.bench import judge_predictors
from agentkv.chain import ChatFormat
from agentkv.cli.load import load_function
from page_tables.cells import percent
from page_tables.table import Row, Table
from page_tables.work import Call

__all__ = ("TABLES",)

HOOKS = Path(__file__).parents[1] / "recorded_hooks.py"
COUNTS = ("guesses", "predicted", "used", "wasted")


@cache
def judged(file: Path, tokenizer: Path) -> Mapping[str, Any]:
    """A file of conversations, as ``agentkv bench predictors`` judges it with the hooks of this folder."""
    chat = ChatFormat.load(tokenizer)
    hook = load_function(f"{HOOKS}:predict")
    (found,) = judge_predictors([file], chat, block=32, hook=hook, for_agent=False)["files"]
    return dict(found)


def predict(bundle: Path, name: str, predictor: str) -> Mapping[str, Any]:
    """One predictor on one file of conversations."""
    found = judged(bundle / "traces" / f"{name}.jsonl.gz", bundle / "tokenizer")
    return {**found, "by": predictor, **found["predictors"][predictor]}


def predicted(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Results and their tokens; who guessed, how often, and what came of it in tokens."""
    (row,) = found
    counts = [f"{row[name]:,}" for name in COUNTS]
    return [f"{row['results']:,}", f"{row['tokens']:,}", row["by"], *counts, percent(row["used"] / row["predicted"])]


TABLES = (
    Table(
        name="predictors",
        page="docs/prefill.md",
        header=("recordings", "results", "their tokens", "by", *COUNTS, "right"),
        rows=tuple(
            Row((name,), (Call(predict, (name, predictor), recorded=True),))
            for name, predictors in (
                ("bfcl", ("poll", "hook")),
                ("miniswe", ("memo", "poll", "hook")),
                ("sweagent", ("memo", "poll", "hook")),
                ("taubench", ("memo", "poll", "hook")),
                ("toolbench", ("memo", "poll")),
            )
            for predictor in predictors
        ),
        cells=predicted,
    ),
)
