"""An event of a run as text, and back."""

import json
import re
from collections.abc import Mapping
from typing import Any

from agentkv.errors import StoreError
from agentkv.store.base import RunSummary

__all__ = ("check_names", "check_seq", "decode_event", "encode_event", "summary", "unknown_run")

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_event(run_id: str, seq: int, event: Mapping[str, Any]) -> str:
    """Compact JSON that can always be encoded as UTF-8. Raises ``StoreError`` naming run and number."""
    where = f"event {seq} of run {run_id!r}"
    if not isinstance(event.get("type"), str):
        raise StoreError(f"{where} has no string 'type'; every event needs one")
    if _has_surrogate(run_id):
        raise StoreError(f"{where} cannot be stored: the run's id has a lone surrogate; use text that UTF-8 can hold")
    try:
        text = _dump(event, ascii_only=False)
        return _dump(event, ascii_only=True) if _has_surrogate(text) else text
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{where} is no JSON object ({error}); journal JSON types only") from error


def decode_event(run_id: str, seq: int, text: str) -> dict[str, Any]:
    """The event that ``encode_event`` wrote. Raises ``StoreError`` for text that it cannot have written."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise StoreError(f"event {seq} of run {run_id!r} is damaged; restore the journal from a copy")
    return event


def summary(run_id: str, events: int, first: str, last: str) -> RunSummary:
    """The summary of a run from the texts of its first and last events."""
    types = (decode_event(run_id, seq, text)["type"] for seq, text in ((0, first), (events - 1, last)))
    return RunSummary(run_id=run_id, events=events, first=next(types), last=next(types))


def check_seq(run_id: str, expected: int, seq: int) -> None:
    """Raise ``StoreError`` unless ``seq`` is the next number of the run."""
    if seq != expected:
        problem = "is in the journal already" if 0 <= seq < expected else "would leave a gap"
        raise StoreError(
            f"event {seq} of run {run_id!r} {problem}; the next is {expected}: is another process writing this run?"
        )


def check_names(*names: str) -> None:
    """Raise ``StoreError`` for a name that cannot be stored as text."""
    for name in names:
        if _has_surrogate(name):
            raise StoreError(
                f"the name {name!r} cannot be stored: it has a lone surrogate; use text that UTF-8 can hold"
            )


def unknown_run(run_id: str) -> StoreError:
    """The error for a run that is not in the journal."""
    return StoreError(f"the journal has no run {run_id!r}; runs() lists those that it has")


def _dump(event: Mapping[str, Any], *, ascii_only: bool) -> str:
    return json.dumps(dict(event), ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False)


def _has_surrogate(text: str) -> bool:
    return _SURROGATE.search(text) is not None
