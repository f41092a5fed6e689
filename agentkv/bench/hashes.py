"""The hashes workload: recorded sessions without their text, with ids made up so that the same is equal."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from attrs import evolve, field, frozen

from agentkv.bench.block_text import BlockText
from agentkv.bench.delay_scaling import DelayScaling
from agentkv.bench.workload import AgentPlan, Arrival, Output, Wait
from agentkv.chain import Segment
from agentkv.common_prefix import common_prefix
from agentkv.errors import SetupError
from agentkv.trace import HashRequest, HashSession, read_hashes

__all__ = ("HashPlan", "Hashes", "choose_sessions")

NAME = "session"


@frozen(kw_only=True)
class HashPlan(AgentPlan):
    """One session. Its waits are the recorded ones by ``scaling``; ids are made up when they are asked for."""

    number: int
    starts_at: float
    spawned_by: tuple[int, int] | None
    group: str
    anchor_tokens: int
    text: BlockText
    scaling: DelayScaling

    @property
    def requests(self) -> tuple[HashRequest, ...]:
        """What the session sent."""
        return self.text.session.requests

    @property
    def end_tokens(self) -> int:
        """Length of the longest prompt with its answer."""
        return max(request.prompt + request.output for request in self.requests)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The recorded think times."""
        return tuple(
            Wait(seconds=self.scaling.seconds(r.think or 0.0), name=NAME, source="tool" if r.after_tool else "user")
            for r in self.requests[1:]
        )

    def prompt(self) -> list[Segment]:
        """The first request's, in two parts: what its group has in common, and its own."""
        ids = self.text.prompt(0)
        parts = [Segment(kind="anchor", label=NAME, ids=tuple(ids[: self.anchor_tokens]))] if self.anchor_tokens else []
        return [*parts, Segment(kind="user", label=NAME, ids=tuple(ids[self.anchor_tokens :]))]

    def output(self, generation: int) -> Output:
        """Of the recorded length, and so that the next prompt holds it where that is what happened."""
        ids = self.text.answer(generation)
        return Output(tokens=len(ids), forced=ids)

    def arrivals(self, wait: int) -> list[Arrival]:
        """What the next prompt has that this chain has not; if it says something otherwise, from there on."""
        chain, following = [*self.text.prompt(wait), *self.text.answer(wait)], self.text.prompt(wait + 1)
        keep = common_prefix(chain, following)
        return [
            Arrival(
                seconds=self.waits[wait].seconds,
                ids=tuple(following[keep:]),
                keep=keep if keep < len(chain) else None,
            )
        ]


@frozen(kw_only=True)
class Hashes:
    """Sessions and their sub-agents, each an agent of its own. ``cut`` of them were ended early for their length.

    With ``start_spread`` sessions start evenly over so many seconds, without when they did; a sub-agent starts when
    it did after the answer of the session that it belongs to. Raises ``SetupError`` for no sessions.
    """

    sessions: tuple[HashSession, ...] = field()
    cut: int
    scaling: DelayScaling
    start_spread: float | None
    seed: int
    source: dict[str, Any]

    kind = "hashes"
    text = (
        "made up: token ids that are equal where the recorded hashes are; the model is made to say what the next "
        "prompt holds"
    )
    forces = True

    @sessions.validator
    def _check(self, _: object, value: tuple[HashSession, ...]) -> None:
        if not value:
            raise SetupError("no session is within --max-tokens; give more of it")
        if len({session.id for session in value}) < len(value):
            raise SetupError("two sessions have one id; give each trace once")
        for session in value:
            if any(request.prompt < 1 or request.output < 1 for request in session.requests):
                raise SetupError(f"session {session.id!r} has a request without prompt or answer; leave it out")

    @property
    def delays(self) -> str:
        """Where the waits come from."""
        return f"recorded think times{self.scaling.factor}{self.scaling.bound}"

    @cached_property
    def plans(self) -> tuple[HashPlan, ...]:
        """Every agent: sessions in order of their start, each before its sub-agents."""
        numbers = {session.id: number for number, session in enumerate(self.sessions)}
        groups = self._groups()
        return tuple(
            HashPlan(
                number=number,
                starts_at=self._starts[session.id],
                spawned_by=None if session.spawn is None else (numbers[str(session.parent)], session.spawn.request),
                group=_group(session),
                anchor_tokens=groups[_group(session)],
                text=BlockText(self.seed, session),
                scaling=self.scaling,
            )
            for number, session in enumerate(self.sessions)
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest chain."""
        return max(plan.end_tokens for plan in self.plans)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the longest first prompt."""
        return max(session.requests[0].prompt for session in self.sessions)

    def blocks(self, block: int) -> int:
        """What all chains hold at their longest; a prefix of hashes that several have counts once."""
        nodes: dict[tuple[Any, int], int] = {}
        total = 0
        for plan in self.plans:
            session, request = plan.text.session, max(plan.requests, key=lambda each: each.prompt + each.output)
            node: Any = session.scope
            shared = 0
            for name in request.hashes:
                # A node that is new has nothing below it.
                shared += (node, name) in nodes
                node = nodes.setdefault((node, name), len(nodes))
            total += -(-plan.end_tokens // block) - min(shared * session.block_size, request.prompt) // block
        return total

    def shared_blocks(self, block: int) -> int:
        """The blocks of the groups' common beginnings."""
        return sum(tokens // block for tokens in self._groups().values())

    def to_json(self) -> dict[str, Any]:
        """What was replayed, and how the agents differ."""
        lengths = sorted(plan.end_tokens for plan in self.plans)
        sub_agents = sum(session.spawn is not None for session in self.sessions)
        return {
            **self.source,
            "chains": len(self.sessions),
            "sessions": len(self.sessions) - sub_agents,
            "sub_agents": sub_agents,
            "cut_sessions": self.cut,
            "start_spread": self.start_spread,
            "seed": self.seed,
            "tokens": {"least": lengths[0], "median": lengths[len(lengths) // 2], "most": lengths[-1]},
            "generations": sum(len(session.requests) for session in self.sessions),
            "delay_scale": self.scaling.scale,
            "delay_cap": self.scaling.cap,
        }

    @cached_property
    def _starts(self) -> dict[str, float]:
        """When each session starts; a sub-agent, counted from the answer after which it does."""
        begun = [session for session in self.sessions if session.spawn is None]
        first = min(session.requests[0].at for session in begun)
        if self.start_spread is None:
            found = {each.id: self.scaling.scale * (each.requests[0].at - first) for each in begun}
        else:
            found = {session.id: at * self.start_spread / len(begun) for at, session in enumerate(begun)}
        spawned = {each.id: self.scaling.seconds(each.spawn.after) for each in self.sessions if each.spawn is not None}
        return {**found, **spawned}

    def _groups(self) -> dict[str, int]:
        """The length of what all agents of a group begin with."""
        members: defaultdict[str, list[HashSession]] = defaultdict(list)
        for session in self.sessions:
            members[_group(session)].append(session)
        return {name: _anchor(sessions) for name, sessions in members.items()}


def choose_sessions(
    files: Sequence[Path], *, limit: int | None, longest: int | None, seed: int
) -> tuple[tuple[HashSession, ...], int]:
    """At most ``limit`` sessions with their sub-agents, and how many were cut.

    Files of one session each are taken in an order that ``seed`` decides, requests of a log in its own order. A
    session ends before its first request that, answer included, has more than ``longest`` tokens.
    """
    order = list(files)
    Random(seed).shuffle(order)  # noqa: S311 - repeatable, not secret
    found: list[HashSession] = []
    taken = cut = 0
    for family in _families(order):
        if taken == limit:
            break
        kept = _shortened(family, longest)
        taken += bool(kept)
        originals = {session.id: session for session in family}
        cut += sum(len(session.requests) < len(originals[session.id].requests) for session in kept)
        found += kept
    return tuple(found), cut


def _families(files: Sequence[Path]) -> Iterator[list[HashSession]]:
    """Each session with its sub-agents behind it."""
    for file in files:
        family: list[HashSession] = []
        for session in read_hashes(file):
            if family and session.parent is None:
                yield family
                family = []
            family.append(session)
        if family:
            yield family


def _shortened(family: Sequence[HashSession], longest: int | None) -> list[HashSession]:
    """The sessions up to their first request that is too long, without those that would never start."""
    kept: dict[str, HashSession] = {}
    for session in family:
        fits = [longest is None or r.prompt + r.output <= longest for r in session.requests]
        requests = session.requests[: fits.index(False) if False in fits else len(fits)]
        spawn = session.spawn
        parent = None if spawn is None else kept.get(str(session.parent))
        starts = spawn is None or (parent is not None and spawn.request < len(parent.requests))
        if requests and starts:
            kept[session.id] = evolve(session, requests=requests)
    return list(kept.values())


def _group(session: HashSession) -> str:
    first = session.requests[0].hashes
    return f"{session.scope}/{first[0]}" if first else session.id


def _anchor(sessions: Sequence[HashSession]) -> int:
    first = sessions[0].requests[0]
    if len(sessions) == 1:
        return min(sessions[0].anchor, first.prompt)
    common = min(common_prefix(first.hashes, session.requests[0].hashes) for session in sessions[1:])
    return min(common * sessions[0].block_size, *(session.requests[0].prompt for session in sessions))
