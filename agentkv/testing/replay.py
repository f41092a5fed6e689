"""A model that says what it said in a recorded run."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim_output import Responder, ScriptedOutput
from agentkv.errors import JournalError, ScriptError
from agentkv.graph.path import place, to_path

__all__ = ("replay",)


def replay(events: Iterable[Mapping[str, Any]]) -> Responder:
    """A responder that gives each node of each branch and visit the token ids that the journal ``events`` hold for it.

    Raises ``JournalError`` for a record that cannot be read; the responder raises ``ScriptError`` when asked for a
    generation that was not recorded, or was given already, and says how the recording ended if that was early.
    """
    recorded: dict[tuple[str, str], deque[tuple[int, ...]]] = {}
    end: Mapping[str, Any] = {}
    for number, event in enumerate(events):
        try:
            end = event
            if event["type"] == "generation_finished":
                key = (place(to_path(event.get("branch", ())), event["node"]), str(event["visit"]))
                recorded.setdefault(key, deque()).append(tuple(event["token_ids"]))
        except (TypeError, LookupError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise JournalError(
                f"record {number} is not readable ({problem}); give the events of store.load()"
            ) from error

    def respond(request: GenerateRequest) -> ScriptedOutput:
        node, visit = [*request.tag.rsplit("/", 2), "", ""][1:3]
        left = recorded.get((node, visit))
        if not left:
            why = _why_missing(end, more=any(recorded.values()))
            raise ScriptError(f"the recorded run has no (further) generation of node {node!r}, visit {visit}; {why}")
        return ScriptedOutput(left.popleft())

    return respond


def _why_missing(end: Mapping[str, Any], *, more: bool) -> str:
    """Why a generation is not there, by the journal's last record; there may be ``more`` that were not asked for."""
    differ = "the graph or its tools differ from those of the recording"
    match end.get("type"):
        case "run_finished":
            return differ
        case "run_cancelled":
            how = "the run was cancelled"
        case "run_failed":
            how = f"the run failed: {end.get('kind')}: {end.get('message')}"
        case _:
            how = "its journal has no end, as of a run that still goes on or whose process died"
    if more:
        return f"its recording ends early ({how}), or {differ}"
    return f"its recording ends there ({how}); replay no further, or record a run that finishes"
