"""A recorded conversation as token ids: what the model is made to say, and what comes between.

The chain that a replay builds turn by turn is the one that the runtime would have built, by the same ``ChatFormat``;
so what is certain of the next prompt while a tool runs is that, too.
"""

from collections.abc import Iterator, Sequence

from attrs import frozen

from agentkv.chain import ChatFormat, Message, Segment
from agentkv.common_prefix import common_prefix
from agentkv.errors import SetupError, SpecialTokenError, TemplateError
from agentkv.trace import Trajectory

__all__ = ("Between", "Story", "Teller")


@frozen(kw_only=True)
class Between:
    """What comes between two generations.

    ``calls`` and ``latencies`` (None: not recorded) are of the results, in call order; ``asked``: a user's message
    ends it. ``known[n]`` are the ids that become certain with the ``n``-th result, ``known[0]`` those that are when
    the calls are made; ``last`` come with whatever is missing then. ``keep`` as in ``Arrival``, for ``last``.
    """

    calls: tuple[str, ...]
    latencies: tuple[float | None, ...]
    asked: bool
    known: tuple[tuple[int, ...], ...]
    last: tuple[int, ...]
    keep: int | None = None


@frozen(kw_only=True, eq=False)
class Story:
    """One conversation in ids, equal to itself alone.

    ``group`` is equal where instructions and tools are, ``anchor`` is their length in ids. ``tokens`` is the length of
    the chain at its longest.
    """

    id: str
    group: str
    anchor: int
    prompt: tuple[Segment, ...]
    outputs: tuple[tuple[int, ...], ...]
    between: tuple[Between, ...]
    tokens: int

    def final_ids(self) -> list[int]:
        """The whole chain at its end."""
        ids = [i for segment in self.prompt for i in segment.ids]
        for number, output in enumerate(self.outputs):
            ids += output
            if number < len(self.between):
                step = self.between[number]
                ids += [i for part in step.known for i in part]
                ids = [*ids[: step.keep], *step.last]
        return ids


class Teller:
    """Turns conversations into stories. ``format`` is the model's."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        self._anchors: dict[tuple[str, str], tuple[str, int]] = {}

    def tell(self, trajectory: Trajectory) -> Story:
        """The conversation in ids. Raises ``SetupError`` where template or tokenizer cannot render it."""
        try:
            return self._tell(trajectory)
        except (TemplateError, SpecialTokenError) as error:
            raise SetupError(f"{trajectory.place} ({trajectory.id}): {error}") from error

    def _tell(self, trajectory: Trajectory) -> Story:
        messages = trajectory.messages
        said = [at for at, message in enumerate(messages) if message.role == "assistant"]
        group, anchor = self._anchor(trajectory)
        first = self._chat.render(trajectory.system, trajectory.tools, messages[: said[0]])
        chain, outputs, between, longest = list(first), [], [], 0
        for number, at in enumerate(said):
            ids, closed = self._chat.close(self._chat.generation(messages[at]))
            outputs.append(tuple(ids))
            chain += ids
            longest = max(longest, len(chain))
            if number + 1 < len(said):
                step = self._between(trajectory, chain, at, said[number + 1], closed)
                chain += [i for part in step.known for i in part]
                chain = [*chain[: step.keep], *step.last]
                between.append(step)
        return Story(
            id=trajectory.id,
            group=group,
            anchor=anchor,
            prompt=_segments(first, anchor),
            outputs=tuple(outputs),
            between=tuple(between),
            tokens=longest,
        )

    def _anchor(self, trajectory: Trajectory) -> tuple[str, int]:
        """The name of the agent that speaks, and how many ids all its conversations begin with."""
        key = (trajectory.system, repr(trajectory.tools))
        if key not in self._anchors:
            length = len(self._chat.anchor(trajectory.system, trajectory.tools))
            self._anchors[key] = (f"agent-{len(self._anchors)}", length)
        return self._anchors[key]

    def _between(self, trajectory: Trajectory, chain: list[int], at: int, until: int, closed: bool) -> Between:
        before, new = trajectory.messages[: at + 1], trajectory.messages[at + 1 : until]
        results = [message for message in new if message.role == "tool"]
        keep = None
        if self._chat.appends(new):
            ids = self._chat.delta(trajectory.system, trajectory.tools, before, new, closed)
            known = list(self._known(trajectory, before, results, ids, closed, asked=len(results) < len(new)))
        else:
            whole = self._chat.render(trajectory.system, trajectory.tools, trajectory.messages[:until])
            keep = common_prefix(chain, whole)
            ids, known = whole[keep:], []
        return Between(
            calls=tuple(message.name for message in results),
            latencies=trajectory.latencies[at + 1 : at + 1 + len(results)],
            asked=len(results) < len(new),
            known=tuple(known),
            last=tuple(ids[sum(map(len, known)) :]),
            keep=keep if keep is not None and keep < len(chain) else None,
        )

    def _known(
        self,
        trajectory: Trajectory,
        before: Sequence[Message],
        results: Sequence[Message],
        ids: list[int],
        closed: bool,
        *,
        asked: bool,
    ) -> Iterator[tuple[int, ...]]:
        """The stretches of ``ids`` that become certain one after the other while results are awaited."""
        start = 0
        for ready in range(len(results)):
            pending = [*results[:ready], *(None for _ in results[ready:])]
            certain = self._chat.known(trajectory.system, trajectory.tools, before, pending, closed)
            if asked and ids[: len(certain)] != certain:
                # Templates may end the results otherwise where a user's message follows.
                return
            yield tuple(certain[start:])
            start = len(certain)


def _segments(ids: Sequence[int], anchor: int) -> tuple[Segment, ...]:
    parts = [Segment(kind="anchor", label="agent", ids=tuple(ids[:anchor]))] if anchor else []
    return (*parts, Segment(kind="user", label="user", ids=tuple(ids[anchor:])))
