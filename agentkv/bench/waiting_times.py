"""How long agents wait in a replay: as recorded where that was, else drawn, and every wait says which."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Literal

from attrs import field, frozen

from agentkv.bench.delay import Delay
from agentkv.bench.delay_scaling import DelayScaling
from agentkv.errors import SetupError
from agentkv.trace import read_hashes

__all__ = ("Origin", "ThinkTimes", "WaitingTimes", "read_think_times")

Origin = Literal["recorded", "transplanted", "drawn"]


@frozen
class ThinkTimes:
    """Seconds from an answer to the next request in recorded sessions, after tools and after users' messages."""

    tool: tuple[float, ...]
    user: tuple[float, ...]


def read_think_times(files: Iterable[Path]) -> ThinkTimes:
    """All of the sessions' think times, sub-agents' too. Raises ``SetupError`` where there are none of either kind."""
    tool: list[float] = []
    user: list[float] = []
    for file in files:
        for session in read_hashes(file):
            for request in session.requests[1:]:
                if request.think is not None:
                    (tool if request.after_tool else user).append(request.think)
    if not tool or not user:
        raise SetupError("--think-times: no session waits for a tool and none for a user; give more sessions")
    return ThinkTimes(tuple(tool), tuple(user))


@frozen(kw_only=True)
class WaitingTimes:
    """Where a wait's seconds come from.

    What was recorded comes first; then ``think`` times, transplanted from other agents' sessions, multiplied as
    ``scaling`` says; then the made-up ``tool`` and ``user``. None is longer than the scaling's cap.
    """

    tool: Delay
    user: Delay
    think: ThinkTimes | None = None
    scaling: DelayScaling = field(factory=DelayScaling)

    def of_tool(self, recorded: float | None, rng: Random) -> tuple[float, Origin]:
        """Seconds that one call takes, and where they come from."""
        if recorded is not None:
            return self.scaling.bounded(recorded), "recorded"
        return self._drawn(self.think.tool if self.think else (), self.tool, rng)

    def of_user(self, rng: Random) -> tuple[float, Origin]:
        """Seconds until a user writes on, and where they come from."""
        return self._drawn(self.think.user if self.think else (), self.user, rng)

    def _drawn(self, seen: Sequence[float], made_up: Delay, rng: Random) -> tuple[float, Origin]:
        if seen:
            return self.scaling.seconds(rng.choice(seen)), "transplanted"
        return self.scaling.bounded(made_up.draw(rng)), "drawn"
