"""A journal's run as the prompts that were sent, on its main chain and in its branches."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from agentkv.follow import prefills_ahead
from agentkv.report.demand import RecordedPrompt
from agentkv.report.early import Early, RecordedResult, Repeats, there_early
from agentkv.tools import ToolCall

__all__ = ("RecordedRun",)

# Of a journal that does not say how large its engine's blocks were: vLLM's default, in tokens.
BLOCK = 16

Event = Mapping[str, Any]


@define
class _Branch:
    """What a run's main chain, or a branch of it, has come to.

    ``within`` are its own forks and joins, by node and visit, in which something happened since its last generation;
    ``before`` are those that its first one stands behind.
    """

    name: str
    fork: str | None
    before: frozenset[tuple[str, int]] = frozenset()
    within: set[tuple[str, int]] = field(factory=set)
    asked: Event | None = None
    started: dict[tuple[str, int], Event] = field(factory=dict)
    results: dict[int, RecordedResult] = field(factory=dict)
    tool: float | None = None
    reached: dict[str, int] = field(factory=dict)

    def called(self, event: Event) -> None:
        """A call was started, or has ended."""
        call, at = (event["node"], event["index"]), event["at"]
        if event["type"] == "call_started":
            self.started[call] = event
            return
        started = self.started.get(call)
        self.tool = max(self.tool or 0.0, at - (at if started is None else started["at"]))
        if started is not None:
            key = ToolCall(**started["call"]).key
            self.results[event["index"]] = RecordedResult(call=key, text=event["text"], at=at)

    def had(self, agent: str, finished: Event) -> int:
        """Tokens of the prompt of ``finished`` whose KV the engine has without anything prefilled ahead."""
        cached: int = finished["cached"] - finished.get("prefilled", 0)
        # The last token generated has no KV.
        own: int = min(self.reached.get(agent, 0) - 1, finished["prompt"])
        return max(0, own, cached)

    def over(self) -> tuple[bool, list[RecordedResult]]:
        """Whether anything ran before the generation that was asked, and the results of that; forgets them."""
        ran = self.tool is not None or bool(self.within or self.before)
        results = [self.results[index] for index in sorted(self.results)]
        self.results, self.within, self.before = {}, set(), frozenset()
        return ran, results


class RecordedRun:
    """Takes the events of run ``run`` in their order. ``repeats`` are what calls gave, in this run and before."""

    def __init__(self, run: str, repeats: Repeats) -> None:
        self._run, self._repeats = run, repeats
        self._branches: dict[str, _Branch] = {}
        self._block_size, self._followed = BLOCK, False

    def take(self, event: Event) -> RecordedPrompt | None:
        """Take note of an event; the prompt that it was the end of, if it was."""
        branch = self._at(event.get("branch") or ())
        if event["type"] == "run_started":
            self._block_size = event.get("block_size") or BLOCK
            self._followed = prefills_ahead(event.get("mode", "prefix"))
        elif event["type"] in ("call_started", "call_finished"):
            branch.called(event)
        elif event["type"] == "generation_asked":
            branch.asked = event
        elif event["type"] == "generation_finished" and branch.asked is not None:
            asked, branch.asked = branch.asked, None
            return self._finished(branch, asked, event)
        return None

    def _finished(self, branch: _Branch, asked: Event, event: Event) -> RecordedPrompt:
        agent, output = asked["agent"], len(event["token_ids"])
        early = self._early(branch, asked, event)
        # A resume continues the prompt before it; of a first one, what the engine found is what it had seen.
        reused = min(branch.reached.get(agent, event["cached"]), event["prompt"])
        branch.reached[agent] = event["prompt"] + output
        tool, branch.tool = branch.tool, None
        return RecordedPrompt(
            chain=f"{branch.name} {agent}",
            fork=branch.fork,
            tokens=event["prompt"],
            output=output,
            reused=reused,
            early=early,
            at=asked["asked_at"],
            end=event["at"],
            wait=event["first_at"] - asked["asked_at"],
            tool=tool,
        )

    def _early(self, branch: _Branch, asked: Event, event: Event) -> Early:
        ran, results = branch.over()
        prefilled: int = event.get("prefilled", 0)
        if not (ran or prefilled):
            return Early(followed=self._followed)
        had = branch.had(asked["agent"], event)
        in_time, counted = there_early(results) or (0, 0)
        certain = max(0, asked.get("known", 0) - had) * (in_time / counted if counted else 1)
        return Early.of(
            event["prompt"],
            had,
            max(int(certain), prefilled),
            repeated=self._repeats.all_in(results),
            block_size=self._block_size,
            followed=self._followed,
        )

    def _at(self, path: Sequence[Mapping[str, Any]]) -> _Branch:
        """What has come of the branch at ``path``; something happens within those that it is in."""
        branch = self._branches.setdefault("", _Branch(name=self._run, fork=None))
        for depth in range(1, len(path) + 1):
            outer, here = branch, (path[depth - 1]["node"], path[depth - 1]["visit"])
            branch = self._branches.setdefault(str(path[:depth]), self._begun(path[:depth], outer))
            outer.within.add(here)
        return branch

    def _begun(self, path: Sequence[Mapping[str, Any]], outer: _Branch) -> _Branch:
        """``path`` names the branch by fork, visit and label, outermost first."""
        last = path[-1]
        here = (last.get("node"), last.get("visit"))
        return _Branch(
            name=f"{self._run} {path}",
            fork=f"{self._run} {path[:-1]} {here[0]} {here[1]}",
            before=frozenset(outer.within - {here}),
        )
