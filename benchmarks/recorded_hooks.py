"""Guesses at results of recorded tools, as who wrote these tools could make them: ``@tool(predict=...)``.

For ``agentkv bench predictors --hook benchmarks/recorded_hooks.py:predict``. Each says what the tool gives when all
goes well; a call that fails gives something else, and its guess is waste.
"""

import json
import re
from typing import Any

from agentkv import ToolCall

__all__ = ("predict",)

# What a shell command does that prints nothing when it succeeds: it writes, or changes files in place.
QUIET = re.compile(r"\b(sed -i|cat\s*<<|cat\s*>|tee\b|mkdir|touch|rm|cp|mv|git (checkout|stash|add))\b")
NOTHING_PRINTED = "<returncode>0</returncode>\n<output>\n</output>"


def predict(call: ToolCall) -> str | None:
    """The result that ``call`` has if nothing goes wrong; None where that depends on more than its arguments."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return None
    match call.name:
        case "think":
            return ""
        case "touch" | "echo" | "mkdir":
            return "None"
        case "bash" if QUIET.search(str(given.get("command", ""))):
            return NOTHING_PRINTED
        case _:
            found = _status(call.name, given)
            return None if found is None else json.dumps(found)


def _status(name: str, given: dict[str, Any]) -> dict[str, Any] | None:
    match name:
        case "pressBrakePedal":
            return {"brakePedalStatus": "pressed", "brakePedalForce": 1000.0 * given.get("pedalPosition", 1.0)}
        case "lockDoors":
            return {"lockStatus": "locked", "remainingUnlockedDoors": 0}
        case "rm":
            return {"result": f"'{given.get('file_name')}' removed"}
        case "cd":
            return {"current_working_directory": given.get("folder")}
        case "authenticate_twitter":
            return {"authentication_status": True}
        case "set_navigation":
            return {"status": f"Navigating to {given.get('destination')}"}
        case _:
            return None
