"""What a scripted model says in one generation."""

import json
from typing import TypeAlias

from attrs import evolve

from agentkv.chain import Turn
from agentkv.engines.sim_output import ScriptedOutput
from agentkv.errors import ScriptError
from agentkv.tools import ToolCall

__all__ = ("ScriptedTurn", "call", "calls", "label", "say")

ScriptedTurn: TypeAlias = Turn | str | ScriptedOutput
"""A built turn; a text that the model writes exactly so, control tokens included; or bare token ids."""


def say(text: str, *then: Turn) -> Turn:
    """Text, and behind it the calls of ``then``."""
    return Turn(text=text, calls=calls(*then).calls)


def call(name: str, /, **arguments: object) -> Turn:
    """One tool call. Raises ``ScriptError`` for arguments that JSON cannot express."""
    try:
        written = json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ScriptError(f"call({name!r}): the arguments are not JSON ({error}); script the JSON form") from None
    return Turn(calls=(ToolCall("", name, written),))


def calls(*each: Turn) -> Turn:
    """Several tool calls in one generation. Raises ``ScriptError`` for a turn that holds more than calls."""
    for turn in each:
        if turn.text or turn.label is not None:
            raise ScriptError(f"calls(...) takes turns made by call(...), not {turn!r}")
    return Turn(calls=tuple(one for turn in each for one in turn.calls))


def label(name: str, then: Turn | str = "") -> Turn:
    """The label that a replan node chooses, and the turn behind it."""
    return evolve(Turn(text=then) if isinstance(then, str) else then, label=name)
