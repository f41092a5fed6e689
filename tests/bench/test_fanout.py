"""The fanout workload: its numbers, its prompts, and what branches and joins cost in which mode."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentkv.bench import MODES, SHAPES, Benchmark, FanoutShape, find_modes, run_benchmark
from agentkv.bench.repetition import run_repetition
from agentkv.bench.steady import Steady
from agentkv.engines import Delta, GenerateRequest, open_engine
from agentkv.errors import SetupError

BLOCK = 32
SMALL: dict[str, Any] = {
    **SHAPES["forks"],
    "chains": 2,
    "prompt_tokens": 600,
    "shared_tokens": 200,
    "plan_tokens": 40,
    "branches": 3,
    "branch_tokens": 30,
    "output_tokens": (60, 140),
    "join_tokens": 20,
    "start_spread": 60.0,
    "seed": 1,
}


def shape(**numbers: Any) -> FanoutShape:
    return FanoutShape(**{**SMALL, **numbers})


async def bench(workload: FanoutShape, modes: str = "stock,bidirectional", **other: Any) -> dict[str, Any]:
    without = other.pop("without", ())
    options = {"engine": "sim", "floor_samples": 0, "warm_up": 0, **other}
    plan = Benchmark(workload=workload, modes=find_modes(modes, without=without), **options)
    return await run_benchmark(plan, lambda _: None)


async def prompts(workload: FanoutShape, mode: str) -> dict[str, list[int]]:
    """What each generation was sent, by agent and number."""
    config, sent = MODES[mode], {}
    options = {"block_size": BLOCK}
    async with open_engine("sim", options=options, kv=config.engine_kv(), script=lambda _: ()) as engine:
        generate = engine.generate

        def noted(request: GenerateRequest) -> AsyncIterator[Delta]:
            sent[request.tag.removeprefix("salt/")] = request.token_ids
            return generate(request)

        engine.generate = noted  # type: ignore[method-assign]
        await run_repetition(engine, workload, config, "salt", lambda _: None)
    return sent


def test_lengths_by_hand() -> None:
    one = shape(chains=1, output_tokens=(100, 100))
    (plan,) = one.plans
    # trunk 600 + 40; a branch 30 + 100 behind it; a join of three times a label of 4 and 100; 20 behind that.
    assert [branch.end_tokens for branch in plan.branches(0)] == [770, 770, 770]
    assert (plan.end_tokens, one.longest) == (640 + 312 + 20, 972)
    assert one.to_json()["new_tokens"] == {"start": 600, "branch": 90, "join": 312}
    # 31 blocks of the agent's chain; a branch holds 25 of which 20 are the trunk's.
    assert one.blocks(BLOCK) == 31 + 3 * 5


def test_connected_sub_agents_read_all_before_them() -> None:
    (plan,) = shape(chains=1, output_tokens=(100, 100), apart=True, connected=True).plans
    assert [branch.quoted for branch in plan.branches(0)] == [(0,), (0, 2), (0, 2, 3)]
    assert [branch.new_tokens for branch in plan.branches(0)] == [74, 178, 282]


@pytest.mark.parametrize("numbers", [{}, {"connected": True}, {"apart": True}, {"apart": True, "connected": True}])
async def test_prompts_are_the_same_in_every_mode_and_are_what_was_said(numbers: dict[str, bool]) -> None:
    workload = shape(chains=1, **numbers)
    stock, ours = [await prompts(workload, mode) for mode in ("stock", "bidirectional")]
    assert stock == ours
    (plan,) = workload.plans
    said = {number: list(plan.output(number).forced or ()) for number in (0, 1)}
    branches = plan.branches(0)
    said |= {branch.number: list(branch.output.forced or ()) for branch in branches}
    trunk = stock["0/0"] + said[0]
    assert len(stock["0/0"]) == 600
    for branch in branches:
        own = [i for segment in branch.prompt() for i in segment.ids]
        read = [i for each in branch.arrivals() for i in (*each.ids, *said[each.quotes or 0])]
        assert stock[f"0/{branch.number}"] == ([] if branch.apart else trunk) + own + read
    joined = [i for each in plan.arrivals(0) for i in (*each.ids, *said[each.quotes or 0])]
    assert stock["0/1"] == trunk + joined


async def test_branches_compute_their_own_and_the_join_what_came_last() -> None:
    workload = shape()
    new, found = workload.to_json()["new_tokens"], await bench(workload)
    for mode in found["modes"].values():
        assert mode["reconciliation"]["agrees"] is True
        assert mode["tokens_by_source"]["branch"]["computed"] <= new["branch"] + 6 * BLOCK
        assert (mode["ttft_branch_ms"]["n"], mode["ttft_join_ms"]["n"], mode["task_s"]["n"]) == (6, 2, 2)
    stock, ours = (found["modes"][name]["tokens_by_source"]["join"]["computed"] for name in ("stock", "bidirectional"))
    assert stock >= new["join"]
    assert ours <= 0.6 * stock
    assert found["ratios"]["bidirectional/stock"]["ttft_join_p50"] <= 0.6


async def test_each_of_five_connected_agents_reads_ahead() -> None:
    kvcomm = FanoutShape(**{**SHAPES["kvcomm"], "chains": 1}, seed=0)
    found = await bench(kvcomm, engine="sim:h200")
    stock, ours = found["modes"]["stock"], found["modes"]["bidirectional"]
    ahead = [each["ttft_ms"]["p50"] for each in ours["rounds"] if each["source"] == "branch"]
    plain = [each["ttft_ms"]["p50"] for each in stock["rounds"] if each["source"] == "branch"]
    assert len(ahead) == 4
    assert plain == sorted(plain)
    assert max(ahead) <= 1.1 * min(ahead)
    assert ahead[-1] <= 0.4 * plain[-1]
    assert ours["ttft_join_ms"]["p50"] <= 0.5 * stock["ttft_join_ms"]["p50"]
    assert stock["tokens"]["prompt"] == ours["tokens"]["prompt"]


async def test_without_the_follower_nothing_is_gained() -> None:
    found = await bench(shape(), without=("follow", "leases"))
    stock, without = found["modes"].values()
    assert without["tokens_by_source"] == stock["tokens_by_source"]
    assert without["ttft_join_ms"] == stock["ttft_join_ms"]


async def test_agents_that_do_not_fit_together_wait_with_their_branches() -> None:
    found = await bench(shape(chains=4, start_spread=0.0), "stock,stock+cap,bidirectional", pool=0.5)
    ours = found["modes"]["bidirectional"]
    assert ours["policy_records"]["admission.queue"] > 0
    assert (ours["recomputed_after_eviction"], ours["preemptions"]) == (0, 0)
    assert found["modes"]["stock"]["recomputed_after_eviction"] > 0
    # A limit of the client counts agents, not branches, and is judged by what there is to judge it by.
    assert found["modes"]["stock+cap"]["task_s"]["n"] == 4
    assert {trial["of"] for trial in found["modes"]["stock+cap"]["cap_trials"]} == {"ttft_join_ms"}


async def test_a_steady_load_of_them_shares_no_block_between_rounds() -> None:
    workload, config = shape(chains=1, shared_tokens=0, branch_tokens=100, start_spread=0.0, apart=True), MODES["stock"]
    async with open_engine("sim", options={"block_size": BLOCK}, script=lambda r: tuple(r.forced or ())) as engine:
        found = await run_repetition(
            engine, workload, config, "salt", lambda _: None, Steady(agents=1, duration=120.0, settle=0.0)
        )
    assert len(found.tasks) >= 2
    assert all(turn.cached == 0 for turn in found.turns if turn.source != "join")


async def test_a_floor_that_cannot_be_is_said_to_be_none() -> None:
    lines: list[str] = []
    plan = Benchmark(
        workload=shape(chains=1), modes=find_modes("bidirectional"), engine="sim", floor_samples=2, warm_up=0
    )
    await run_benchmark(plan, lines.append)
    assert [line for line in lines if line.startswith("floor")] == ["floor: none, as no agent waits for a tool"]


async def test_there_is_no_frontier_without_tools() -> None:
    with pytest.raises(SetupError, match="no agent of this workload waits for a tool"):
        await bench(shape(), duration=300.0, frontier=(2,))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"branches": 0}, "branches=0 must be at least 1"),
        ({"output_tokens": (5, 4)}, "output_tokens=5:4 must be LO:HI"),
        ({"shared_tokens": 600}, "shared_tokens=600 must be below prompt_tokens=600"),
    ],
)
def test_contradictions_are_refused(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        shape(**numbers)
