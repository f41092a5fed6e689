"""A JSON object that a client sent with an operation, read field by field."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from agentkv.kv.directive import MAX_TTL, LeaseClass
from agentkv.kv.handle import KVHandle
from agentkv.kv.order import RANKS

__all__ = ("BadCall", "Payload")

HANDLE_FIELDS = {"engine_id", "epoch", "owner", "digest", "length"}


class BadCall(Exception):  # noqa: N818 - what answers the operation catches it
    """Raised while a payload is read; its message becomes the answer's ``error``."""


@frozen
class Payload:
    """The object's fields; ``BadCall`` names the one that is not as it must be."""

    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A string of at most 256 characters."""
        value = self.fields.get(name, default)
        if not isinstance(value, str) or len(value) > 256:
            raise BadCall(f"{name}: must be a string of at most 256 characters")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number from 0."""
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
            raise BadCall(f"{name}: must be a whole number from 0")
        return value

    def seconds(self, name: str) -> float:
        """Seconds from 0 to ``MAX_TTL``."""
        value = self.fields.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadCall(f"{name}: must be a number of seconds")
        if not 0 <= value <= MAX_TTL:
            raise BadCall(f"{name}: must be from 0 to {MAX_TTL:g} seconds")
        return float(value)

    def many(self, name: str, of: type) -> list[Any]:
        """A list of ``of``."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(each, of) for each in value):
            raise BadCall(f"{name}: must be a list")
        return value

    def lease_class(self) -> LeaseClass | None:
        """The field ``class``, if there is one."""
        value = self.fields.get("class")
        if value is None:
            return None
        if not isinstance(value, str) or value not in RANKS:
            raise BadCall(f"class: must be one of {', '.join(RANKS)}")
        found: LeaseClass = value
        return found

    def handle(self) -> KVHandle:
        """The field ``handle``."""
        given = self.fields.get("handle")
        if not isinstance(given, dict) or set(given) != HANDLE_FIELDS:
            raise BadCall("handle: must be an object with engine_id, epoch, owner, digest and length")
        return KVHandle(**given)
