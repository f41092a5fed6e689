"""The branches of a fork or spawn that a run is at, and what they come to together."""

from collections.abc import Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Literal

from attrs import evolve, field, frozen

from agentkv.graph.path import BranchId
from agentkv.runtime.spent import NOTHING, Spent

if TYPE_CHECKING:
    from agentkv.runtime.state import State

__all__ = ("Branch", "BranchStatus", "Branching")

BranchStatus = Literal["running", "done", "adopted", "failed", "cancelled"]


@frozen(kw_only=True)
class Branch:
    """One branch of a fork or spawn, or a join's judge: a run of its own within the run.

    ``text`` is its output once it is done, why it failed once it has.
    """

    id: BranchId
    state: "State"
    status: BranchStatus = "running"
    text: str = ""


@frozen(kw_only=True)
class Branching:
    """The fork or spawn that a run is at: its branches in declared order, and those that ``ended`` as they came.

    ``trunk``: tokens of the chains that they begin with, by agent; none of sub-agents. ``late``: the join has waited
    for its timeout. ``side`` is the join's judge, or what sums the branches up. ``followed`` characters of outputs are
    in the latest tip. Change branches by ``having`` alone: it keeps up the sums over all of them.
    """

    node: str
    visit: int
    branches: tuple[Branch, ...]
    trunk: Mapping[str, int] = field(factory=dict)
    ended: tuple[str, ...] = ()
    late: bool = False
    side: Branch | None = None
    followed: int = 0
    _sums: "_Sums" = field(alias="sums")

    @_sums.default
    def _summed(self) -> "_Sums":
        sums = _Sums(places={branch.id.label: at for at, branch in enumerate(self.branches)})
        return reduce(partial(_Sums.plus, trunk=self.trunk), self.every, sums)

    @property
    def every(self) -> tuple[Branch, ...]:
        """The branches, and the one beside them."""
        return self.branches if self.side is None else (*self.branches, self.side)

    @property
    def running(self) -> int:
        """How many branches have not ended, that beside them left out."""
        return self._sums.running - (self.side is not None and self.side.status == "running")

    @property
    def spent(self) -> Spent:
        """What all of them have spent."""
        return self._sums.spent

    @property
    def held(self) -> int:
        """Tokens of their chains, without what they share with the trunk, of those that may still be needed."""
        return self._sums.held

    def get(self, wanted: BranchId) -> Branch | None:
        """The branch of that id, or None."""
        at = self._sums.places.get(wanted.label)
        found = self.side if at is None or self.branches[at].id != wanted else self.branches[at]
        return found if found is not None and found.id == wanted else None

    def named(self, label: str) -> Branch:
        """The branch with that label, of which there is one."""
        return self.branches[self._sums.places[label]]

    def having(self, branch: Branch) -> "Branching":
        """With ``branch`` as it is now; one that is not among the branches is beside them."""
        before, at = self.get(branch.id), self._sums.places.get(branch.id.label)
        sums = self._sums if before is None else self._sums.minus(before, self.trunk)
        sums = sums.plus(branch, self.trunk)
        if at is None or self.branches[at].id != branch.id:
            return evolve(self, side=branch, sums=sums)
        return evolve(self, branches=(*self.branches[:at], branch, *self.branches[at + 1 :]), sums=sums)


@frozen(kw_only=True)
class _Sums:
    """Kept up with each change: to add up a thousand branches at each event of one takes a million steps."""

    places: Mapping[str, int]
    running: int = 0
    spent: Spent = NOTHING
    held: int = 0

    def plus(self, branch: Branch, trunk: Mapping[str, int]) -> "_Sums":
        return evolve(
            self,
            running=self.running + (branch.status == "running"),
            spent=self.spent.plus(branch.state.all_spent),
            held=self.held + _held(branch, trunk),
        )

    def minus(self, branch: Branch, trunk: Mapping[str, int]) -> "_Sums":
        return evolve(
            self,
            running=self.running - (branch.status == "running"),
            spent=self.spent.minus(branch.state.all_spent),
            held=self.held - _held(branch, trunk),
        )


def _held(branch: Branch, trunk: Mapping[str, int]) -> int:
    if branch.status not in ("running", "done"):
        return 0
    return branch.state.held - sum(trunk.get(name, 0) for name in branch.state.chains)
