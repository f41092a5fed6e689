"""The turns of a repetition one by one, as small as they can be written: what a cost model is fitted from."""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from agentkv.bench.turn import Turn
from agentkv.errors import SetupError

__all__ = ("TurnRow", "read_rows", "rows_json")

COLUMNS = ("agent", "number", "ready_s", "sent_s", "first_s", "done_s", "prompt", "cached", "generated")


@frozen
class TurnRow:
    """One turn: whose, which, clock seconds since the repetition began, tokens."""

    agent: int
    number: int
    ready_s: float
    sent_s: float
    first_s: float
    done_s: float
    prompt: int
    cached: int
    generated: int


def rows_json(turns: Iterable[Turn], began_at: float) -> dict[str, Any]:
    """All ``turns`` as rows, to a tenth of a millisecond, with the names of their columns."""
    rows = [
        [
            turn.chain,
            turn.number,
            *(round(at - began_at, 4) for at in (turn.ready_at, turn.sent_at, turn.first_at, turn.done_at)),
            turn.prompt,
            turn.cached,
            turn.generated,
        ]
        for turn in turns
    ]
    return {"columns": list(COLUMNS), "rows": rows}


def read_rows(mode: Mapping[str, Any]) -> list[TurnRow]:
    """The turns of one mode of a result. Raises ``SetupError`` where it has none."""
    turns = mode.get("turns")
    if not turns or tuple(turns["columns"]) != COLUMNS:
        raise SetupError("the result has no turns to fit from: measure it again with this version of agentkv bench")
    return [TurnRow(*row) for row in turns["rows"]]
