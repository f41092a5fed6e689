"""What a client tells the engine about the KV of one request, and its versioned wire format.

The client validates and raises; the engine side never raises: what it cannot honour becomes ``Rejected``.

Wire format, version 1, one JSON object of at most ``MAX_BYTES`` bytes; absent fields take their defaults::

    {"v": 1, "kind": "generate", "run": "r1", "owner": "", "class": "chain", "resume": false,
     "expected_reuse": 2.5, "ttl": 10.0, "lease": null, "ticket": null, "order": 0, "handle": null}
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from attrs import fields, frozen

from agentkv.errors import DirectiveError
from agentkv.kv.handle import KVHandle

__all__ = ("MAX_BYTES", "MAX_TTL", "VERSION", "Directive", "LeaseClass", "Rejected", "WorkKind")

VERSION = 1
MAX_BYTES = 4096
MAX_NAME = 256
MAX_TTL = 3600.0
MAX_INT = 2**53

WorkKind = Literal["generate", "prefill"]
LeaseClass = Literal["anchor", "chain", "branch", "speculative"]


@frozen(kw_only=True)
class Directive:
    """A request's place in its run and the lease it takes when it finishes.

    ``kind``: ``"prefill"`` is work ahead of need: scheduled last, in small steps, dropped rather than waited for.
    ``run`` names the run, ``owner`` the tenant or application whose leases these are. ``lease_class`` ("class"
    on the wire) is the class of the lease taken at the end. ``resume``: the request continues a chain that waited
    for a tool, and goes before cold prompts. ``expected_reuse``: seconds from the request's end until the KV is
    wanted again, None if unknown. ``ttl``: seconds the lease lives unless renewed; 0 takes no lease. ``lease``:
    token of the lease that this request's chain extends. ``ticket``: token of the run's admission. ``order``:
    among requests of equal standing, lower is sooner. ``handle``: the KV that the request builds on, to verify.
    """

    kind: WorkKind = "generate"
    run: str
    owner: str = ""
    lease_class: LeaseClass = "chain"
    resume: bool = False
    expected_reuse: float | None = None
    ttl: float = 10.0
    lease: str | None = None
    ticket: str | None = None
    order: int = 0
    handle: KVHandle | None = None

    def as_wire(self) -> dict[str, Any]:
        """The directive as a JSON-compatible mapping; raises ``DirectiveError`` if a field is out of its bounds."""
        if (problem := _problem(wire := self._fields())) is not None:
            raise DirectiveError(f"directive of run {self.run!r}: {problem}")
        return wire

    def to_wire(self) -> str:
        """The directive as a JSON string; raises ``DirectiveError`` naming the field that is out of its bounds."""
        text = json.dumps(self.as_wire(), separators=(",", ":"))
        if len(text.encode()) > MAX_BYTES:
            raise DirectiveError(f"directive of run {self.run!r} takes more than {MAX_BYTES} bytes: shorten its names")
        return text

    @classmethod
    def from_wire(cls, wire: object) -> "Directive | Rejected":
        """Read a JSON string or an already parsed mapping. Never raises."""
        try:
            parsed = _parse(wire)
            if isinstance(parsed, Rejected):
                return parsed
            if (problem := _problem(parsed)) is not None:
                return Rejected(problem)
            return cls._build(parsed)
        except Exception as error:  # noqa: BLE001 - an engine must outlive whatever it is sent
            return Rejected(f"unreadable: {type(error).__name__}")

    def _fields(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"v": VERSION}
        for each in fields(type(self)):
            value = getattr(self, each.name)
            wire[_WIRE_NAMES.get(each.name, each.name)] = value.as_wire() if isinstance(value, KVHandle) else value
        return wire

    @classmethod
    def _build(cls, wire: Mapping[Any, Any]) -> "Directive":
        values = {_FIELD_NAMES.get(name, name): value for name, value in wire.items() if name != "v"}
        if values.get("handle") is not None:
            values["handle"] = KVHandle(**values["handle"])
        return cls(**values)


@frozen
class Rejected:
    """A directive that is not honoured, and why."""

    reason: str


_WIRE_NAMES = {"lease_class": "class"}
_FIELD_NAMES = {wire: name for name, wire in _WIRE_NAMES.items()}


def _parse(wire: object) -> Mapping[Any, Any] | Rejected:
    if isinstance(wire, Mapping):
        return wire
    if not isinstance(wire, str):
        return Rejected(f"not a JSON object but {type(wire).__name__}")
    if len(wire) > MAX_BYTES:
        return Rejected(f"longer than {MAX_BYTES} bytes")
    parsed = json.loads(wire)
    return parsed if isinstance(parsed, dict) else Rejected("not a JSON object")


def _problem(wire: Mapping[Any, Any]) -> str | None:
    """The first field of a wire mapping that is not as it must be, or None."""
    if wire.get("v") != VERSION or isinstance(wire.get("v"), bool):
        return f"v: must be {VERSION}"
    if "run" not in wire:
        return "run: missing"
    for name, value in wire.items():
        check = _CHECKS.get(name) if isinstance(name, str) else None
        if check is None:
            return "unknown field" if not isinstance(name, str) else f"{name[:32]}: unknown field"
        if (complaint := check(value)) is not None:
            return f"{name}: {complaint}"
    return None


def _name(value: object) -> str | None:
    fine = isinstance(value, str) and 0 < len(value) <= MAX_NAME
    return None if fine else f"must be a string of 1 to {MAX_NAME} characters"


def _owner(value: object) -> str | None:
    return None if value == "" else _name(value)


def _maybe_name(value: object) -> str | None:
    return None if value is None else _name(value)


def _seconds(value: object) -> str | None:
    # No detour by a float, which a whole number may be too large for.
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TTL
    return None if fine else f"must be seconds from 0 to {MAX_TTL:g}"


def _maybe_seconds(value: object) -> str | None:
    return None if value is None else _seconds(value)


def _flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _integer(value: object) -> str | None:
    fine = isinstance(value, int) and not isinstance(value, bool) and -MAX_INT <= value <= MAX_INT
    return None if fine else "must be an integer"


def _kind(value: object) -> str | None:
    return None if value in get_args(WorkKind) else f"must be one of {', '.join(get_args(WorkKind))}"


def _lease_class(value: object) -> str | None:
    return None if value in get_args(LeaseClass) else f"must be one of {', '.join(get_args(LeaseClass))}"


def _handle(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {each.name for each in fields(KVHandle)}:
        return "must be an object with engine_id, epoch, owner, digest and length"
    checks = {"engine_id": _name, "epoch": _integer, "owner": _owner, "digest": _name, "length": _integer}
    return next((f"{name}: {bad}" for name, check in checks.items() if (bad := check(value[name])) is not None), None)


_CHECKS = {
    "v": _integer,
    "kind": _kind,
    "run": _name,
    "owner": _owner,
    "class": _lease_class,
    "resume": _flag,
    "expected_reuse": _maybe_seconds,
    "ttl": _seconds,
    "lease": _maybe_name,
    "ticket": _maybe_name,
    "order": _integer,
    "handle": _handle,
}
