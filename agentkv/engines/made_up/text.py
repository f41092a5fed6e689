"""Text that satisfies a structural tag."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkv.engines.made_up.instance import instance
from agentkv.engines.made_up.pattern import matching
from agentkv.errors import ScriptError

__all__ = ("ANSWER", "made_up")

ANSWER = "This is a simulated answer."

_Format = Mapping[str, Any]


def made_up(form: _Format, call_marks: Sequence[str], *, calling: bool) -> str:
    """The text for an xgrammar format, with a tool call in it if ``calling`` and the format has one.

    ``call_marks`` are the texts that begin a call. Raises ``ScriptError`` for a format that it does not know.
    """
    return _Writer(call_marks, calling).write(form)


class _Writer:
    def __init__(self, call_marks: Sequence[str], calling: bool) -> None:
        self._call_marks = call_marks
        self._calling = calling
        self._writers: dict[str, Callable[[_Format], str]] = {
            "any_text": lambda _: ANSWER,
            "const_string": lambda form: str(form["value"]),
            "json_schema": lambda form: json.dumps(instance(form["json_schema"]), ensure_ascii=False),
            "optional": lambda _: "",
            "or": lambda form: self.write(self._choose(form["elements"])),
            "plus": lambda form: self.write(form["content"]),
            "regex": lambda form: matching(form["pattern"]),
            "repeat": lambda form: self.write(form["content"]) * form["min"],
            "sequence": lambda form: "".join(map(self.write, form["elements"])),
            "star": lambda _: "",
            "tag": self._tag,
            "tags_with_separator": lambda form: self._tags(form, without=""),
            "token": lambda form: str(form["token"]),
            "triggered_tags": lambda form: self._tags(form, without=ANSWER),
        }

    def write(self, form: _Format) -> str:
        writer = self._writers.get(form["type"])
        if writer is None:
            raise ScriptError(f"no text can be made up for the format {form['type']!r}; give the engine a Script")
        return writer(form)

    def _choose(self, elements: Sequence[_Format]) -> _Format:
        # A label that can only lead to what is wanted is a better choice than one that may lead anywhere.
        able = [each for each in elements if self._calls(each, self._calling) == self._calling]
        only = [each for each in able if self._calls(each, not self._calling) == self._calling]
        return [*only, *able, *elements][0]

    def _calls(self, form: _Format, calling: bool) -> bool:
        text = _Writer(self._call_marks, calling).write(form)
        return any(mark in text for mark in self._call_marks)

    def _tag(self, form: _Format) -> str:
        begin, end = form["begin"], form["end"]
        return self._edge(begin) + self.write(form["content"]) + self._edge(end[0] if isinstance(end, list) else end)

    def _edge(self, edge: str | _Format) -> str:
        return edge if isinstance(edge, str) else self.write(edge)

    def _tags(self, form: _Format, without: str) -> str:
        return self.write(form["tags"][0]) if self._calling or form.get("at_least_one") else without
