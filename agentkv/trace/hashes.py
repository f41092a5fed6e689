"""Recorded requests without their text: lengths, times, and the hashes of the blocks of their prompts."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from agentkv.errors import SetupError
from agentkv.trace.trace_file import Line, read_lines, typed

__all__ = ("HashRequest", "HashSession", "read_hashes")

MOONCAKE_BLOCK = 512


@frozen(kw_only=True)
class HashRequest:
    """One request: ``prompt`` and ``output`` in tokens, the hashes of the blocks of its prompt in order.

    A hash stands for a block and all before it; the last may be that of a block that is not full. Seconds: ``at``
    since the start of the trace; ``duration`` until its answer was complete; ``ttft`` until its first token;
    ``think`` from the answer before it to the request. None: not recorded. ``after_tool``: it brings tool results.
    """

    at: float
    prompt: int
    output: int
    hashes: tuple[int, ...]
    duration: float | None = None
    ttft: float | None = None
    think: float | None = None
    after_tool: bool | None = None


@frozen(kw_only=True)
class HashSession:
    """Requests of one agent in order, with blocks of ``block_size`` tokens. ``parent``: the session that spawned it."""

    id: str
    block_size: int
    requests: tuple[HashRequest, ...]
    parent: str | None = None


def read_hashes(path: Path) -> Iterator[HashSession]:
    """The sessions of kv-cache-tester's files (``requests``), or one for each request of Mooncake's (``hash_ids``).

    Hashes of one Mooncake file are comparable; those of kv-cache-tester are within one object only. Raises
    ``SetupError`` that names file, line and field.
    """
    for line in read_lines(path):
        if "hash_ids" in line.fields:
            yield _mooncake(line)
        else:
            yield from _sessions(line)


def _mooncake(line: Line) -> HashSession:
    request = HashRequest(
        at=_number(line.fields, "timestamp", line.place) / 1000,
        prompt=_count(line.fields, "input_length", line.place),
        output=_count(line.fields, "output_length", line.place),
        hashes=_hashes(line.fields, line.place),
    )
    return HashSession(id=str(line.number), block_size=MOONCAKE_BLOCK, requests=(request,))


def _sessions(line: Line) -> Iterator[HashSession]:
    name, block = line.field("id", str), line.field("block_size", int)
    if block < 1:
        raise SetupError(f"{line.place}: field 'block_size' is {block}; it must be at least 1")
    entries = line.field("requests", list)
    yield HashSession(id=name, block_size=block, requests=_requests(entries, line.place, 0.0))
    for at, entry in enumerate(entries):
        if "requests" in entry:
            place = f"{line.place}, request {at}"
            # Times inside count from the moment that the agent was spawned.
            inner = _requests(typed(entry, "requests", list, place), place, _number(entry, "t", place))
            agent = typed(entry, "agent_id", str, place)
            yield HashSession(id=f"{name}/{agent}", block_size=block, requests=inner, parent=name)


def _requests(entries: list[Any], where: str, start: float) -> tuple[HashRequest, ...]:
    found = []
    for at, entry in enumerate(entries):
        place = f"{where}, request {at}"
        if not isinstance(entry, Mapping):
            raise SetupError(f"{place}: must be an object with 't', 'in', 'out' and 'hash_ids'")
        if "requests" not in entry:
            found.append(_request(entry, place, start))
    return tuple(found)


def _request(entry: Mapping[str, Any], place: str, start: float) -> HashRequest:
    types = entry.get("input_types")
    return HashRequest(
        at=start + _number(entry, "t", place),
        prompt=_count(entry, "in", place),
        output=_count(entry, "out", place),
        hashes=_hashes(entry, place),
        duration=_seconds(entry, "api_time", place),
        ttft=_seconds(entry, "ttft", place),
        think=_seconds(entry, "think_time", place),
        after_tool="tool_result" in types if isinstance(types, list) and types else None,
    )


def _hashes(fields: Mapping[str, Any], place: str) -> tuple[int, ...]:
    found = typed(fields, "hash_ids", list, place)
    if not all(type(each) is int for each in found):
        raise SetupError(f"{place}: field 'hash_ids' must be a list of whole numbers")
    return tuple(found)


def _count(fields: Mapping[str, Any], name: str, place: str) -> int:
    value: int = typed(fields, name, int, place)
    if value < 0:
        raise SetupError(f"{place}: field {name!r} is {value}; it must be at least 0")
    return value


def _number(fields: Mapping[str, Any], name: str, place: str) -> float:
    value = float(typed(fields, name, (int, float), place))
    if not 0 <= value < math.inf:
        raise SetupError(f"{place}: field {name!r} is {value:g}; it must be at least 0")
    return value


def _seconds(entry: Mapping[str, Any], name: str, place: str) -> float | None:
    return _number(entry, name, place) if entry.get(name) is not None else None
