"""How runs went on from node to node, remembered by tenant and graph."""

from collections import OrderedDict
from collections.abc import Mapping

from agentkv.follow.recent import REMEMBERED

__all__ = ("Transitions", "Way")

#: From one node that asks for a generation to the next, or to the end.
Way = tuple[str, str]


class Transitions:
    """Counts of ways by tenant, as records name it, and digest of the graph. No tenant's counts reach another."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], dict[Way, int]] = OrderedDict()

    def knows(self, owner: str, graph: str) -> bool:
        """Whether the graph's counts are here already."""
        return (owner, graph) in self._counts

    def put(self, owner: str, graph: str, counts: Mapping[Way, int]) -> None:
        """Take over what was counted earlier, unless counts are here already."""
        self._counts.setdefault((owner, graph), dict(counts))
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    def add(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        """Add how often a run went each way, where the graph's counts are here.

        Those that were forgotten meanwhile are to be read as a whole when they are asked for again.
        """
        counts = self._counts.get((owner, graph))
        if counts is not None:
            for way, times in ways.items():
                counts[way] = counts.get(way, 0) + times

    def after(self, owner: str, graph: str, node: str) -> Mapping[str, int]:
        """How often runs went on from ``node``, by where they went."""
        counts = self._counts.get((owner, graph))
        if counts is None:
            return {}
        self._counts.move_to_end((owner, graph))
        return {target: count for (source, target), count in counts.items() if source == node}
