"""Each kind of recording as prompts."""

from typing import Any

from agentkv.chain import Message
from agentkv.report import Early, prompts_of_journal, prompts_of_sessions, prompts_of_trajectories
from agentkv.tools import ToolCall
from agentkv.trace import HashRequest, HashSession, Trajectory


def asked(asked_at: float, agent: str = "main") -> dict[str, Any]:
    return {"type": "generation_asked", "agent": agent, "asked_at": asked_at, "at": asked_at + 0.5}


def finished(prompt: int, cached: int, first_at: float, at: float) -> dict[str, Any]:
    return {
        "type": "generation_finished",
        "prompt": prompt,
        "cached": cached,
        "token_ids": [7, 8, 9],
        "first_at": first_at,
        "at": at,
    }


def called(index: int, start: float, end: float, text: str = "") -> list[dict[str, Any]]:
    where = {"node": "act", "index": index}
    call = {"id": "c", "name": "look", "arguments": f'{{"at": {index}}}'}
    return [
        {"type": "call_started", "at": start, "call": call, **where},
        {"type": "call_finished", "at": end, "text": text, **where},
    ]


def test_a_journal_gives_each_finished_generation_with_the_longest_tool_before_it() -> None:
    events = [
        {"type": "run_started", "at": 0.0},
        asked(1.0),
        finished(100, 64, 2.0, 3.0),
        *called(0, 3.0, 4.0),
        *called(1, 3.0, 8.0),
        asked(8.0),
        finished(150, 128, 8.25, 9.0),
        asked(9.0, agent="other"),
        finished(50, 0, 9.5, 10.0),
        asked(11.0),
        {"type": "run_cancelled", "at": 12.0},
    ]
    first, second, third = prompts_of_journal({"r": events})
    assert (first.chain, first.tokens, first.output, first.reused) == ("r main", 100, 3, 64)
    assert (first.at, first.end, first.wait, first.tool) == (1.0, 3.0, 1.0, None)
    # A resume continues the prompt and the answer before it, whatever the engine had kept of them.
    assert (second.reused, second.wait, second.tool) == (103, 0.25, 5.0)
    assert (third.chain, third.reused, third.tool) == ("r other", 0, None)


def begun(mode: str) -> dict[str, Any]:
    return {"type": "run_started", "at": 0.0, "mode": mode, "block_size": 32}


def resumed(known: int, *results: dict[str, Any], prefilled: int = 0, mode: str = "prefix") -> Early | None:
    """Of a prompt of 300 tokens behind one of 97 and its answer of 3."""
    resume = {**finished(300, 96 + prefilled, 9.5, 10.0), "prefilled": prefilled}
    events = [begun(mode), asked(0.0), finished(97, 0, 0.5, 1.0), *results, {**asked(9.0), "known": known}, resume]
    first, second = prompts_of_journal({"r": events})
    assert first.early == Early(followed=mode == "auto")
    return second.early


def test_what_was_known_before_a_resume_is_counted_in_whole_blocks() -> None:
    one = called(0, 1.0, 9.0, "r" * 100)
    assert resumed(127, *one) == Early(behind=201)
    assert resumed(128, *one, mode="auto") == Early(behind=201, certain=32, followed=True)
    assert resumed(100, *one, prefilled=64) == Early(behind=201, certain=64)


def test_results_count_that_came_in_time_and_before_one_that_is_missing() -> None:
    def two(first: float, second: float) -> list[dict[str, Any]]:
        return [*called(0, 1.0, first, "r" * 100), *called(1, 1.0, second, "s" * 100)]

    assert resumed(200, *two(5.0, 9.0)) == Early(behind=201, certain=96)
    assert resumed(200, *two(8.96, 9.0)) == Early(behind=201, certain=0)
    assert resumed(200, *two(9.0, 9.0)) == Early(behind=201, certain=0)


def test_calls_that_give_the_same_again_can_be_guessed() -> None:
    def step(at: float, prompt: int, text: str) -> list[dict[str, Any]]:
        return [*called(0, at, at + 1, text), asked(at + 1), finished(prompt, 0, at + 1.5, at + 1.7)]

    events = [begun("auto"), asked(0.0), finished(97, 0, 0.5, 1.0)]
    events += [*step(2.0, 300, "same"), *step(4.0, 500, "same"), *step(6.0, 700, "other")]
    found = [prompt.early.guessable for prompt in prompts_of_journal({"r": events}) if prompt.early is not None]
    # 302 tokens have KV, in 9 whole blocks; 499 can have it, in 15.
    assert found == [0, 0, (15 - 9) * 32, 0]


def test_what_stands_behind_branches_could_be_known_while_they_ran() -> None:
    def on(node: str, label: str, event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "branch": [{"node": node, "visit": 1, "label": label}]}

    events = [
        asked(0.0),
        finished(97, 0, 0.5, 1.0),
        on("options", "cheap", asked(1.0)),
        on("options", "safe", asked(1.0)),
        on("options", "safe", finished(120, 96, 2.0, 3.0)),
        on("options", "cheap", finished(110, 96, 2.0, 4.0)),
        on("best", "judge", {**asked(4.0), "known": 160}),
        on("best", "judge", finished(200, 96, 4.5, 5.0)),
        {**asked(5.0), "known": 123},
        finished(130, 112, 5.5, 6.0),
    ]
    trunk, cheap, safe, judge, last = (prompt.early for prompt in prompts_of_journal({"r": events}))
    assert trunk == cheap == safe == Early()
    assert judge == Early(behind=104, certain=64)
    assert last == Early(behind=18)


def test_of_a_conversation_the_times_of_tools_tell_what_was_there_early() -> None:
    calls = (ToolCall("a", "look", '{"at": 1}'), ToolCall("b", "look", '{"at": 2}'))
    messages = (
        Message(role="user", content="u" * 64),
        Message(role="assistant", content="", calls=calls),
        Message(role="tool", content="r" * 640, name="look", call_id="a"),
        Message(role="tool", content="s" * 640, name="look", call_id="b"),
        Message(role="assistant", content="done"),
    )

    def early(*latencies: float | None) -> Early | None:
        recorded = Trajectory(
            id="x", place="", system="", tools=(), messages=messages, latencies=(None, None, *latencies, None)
        )
        return prompts_of_trajectories([recorded], block_size=16)[1].early

    found = early(1.0, 3.0)
    assert found is not None
    assert 640 // 4 - 16 <= found.certain <= 640 // 4 + 16
    assert not found.followed
    late = early(3.0, 1.0)
    assert late is not None
    assert late.certain == 0
    assert early(1.0, None) is None


def test_branches_of_a_run_are_chains_of_their_own() -> None:
    def on(label: str, event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "branch": [{"node": "options", "visit": 1, "label": label}]}

    events = [
        asked(0.0),
        finished(100, 0, 0.5, 1.0),
        on("cheap", asked(1.0)),
        on("safe", asked(1.0)),
        on("safe", finished(120, 96, 2.0, 3.0)),
        on("cheap", finished(110, 64, 2.0, 4.0)),
    ]
    trunk, cheap, safe = prompts_of_journal({"r": events})
    assert (trunk.fork, trunk.tokens) == (None, 100)
    assert len({trunk.chain, cheap.chain, safe.chain}) == 3
    assert cheap.fork == safe.fork is not None
    assert {(cheap.tokens, cheap.reused, cheap.end), (safe.tokens, safe.reused, safe.end)} == {
        (110, 64, 4.0),
        (120, 96, 3.0),
    }


def test_prompts_of_several_runs_come_in_the_order_of_their_asking() -> None:
    runs = {"a": [asked(5.0), finished(9, 0, 6.0, 7.0)], "b": [asked(1.0), finished(9, 0, 2.0, 3.0)]}
    assert [prompt.chain for prompt in prompts_of_journal(runs)] == ["b main", "a main"]


def test_a_conversation_gives_a_prompt_for_each_turn_of_the_assistant() -> None:
    messages = (
        Message(role="user", content="u" * 64),
        Message(role="assistant", content="a" * 2, calls=(ToolCall("c", "look", "{}"),)),
        Message(role="tool", content="r" * 128, name="look", call_id="c"),
        Message(role="assistant", content="b" * 4),
    )
    trajectory = Trajectory(
        id="x", place="", system="s" * 64, tools=(), messages=messages, latencies=(None, None, 2.0, None)
    )
    first, second = prompts_of_trajectories([trajectory], block_size=16)
    assert (first.tokens, first.output, first.tool) == ((64 + 6 + 64) // 4, (2 + len("look{}")) // 4, None)
    assert second.tool == 2.0
    assert first.keys is not None
    assert second.keys is not None
    assert (len(first.keys), len(second.keys)) == (first.tokens // 16, second.tokens // 16)
    assert second.keys[: len(first.keys)] == first.keys
    assert len(set(second.keys)) == len(second.keys)


def test_a_key_stands_for_a_block_and_all_before_it() -> None:
    def keys(system: str) -> tuple[int, ...]:
        messages = (Message(role="user", content="u" * 200), Message(role="assistant", content="a"))
        trajectory = Trajectory(id="x", place="", system=system, tools=(), messages=messages, latencies=(None, None))
        (prompt,) = prompts_of_trajectories([trajectory], block_size=16)
        assert prompt.keys is not None
        return tuple(prompt.keys)

    assert not set(keys("s" * 64)) & set(keys("t" * 64))
    assert keys("s" * 64) == keys("s" * 64)


def test_of_hashed_blocks_those_that_are_not_full_are_left_out() -> None:
    request = HashRequest(at=1.0, prompt=130, output=5, hashes=(1, 2, 3), duration=2.0, think=9.0, after_tool=True)
    later = HashRequest(at=0.5, prompt=64, output=5, hashes=(1,), think=9.0, after_tool=False)
    session = HashSession(id="s", scope="f", block_size=64, requests=(request, later))
    second, first = prompts_of_sessions([session])
    assert (first.keys, first.end, first.tool) == (((0, 1), (0, 2)), 3.0, 9.0)
    assert (second.keys, second.end, second.tool) == (((0, 1),), None, None)


def test_a_lone_request_without_an_end_has_no_time() -> None:
    request = HashRequest(at=1.0, prompt=64, output=5, hashes=(1,))
    (prompt,) = prompts_of_sessions([HashSession(id="s", scope="f", block_size=64, requests=(request,))])
    assert prompt.at is None


def test_hashes_of_unlike_scope_stand_for_unlike_blocks() -> None:
    request = HashRequest(at=1.0, prompt=64, output=5, hashes=(1,))
    one, two = (HashSession(id=name, scope=name, block_size=64, requests=(request,)) for name in "ab")
    first, second = prompts_of_sessions([one, two])
    assert first.keys != second.keys
