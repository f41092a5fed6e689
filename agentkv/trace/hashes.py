"""Recorded requests without their text: lengths, times, and the hashes of the blocks of their prompts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from agentkv.errors import SetupError
from agentkv.trace.trace_file import Line, read_lines, seconds, typed

__all__ = ("HashRequest", "HashSession", "Spawn", "read_hashes")

MOONCAKE_BLOCK = 512
MAX_TOKENS = 1 << 24


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
class Spawn:
    """An agent starts ``after`` seconds after the answer to request ``request`` of its parent, counted from 0."""

    request: int
    after: float


@frozen(kw_only=True)
class HashSession:
    """Requests of one agent in order, with blocks of ``block_size`` tokens, and equal hashes where ``scope`` is equal.

    ``parent`` is the session that spawned it, ``spawn`` when. ``anchor``: tokens of instructions and tools, where the
    trace tells.
    """

    id: str
    block_size: int
    requests: tuple[HashRequest, ...]
    scope: str
    parent: str | None = None
    spawn: Spawn | None = None
    anchor: int = 0


def read_hashes(path: Path) -> Iterator[HashSession]:
    """The sessions of kv-cache-tester's files (``requests``), or one for each request of Mooncake's (``hash_ids``).

    Hashes of one Mooncake file are comparable; those of kv-cache-tester are within one object only. Raises
    ``SetupError`` that names file, line and field.
    """
    for line in read_lines(path):
        if "hash_ids" in line.fields:
            yield _mooncake(line, path.name)
        else:
            yield from _sessions(line)


def _mooncake(line: Line, scope: str) -> HashSession:
    prompt = _count(line.fields, "input_length", line.place)
    request = HashRequest(
        at=seconds(line.fields, "timestamp", line.place) / 1000,
        prompt=prompt,
        output=_count(line.fields, "output_length", line.place),
        hashes=_hashes(line.fields, prompt, MOONCAKE_BLOCK, line.place),
    )
    return HashSession(id=str(line.number), block_size=MOONCAKE_BLOCK, requests=(request,), scope=scope)


def _sessions(line: Line) -> Iterator[HashSession]:
    name, block = line.field("id", str), line.field("block_size", int)
    if not 1 <= block <= MAX_TOKENS:
        raise SetupError(f"{line.place}: field 'block_size' is {block}; it must be 1 to {MAX_TOKENS}")
    entries = line.field("requests", list)
    requests = _requests(entries, block, line.place, 0.0)
    anchor = _anchor(line.fields, line.place)
    yield HashSession(id=name, block_size=block, requests=requests, scope=name, anchor=anchor)
    for at, entry in enumerate(entries):
        if "requests" not in entry:
            continue
        place = f"{line.place}, request {at}"
        # Logged when it had ended, with times inside that count from its start.
        ended, lasted = seconds(entry, "t", place), _seconds(entry, "duration_ms", place) or 0.0
        started = max(0.0, ended - lasted / 1000)
        yield HashSession(
            id=f"{name}/{typed(entry, 'agent_id', str, place)}",
            block_size=block,
            requests=_requests(typed(entry, "requests", list, place), block, place, started),
            scope=name,
            parent=name,
            spawn=_spawn(started, requests),
            anchor=_anchor(entry, place),
        )


def _spawn(started: float, requests: Sequence[HashRequest]) -> Spawn:
    number = max((at for at, request in enumerate(requests) if request.at <= started), default=0)
    answered = requests[number].at + (requests[number].duration or 0.0) if requests else 0.0
    return Spawn(request=number, after=max(0.0, started - answered))


def _anchor(fields: Mapping[str, Any], place: str) -> int:
    return sum(_count(fields, part, place) for part in ("tool_tokens", "system_tokens") if part in fields)


def _requests(entries: list[Any], block: int, where: str, start: float) -> tuple[HashRequest, ...]:
    found = []
    for at, entry in enumerate(entries):
        place = f"{where}, request {at}"
        if not isinstance(entry, Mapping):
            raise SetupError(f"{place}: must be an object with 't', 'in', 'out' and 'hash_ids'")
        if "requests" not in entry:
            found.append(_request(entry, block, place, start))
    return tuple(found)


def _request(entry: Mapping[str, Any], block: int, place: str, start: float) -> HashRequest:
    types = entry.get("input_types")
    prompt = _count(entry, "in", place)
    return HashRequest(
        at=start + seconds(entry, "t", place),
        prompt=prompt,
        output=_count(entry, "out", place),
        hashes=_hashes(entry, prompt, block, place),
        duration=_seconds(entry, "api_time", place),
        ttft=_seconds(entry, "ttft", place),
        think=_seconds(entry, "think_time", place),
        after_tool="tool_result" in types if isinstance(types, list) and types else None,
    )


def _hashes(fields: Mapping[str, Any], prompt: int, block: int, place: str) -> tuple[int, ...]:
    found = typed(fields, "hash_ids", list, place)
    if not all(type(each) is int for each in found):
        raise SetupError(f"{place}: field 'hash_ids' must be a list of whole numbers")
    if len(found) not in (prompt // block, -(-prompt // block)):
        raise SetupError(
            f"{place}: field 'hash_ids' has {len(found)} entries; it must have one for each block of {block} of the "
            f"prompt's {prompt} tokens"
        )
    return tuple(found)


def _count(fields: Mapping[str, Any], name: str, place: str) -> int:
    value: int = typed(fields, name, int, place)
    if not 0 <= value <= MAX_TOKENS:
        raise SetupError(f"{place}: field {name!r} is {value}; it must be 0 to {MAX_TOKENS} tokens")
    return value


def _seconds(entry: Mapping[str, Any], name: str, place: str) -> float | None:
    return seconds(entry, name, place) if entry.get(name) is not None else None
