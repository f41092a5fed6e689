"""What is kept of those who came lately."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

__all__ = ("REMEMBERED", "Recent")

Key = TypeVar("Key")
Value = TypeVar("Value")

# A service's tenants and graphs come and go for as long as it runs.
REMEMBERED = 1024


class Recent(Generic[Key, Value]):
    """Values by key, made when they are first asked for.

    Of more than ``REMEMBERED`` those asked for longest ago are forgotten first. ``kept`` are there from the beginning.
    """

    def __init__(self, make: Callable[[], Value], kept: Mapping[Key, Value] | None = None) -> None:
        self._make = make
        self._values: OrderedDict[Key, Value] = OrderedDict(kept or {})

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def of(self, key: Key) -> Value:
        """The value of ``key``."""
        if key not in self._values:
            self._values[key] = self._make()
        self._values.move_to_end(key)
        while len(self._values) > REMEMBERED:
            self._values.popitem(last=False)
        return self._values[key]

    def items(self) -> Iterator[tuple[Key, Value]]:
        """All of them, those asked for longest ago first."""
        yield from self._values.items()
