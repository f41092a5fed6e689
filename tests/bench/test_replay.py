"""Replays of recorded conversations on the simulator: the same words in every mode, waits that say what they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentkv.bench import (
    Benchmark,
    Delay,
    DelayScaling,
    Replay,
    Teller,
    WaitingTimes,
    choose_stories,
    find_modes,
    read_think_times,
    run_benchmark,
    table_lines,
)
from agentkv.chain import ChatFormat
from agentkv.engines.sim import MODEL_PATH, SimEngine
from agentkv.errors import EngineError, SetupError

TEXT = "the order was shipped on friday and will arrive by the end of next week "


def turns(number: int, calls: int) -> list[dict[str, Any]]:
    """A user, ``calls`` tool calls, an answer, and another question with its answer."""
    found: list[dict[str, Any]] = [{"role": "user", "content": f"Where is order {number}? " + TEXT * 8}]
    for at in range(calls):
        call = {"id": f"c{at}", "name": "find", "arguments": {"order": number + at}}
        found += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": f"{number}/{at}: " + TEXT * 6},
        ]
        if number % 2:
            found[-1]["latency_s"] = 0.5 + at
    question = {"role": "user", "content": f"And {number + 1}?"}
    return [*found, {"role": "assistant", "content": "Shipped."}, question, {"role": "assistant", "content": "Too."}]


def write(path: Path, numbers: range, *, system: str, calls: int = 3) -> Path:
    tool = {"type": "function", "function": {"name": "find", "description": "Find.", "parameters": {"type": "object"}}}
    lines = [
        {"id": f"{path.stem}/{number}", "system": system, "tools": [tool], "turns": turns(number, calls)}
        for number in numbers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat.load(MODEL_PATH)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("traces")
    return [
        write(folder / "shop.jsonl", range(6), system="You help customers. " + TEXT * 10),
        write(folder / "desk.jsonl", range(50, 52), system="You repair code. " + TEXT * 4, calls=6),
    ]


Make = Callable[..., Replay]


@pytest.fixture(scope="module")
def make(chat: ChatFormat, files: list[Path]) -> Make:
    def build(
        *, chains: int | None = 6, seed: int = 0, tokens: tuple[int, int | None] = (0, None), times: Any = None
    ) -> Replay:
        return Replay(
            stories=choose_stories(files, Teller(chat).tell, chains=chains, tokens=tokens, seed=seed),
            times=times or WaitingTimes(tool=Delay("uniform", 1, 3), user=Delay("uniform", 2, 4)),
            start_spread=2.0,
            seed=seed,
            source={"trace": [file.name for file in files]},
        )

    return build


def run(workload: Replay, modes: str, **more: Any) -> dict[str, Any]:
    plan = Benchmark(
        engine="sim", workload=workload, modes=find_modes(modes), **{"floor_samples": 0, "warm_up": 0, **more}
    )
    return anyio.run(run_benchmark, plan, lambda _: None)


@pytest.fixture(scope="module")
def result(make: Make) -> dict[str, Any]:
    return run(make(), "stock-off,stock,bidirectional", pool=1.0, floor_samples=3)


def test_every_mode_says_the_recorded_words(make: Make, result: dict[str, Any]) -> None:
    replay = make()
    generated = sum(len(ids) for story in replay.stories for ids in story.outputs)
    for mode in result["modes"].values():
        assert mode["tokens"]["generated"] == generated
        assert mode["tokens"]["prompt"] == result["modes"]["stock"]["tokens"]["prompt"]
        assert mode["task_s"]["n"] == 6


def test_only_what_a_tool_brought_counts_as_a_resume(make: Make, result: dict[str, Any]) -> None:
    waits = [wait.source for plan in make().plans for wait in plan.waits]
    for mode in result["modes"].values():
        assert mode["ttft_after_tool_ms"]["n"] == waits.count("tool")
        assert mode["ttft_ms"]["n"] == len(waits) + 6
    assert waits.count("user") == 6


def test_following_prefills_the_conversation_ahead(result: dict[str, Any]) -> None:
    ours = result["modes"]["bidirectional"]
    assert ours["tokens"]["prefetched_used"] > 0
    assert ours["reduction"]["critical"] > result["modes"]["stock"]["reduction"]["critical"]
    assert result["floor_ms"]["n"] == 3


def test_it_is_repeatable_by_its_seed(make: Make) -> None:
    first, second = (run(make(), "stock,bidirectional", pool=0.7) for _ in range(2))
    for each in (first, second):
        del each["engine"]["engine_id"]
    assert first == second
    assert run(make(seed=3), "stock")["modes"]["stock"]["task_s"] != first["modes"]["stock"]["task_s"]


def test_files_take_turns_and_all_are_told_before_one_is_told_again(make: Make) -> None:
    names = [story.id for story in make(chains=10).stories]
    assert [name.partition("/")[0] for name in names[:5]] == ["shop", "desk", "shop", "desk", "shop"]
    assert len(set(names[:8])) == 8
    assert names[8:] == names[:2]
    assert make(chains=10).to_json()["distinct"] == 8
    assert len(make(chains=None).stories) == 8
    assert [story.id for story in make(chains=10, seed=1).stories] != names


def test_lengths_can_be_chosen(make: Make) -> None:
    lengths = sorted(story.tokens for story in make(chains=None).stories)
    assert all(story.tokens >= lengths[-2] for story in make(chains=None, tokens=(lengths[-2], None)).stories)
    assert {story.tokens for story in make(chains=None, tokens=(0, lengths[0])).stories} == {lengths[0]}
    with pytest.raises(SetupError, match="widen --min-tokens and --max-tokens"):
        make(tokens=(0, 5))


def test_waits_are_recorded_transplanted_or_drawn_and_say_so(make: Make, tmp_path: Path) -> None:
    session = {"id": "s", "block_size": 64, "requests": []}
    for at, kind in enumerate(("text", "tool_result", "text")):
        request = {"t": at, "in": 10, "out": 1, "hash_ids": [], "input_types": [kind], "think_time": 7.0}
        session["requests"].append(request)  # type: ignore[attr-defined]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(session))
    made_up = {"tool": Delay("uniform", 1, 3), "user": Delay("uniform", 2, 4)}
    times = WaitingTimes(**made_up, think=read_think_times([path]), scaling=DelayScaling(cap=5))  # type: ignore[arg-type]
    replay = make(chains=None, times=times)
    # Every other conversation has latencies; nobody's thinking was recorded.
    assert replay.origins == {"recorded": 3 * 3 + 6, "transplanted": 3 * 3 + 6 + 8, "drawn": 0}
    assert replay.delays == "15 recorded, 23 transplanted, none above 5 s"
    assert {wait.seconds for plan in replay.plans for wait in plan.waits} <= {0.5, 1.5, 2.5, 3.5, 4.5, 5}
    result = run(replay, "stock")
    assert result["workload"]["delays"] == replay.delays
    assert result["workload"]["delay_origins"]["transplanted"] == 23
    assert any("transplanted" in line for line in table_lines(result))
    assert make(chains=None).origins == {"recorded": 15, "transplanted": 0, "drawn": 23}


def test_results_of_one_turn_are_awaited_side_by_side(chat: ChatFormat, tmp_path: Path) -> None:
    calls = [{"id": name, "name": "find", "arguments": {}} for name in "abc"]
    results = [
        {"role": "tool", "tool_call_id": name, "content": f"{name} found", "latency_s": seconds}
        for name, seconds in zip("abc", (2.0, 1.0, 5.0), strict=True)
    ]
    asked = {"role": "user", "content": "Go."}
    made = {"role": "assistant", "content": "", "tool_calls": calls}
    path = tmp_path / "t.jsonl"
    path.write_text(
        json.dumps({"id": "x", "turns": [asked, made, *results, asked, {"role": "assistant", "content": "Y"}]})
    )
    stories = choose_stories([path], Teller(chat).tell, chains=None, tokens=(0, None), seed=0)
    times = WaitingTimes(tool=Delay("uniform", 1, 1), user=Delay("uniform", 10, 10))
    (plan,) = Replay(stories=stories, times=times, start_spread=0, seed=0, source={}).plans
    assert [arrival.seconds for arrival in plan.arrivals(0)] == [0.0, 2.0, 0.0, 13.0]
    (wait,) = plan.waits
    assert (wait.seconds, wait.source) == (15.0, "user")
    whole = [i for s in plan.prompt() for i in s.ids] + [*stories[0].outputs[0]]
    whole += [i for arrival in plan.arrivals(0) for i in arrival.ids]
    assert whole == stories[0].final_ids()[: len(whole)]


@pytest.mark.parametrize("block", [1, 16, 32])
def test_equal_blocks_count_once(make: Make, block: int) -> None:
    replay = make(chains=10)
    whole = [tuple(story.final_ids()) for story in replay.stories]
    prefixes = {ids[:end] for ids in whole for end in range(block, len(ids) + 1, block)}
    assert replay.blocks(block) == len(prefixes) + sum(len(ids) % block > 0 for ids in whole)
    anchors = {story.prompt[0].ids for story in replay.stories}
    assert len(anchors) == 2
    assert replay.shared_blocks(block) == sum(len(ids) // block for ids in anchors)


def test_an_engine_that_says_something_else_ends_the_replay(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = SimEngine.generate

    def deaf(self: SimEngine, request: Any) -> Any:
        from attrs import evolve

        return generate(self, evolve(request, forced=None))

    monkeypatch.setattr(SimEngine, "generate", deaf)
    with pytest.raises(EngineError, match=r"token 0 is \d+ and not \d+ as forced"):
        run(make(chains=1), "stock")


def test_warming_up_forces_ids_where_the_workload_will(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    generate = SimEngine.generate

    def listening(self: SimEngine, request: Any) -> Any:
        asked.append(request)
        return generate(self, request)

    monkeypatch.setattr(SimEngine, "generate", listening)
    run(make(chains=1), "stock", warm_up=1)
    # A simulated engine is made anew, and warmed up, for each thing that is measured.
    assert {name for each in asked if not (name := each.request_id).startswith("bench/")} == {"warm-up/forced"}
    assert all(request.forced for request in asked)
