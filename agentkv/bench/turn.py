"""One generation of an agent, and where its time and its tokens went."""

from typing import Literal

from attrs import define, frozen

__all__ = ("Source", "Task", "Turn", "UnderWay")

Source = Literal["start", "tool", "user", "branch", "join"]


@frozen(kw_only=True)
class Turn:
    """Times are clock seconds, counts are tokens; ``number`` 0 is the agent's first generation.

    ``source`` is what made it possible: the agent's arrival, a tool's result, a user's message, what a ``"branch"`` has
    to be told, the ends of those that are joined; ``ready_at`` is when that was. ``held_s`` of what follows was spent
    waiting for a slot, until ``sent_at`` by the client, then ``queue_s`` and ``prefill_s`` in the engine as far as it
    tells; ``first_at`` is when the first token was in hand.
    """

    chain: int
    number: int
    source: Source
    ready_at: float
    held_s: float
    sent_at: float
    first_at: float
    done_at: float
    prompt: int
    cached: int
    generated: int
    queue_s: float | None
    prefill_s: float | None

    @property
    def ttft_s(self) -> float:
        """From the moment it could be asked for to the first token in hand, all waiting included."""
        return self.first_at - self.ready_at

    @property
    def inter_token_s(self) -> float:
        """Mean time from one token to the next, for a turn of two tokens or more."""
        return (self.done_at - self.first_at) / (self.generated - 1)

    @property
    def client_s(self) -> float:
        """Spent by the client before the request was sent, without waiting for a slot."""
        return self.sent_at - self.ready_at - self.held_s

    @property
    def delivery_s(self) -> float | None:
        """What is left of the time when client, queue and prefill are taken off: ways between processes."""
        if self.queue_s is None or self.prefill_s is None:
            return None
        return self.first_at - self.sent_at - self.queue_s - self.prefill_s


@frozen
class Task:
    """One agent from its arrival to its end, in clock seconds."""

    agent: int
    arrived_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        """How long it took, waiting for admission included."""
        return self.ended_at - self.arrived_at


@define
class UnderWay:
    """A generation that can be asked for since ``ready_at`` and is not done; ``first_at`` is its first token's time."""

    source: Source
    ready_at: float
    first_at: float | None = None
    sent: bool = False

    def waited(self, now: float) -> float:
        """Seconds until its first token; as of ``now``, and so at least, where that has not come."""
        return (now if self.first_at is None else self.first_at) - self.ready_at
