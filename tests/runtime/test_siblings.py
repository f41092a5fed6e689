"""Branches together: their sums are kept up with every change, and are those that adding up anew gives."""

from hypothesis import given
from hypothesis import strategies as st

from agentkv.chain import Chain, Segment
from agentkv.graph.path import BranchId
from agentkv.runtime.siblings import Branch, Branching, BranchStatus
from agentkv.runtime.spent import NOTHING, Spent
from agentkv.runtime.state import ChainState, State

LABELS = ("a", "b", "c")
TRUNK = {"agent": 10}
statuses: st.SearchStrategy[BranchStatus] = st.sampled_from(["running", "done", "failed", "cancelled"])


def branch(label: str, status: BranchStatus, tokens: int, spent: Spent, node: str = "ways") -> Branch:
    chain = Chain.empty().extend(Segment(kind="user", label="", ids=tuple(range(10 + tokens))))
    state = State(chains={"agent": ChainState(chain=chain)}, spent=spent)
    return Branch(id=BranchId(node, 1, label), state=state, status=status)


def begun() -> Branching:
    return Branching(
        node="ways", visit=1, branches=tuple(branch(x, "running", 1, NOTHING) for x in LABELS), trunk=TRUNK
    )


changes = st.builds(
    branch,
    st.sampled_from([*LABELS, "judge"]),
    statuses,
    st.integers(0, 5),
    st.builds(Spent, steps=st.integers(0, 3), calls=st.integers(0, 3), tokens=st.integers(0, 9)),
)


@given(st.lists(changes, max_size=8))
def test_the_sums_are_those_of_what_is_there(made: list[Branch]) -> None:
    now = begun()
    for each in made:
        now = now.having(each)
        assert now.get(each.id) is each
    anew = Branching(node="ways", visit=1, branches=now.branches, trunk=TRUNK, side=now.side)
    assert (now.spent, now.held, now.running) == (anew.spent, anew.held, anew.running)
    kept = [one for one in now.every if one.status in ("running", "done")]
    assert now.held == sum(one.state.held - 10 for one in kept)
    assert now.running == sum(one.status == "running" for one in now.branches)
    assert now.spent.tokens == sum(one.state.spent.tokens for one in now.every)


def test_a_label_of_another_fork_is_no_branch_of_this_one() -> None:
    now = begun()
    assert now.get(BranchId("ways", 2, "a")) is None
    assert now.get(BranchId("other", 1, "a")) is None
    aside = branch("a", "running", 1, NOTHING, node="best")
    assert now.having(aside).get(aside.id) is aside
    assert now.having(aside).named("a") is now.branches[0]
