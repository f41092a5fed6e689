"""Sessions known as hashes: what is equal in the trace is equal in ids, and nothing else is."""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.bench import Benchmark, DelayScaling, Hashes, choose_sessions, find_modes, run_benchmark
from agentkv.bench.block_text import BlockText
from agentkv.common_prefix import common_prefix
from agentkv.engines.sim import SimEngine
from agentkv.errors import SetupError
from agentkv.trace import HashRequest, HashSession

BLOCK = 8


@st.composite
def histories(draw: st.DrawFn) -> HashSession:
    """A session that mostly goes on from its last prompt, and now and then tells it otherwise from some block on."""
    fresh = iter(range(10_000))
    hashes: list[int] = []
    requests = []
    for _ in range(draw(st.integers(1, 6))):
        if hashes and draw(st.integers(0, 3)) == 0:
            hashes = hashes[: draw(st.integers(0, len(hashes)))]
        hashes = [*hashes, *(next(fresh) for _ in range(draw(st.integers(0, 3))))]
        part = draw(st.integers(0 if hashes else 1, BLOCK - 1))
        output = draw(st.integers(1, 2 * BLOCK))
        prompt = len(hashes) * BLOCK + part
        requests.append(HashRequest(at=0.0, prompt=prompt, output=output, hashes=tuple(hashes)))
    return HashSession(id="s", block_size=BLOCK, requests=tuple(requests), scope="s")


@given(histories())
def test_prompts_share_what_their_hashes_share(session: HashSession) -> None:
    text = BlockText(1, session)
    prompts = [text.prompt(number) for number in range(len(session.requests))]
    for one, mine in zip(session.requests, prompts, strict=True):
        assert len(mine) == one.prompt
        for other, its in zip(session.requests, prompts, strict=True):
            same = common_prefix(one.hashes, other.hashes) * BLOCK
            assert mine[:same] == its[:same]
            if same < min(len(one.hashes), len(other.hashes)) * BLOCK:
                assert mine[same : same + BLOCK] != its[same : same + BLOCK]


@given(histories())
def test_a_prompt_that_goes_on_holds_the_answer(session: HashSession) -> None:
    text = BlockText(1, session)
    for number, (one, other) in enumerate(zip(session.requests, session.requests[1:], strict=False)):
        chain = [*text.prompt(number), *text.answer(number)]
        assert len(chain) == one.prompt + one.output
        if other.hashes[: len(one.hashes)] == one.hashes and other.prompt > one.prompt:
            assert common_prefix(chain, text.prompt(number + 1)) >= min(len(chain), other.prompt)


@given(histories())
def test_waits_make_one_prompt_of_the_other(session: HashSession) -> None:
    hashes = Hashes(sessions=(session,), cut=0, scaling=DelayScaling(), start_spread=None, seed=1, source={})
    (plan,) = hashes.plans
    chain = [i for segment in plan.prompt() for i in segment.ids]
    longest = 0
    for number in range(len(session.requests)):
        assert chain == BlockText(1, session).prompt(number)
        output = plan.output(number)
        assert output.forced is not None
        assert output.tokens == len(output.forced) == session.requests[number].output
        chain = [*chain, *output.forced]
        longest = max(longest, len(chain))
        if number < len(plan.waits):
            (arrival,) = plan.arrivals(number)
            chain = [*chain[: arrival.keep], *arrival.ids]
    assert hashes.longest == plan.end_tokens == longest


def test_the_seed_decides_the_ids_and_a_hash_means_nothing_elsewhere() -> None:
    def prompt(seed: int, scope: str) -> list[int]:
        request = HashRequest(at=0.0, prompt=16, output=1, hashes=(1, 2))
        return BlockText(seed, HashSession(id="s", block_size=8, requests=(request,), scope=scope)).prompt(0)

    assert prompt(1, "a") == prompt(1, "a")
    assert prompt(1, "a") != prompt(2, "a")
    assert prompt(1, "a")[:8] != prompt(1, "b")[:8]


def request(hashes: list[int], at: float = 0.0, **more: Any) -> dict[str, Any]:
    known = {"t": at, "in": len(hashes) * 64 + 20, "out": 30, "hash_ids": hashes, "input_types": ["tool_result"]}
    return {**known, "api_time": 2.0, "think_time": 3.0, **more}


def growing(count: int, first: int = 0, step: int = 2, start: int = 4) -> list[dict[str, Any]]:
    return [request(list(range(first, first + start + step * n)), at=5.0 * n) for n in range(count)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two sessions, one of which has two sub-agents that begin alike."""
    inner = [
        {
            "t": 7.0 + n,
            "type": "subagent",
            "agent_id": f"a{n}",
            "duration_ms": 4000 - n * 500,
            "requests": [request([90, 91, 92 + 10 * n]), request([90, 91, 92 + 10 * n, 93 + 10 * n])],
        }
        for n in range(2)
    ]
    main = growing(4)
    # The last prompt tells the conversation otherwise from its third block on.
    main.append(request([0, 1, 2, 80, 81], at=30.0, input_types=["text"]))
    for name, requests in (("one", [*main, *inner]), ("two", growing(3, first=500))):
        content = {"id": name, "block_size": 64, "tool_tokens": 100, "system_tokens": 50, "requests": requests}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def workload(folder: Path, *, limit: int | None = None, longest: int | None = None, **more: Any) -> Hashes:
    sessions, cut = choose_sessions(sorted(folder.iterdir()), limit=limit, longest=longest, seed=0)
    return Hashes(
        sessions=sessions, cut=cut, source={}, **{"scaling": DelayScaling(), "start_spread": 4.0, "seed": 0, **more}
    )


def run(work: Hashes, modes: str = "stock,bidirectional", **more: Any) -> dict[str, Any]:
    plan = Benchmark(engine="sim", workload=work, modes=find_modes(modes), **{"floor_samples": 2, "warm_up": 0, **more})
    return anyio.run(run_benchmark, plan, lambda _: None)


def test_a_session_runs_with_its_sub_agents(trace: Path) -> None:
    work = workload(trace)
    result = run(work, pool=1.0)
    assert result["workload"]["sessions"] == result["workload"]["sub_agents"] == 2
    for mode in result["modes"].values():
        assert mode["task_s"]["n"] == 4
        assert mode["tokens"]["generated"] == 30 * (5 + 3 + 2 + 2)
        assert mode["tokens"]["prompt"] == sum(r.prompt for s in work.sessions for r in s.requests)
    assert result["modes"]["bidirectional"]["ttft_after_tool_ms"]["n"] == 3 + 2 + 1 + 1


def test_what_the_trace_shares_is_what_the_engine_finds(trace: Path) -> None:
    # Each prompt that goes on from the one before is found up to the last block that its answer fills.
    stock = run(workload(trace, limit=None), "stock")["modes"]["stock"]
    work = workload(trace)
    found = 0
    for session in work.sessions:
        for before, after in zip(session.requests, session.requests[1:], strict=False):
            shared = common_prefix(before.hashes, after.hashes) * 64
            goes_on = shared == len(before.hashes) * 64
            found += (before.prompt + before.output - 1 if goes_on else shared) // 32 * 32
    # Two blocks of 64 that the second sub-agent begins with.
    assert stock["tokens"]["cached"] == found + 128


def test_sub_agents_start_behind_the_answer_that_they_did(trace: Path) -> None:
    plans = {plan.text.session.id: plan for plan in workload(trace).plans}
    first, second = plans["one/a0"], plans["one/a1"]
    # Logged at 7 s after 4 s of work: started at 3 s, which is 1 s behind the first answer.
    assert (first.spawned_by, first.starts_at) == ((plans["one"].number, 0), 1.0)
    assert (second.spawned_by, second.starts_at) == ((plans["one"].number, 0), 2.5)
    assert workload(trace, scaling=DelayScaling(cap=2.0)).plans[second.number].starts_at == 2.0
    assert plans["one"].spawned_by is None
    assert first.group == second.group
    assert first.anchor_tokens == 128
    assert plans["one"].anchor_tokens == 150


def test_a_sub_agent_waits_for_the_answer_behind_which_it_starts(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: dict[str, tuple[float, float]] = {}
    generate = SimEngine.generate

    async def timed(self: SimEngine, request: Any) -> Any:
        began = self.clock.now()
        async with aclosing(generate(self, request)) as deltas:
            async for delta in deltas:
                # Noted before it is handed on: nobody comes back for what is behind the last one.
                times[request.request_id] = (began, delta.at)
                yield delta

    monkeypatch.setattr(SimEngine, "generate", timed)
    work = workload(trace)
    run(work, "stock", floor_samples=0)
    numbers = {plan.text.session.id: plan.number for plan in work.plans}
    answered = times[f"bench/1/{numbers['one']}/0"][1]
    assert times[f"bench/1/{numbers['one/a0']}/0"][0] == pytest.approx(answered + 1.0)
    assert times[f"bench/1/{numbers['one/a1']}/0"][0] == pytest.approx(answered + 2.5)


def test_the_working_set_counts_what_is_shared_once(trace: Path) -> None:
    ends = {"one": 10 * 64 + 50, "two": 8 * 64 + 50, "one/a0": 4 * 64 + 50, "one/a1": 4 * 64 + 50}
    assert {plan.text.session.id: plan.end_tokens for plan in workload(trace).plans} == ends
    for block in (16, 32, 64, 128):
        assert workload(trace).blocks(block) == sum(-(-end // block) for end in ends.values()) - 128 // block


def test_long_sessions_are_cut_and_sub_agents_of_the_rest_left_out(trace: Path) -> None:
    work = workload(trace, longest=6 * 64 + 50)
    assert {session.id: len(session.requests) for session in work.sessions} == {
        "one": 2,
        "one/a0": 2,
        "one/a1": 2,
        "two": 2,
    }
    assert work.to_json()["cut_sessions"] == 2
    with pytest.raises(SetupError, match="within --max-tokens"):
        workload(trace, longest=50)


def test_a_limit_counts_sessions_and_keeps_their_sub_agents(trace: Path) -> None:
    assert sorted(len(workload(trace, limit=1, longest=n).sessions) for n in (None, 10_000)) in ([1, 1], [3, 3])


def test_it_is_repeatable(trace: Path) -> None:
    first, second = (run(workload(trace), pool=0.6) for _ in range(2))
    for each in (first, second):
        del each["engine"]["engine_id"]
    assert first == second


def test_a_log_of_requests_is_as_many_agents(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 1000 + 500 * n, "input_length": 1100, "output_length": 8, "hash_ids": [0, 10 + n % 2, 20 + n]}
        for n in range(4)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    work = workload(tmp_path, start_spread=None)
    assert [plan.starts_at for plan in work.plans] == [0.0, 0.5, 1.0, 1.5]
    assert {plan.anchor_tokens for plan in work.plans} == {512}
    assert work.blocks(32) == 35 * 4 - 16 - 2 * 32
    result = run(work, "stock")
    assert result["floor_ms"]["n"] == 0
    # The second pair finds the first two blocks of the first, the second request the very first block.
    assert result["modes"]["stock"]["tokens"]["cached"] == 512 + 2 * 1024
    assert len(workload(tmp_path, start_spread=None, limit=3).plans) == 3


def test_one_trace_twice_is_refused(trace: Path) -> None:
    (trace / "again.json").write_text((trace / "two.json").read_text())
    with pytest.raises(SetupError, match="two sessions have one id"):
        workload(trace)
