"""Scripted, replayed and recorded models, on the engine that they are for."""

from typing import Any

import pytest

from agentkv.chain import ChatFormat, LabelShape, Message, ToolDefinition, Turn, TurnShape
from agentkv.config import EngineKV
from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import MODEL_PATH
from agentkv.errors import ScriptError
from agentkv.testing import (
    Recording,
    Script,
    ScriptedOutput,
    assert_prefix_stable,
    call,
    calls,
    label,
    replay,
    say,
    sim,
)

TOOL = ToolDefinition(
    name="find",
    description="",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
SHAPE = TurnShape(tools=(TOOL,))
LABELS = TurnShape(tools=(TOOL,), labels=(LabelShape("continue", "calls"), LabelShape("done", "answer")))


@pytest.fixture(scope="module")
def format_() -> ChatFormat:
    return ChatFormat.load(MODEL_PATH)


def request(tag: str = "run/plan/1", prompt: list[int] | None = None) -> GenerateRequest:
    return GenerateRequest(request_id=tag, token_ids=prompt or [5], max_tokens=500, tag=tag)


def read(format_: ChatFormat, output: ScriptedOutput, shape: TurnShape = SHAPE) -> Turn:
    assert output.token_ids[-1] == format_.stop_ids[0]
    turn = format_.parse(output.token_ids, shape, 1)
    assert turn.problem is None
    return turn


def test_turns_are_read_back_as_they_were_scripted(format_: ChatFormat) -> None:
    script = Script(
        [
            say("Hello."),
            call("find", q="a <tool_call> b"),
            calls(call("find", q="é"), call("find", q="2")),
            say("Looking.", call("find", q="3")),
        ]
    )
    hello, one, two, both = (read(format_, script(request())) for _ in range(4))
    assert (hello.text, hello.calls) == ("Hello.", ())
    assert [(c.name, c.arguments) for c in one.calls] == [("find", '{"q":"a <tool_call> b"}')]
    assert [c.arguments for c in two.calls] == ['{"q":"é"}', '{"q":"2"}']
    assert (both.text, len(both.calls)) == ("Looking.", 1)


def test_labels_come_first(format_: ChatFormat) -> None:
    script = Script([label("continue", call("find", q="x")), label("done", "It is 7."), label("done")])
    more, done, bare = (read(format_, script(request()), LABELS) for _ in range(3))
    assert (more.label, len(more.calls)) == ("continue", 1)
    assert (done.label, done.text) == ("done", "It is 7.")
    assert (bare.label, bare.text) == ("done", "")


def test_a_bare_text_is_written_exactly_so_control_tokens_included(format_: ChatFormat) -> None:
    output = Script(["<tool_call>\n{broken<|im_start|>"])(request())
    assert output.token_ids[-2] == format_.tokenizer.token_id("<|im_start|>")
    assert format_.tokenizer.decode(output.token_ids[:-1]) == "<tool_call>\n{broken<|im_start|>"
    said = Script([say("<|im_start|>")])(request())
    assert said.token_ids[0] != format_.tokenizer.token_id("<|im_start|>")


def test_bare_ids_pass_as_they_are() -> None:
    output = ScriptedOutput([7, 8], error="lost")
    assert Script([output])(request()) is output


def test_each_run_has_its_own_place_in_the_script(format_: ChatFormat) -> None:
    script = Script([say("one"), say("two")])
    tags = ["a/plan/1", "b/plan/1", "a/replan/1", "b/plan/2"]
    assert [read(format_, script(request(tag))).text for tag in tags] == ["one", "one", "two", "two"]
    script.assert_complete()


def test_a_script_that_ends_too_early_names_run_and_length() -> None:
    script = Script([say("one")])
    script(request("r1/plan/1"))
    with pytest.raises(
        ScriptError, match=r"run 'r1' asks for generation 2 \('r1/replan/1'\), .* has 1 turn; add a turn or end"
    ):
        script(request("r1/replan/1"))


def test_a_script_that_is_not_used_up_is_noticed() -> None:
    script = Script([say("one"), say("two")])
    with pytest.raises(AssertionError, match="no run asked for any of the script's 2 turns"):
        script.assert_complete()
    script(request("r1/plan/1"))
    with pytest.raises(AssertionError, match="run 'r1' used 1 of the script's 2 turns"):
        script.assert_complete()


def test_a_function_sees_prompt_and_tag(format_: ChatFormat) -> None:
    prompt = format_.render("", (), [Message(role="user", content="Which branch?")])
    script = Script(lambda text, tag: say(f"{tag}: {'branch' in text}"))
    assert read(format_, script(request("r/options/1", prompt))).text == "r/options/1: True"
    with pytest.raises(AssertionError, match="no last turn"):
        script.assert_complete()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call("find", q={1, 2}), "call\\('find'\\): the arguments are not JSON"),
        (lambda: calls(say("no")), "takes turns made by call"),
        (lambda: sim("h200"), "preset='h200'"),
    ],
)
def test_what_is_no_script_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        make()


async def test_a_script_runs_on_the_engine(ask: Any, format_: ChatFormat) -> None:
    async with sim([say("Hello."), say("A longer answer.")]) as engine:
        stops = format_.stop_ids
        first = await ask(engine, [5, 6], 100, tag="r/plan/1", stop_token_ids=stops)
        second = await ask(engine, [5, 6], 2, tag="r/plan/2", stop_token_ids=stops)
    assert (first[-1].finish, second[-1].finish) == ("stop", "length")
    ids = [token for delta in first for token in delta.token_ids]
    assert format_.tokenizer.decode(ids[:-1]) == "Hello."


@pytest.mark.parametrize("engine_kv", [None, EngineKV(admission="none")])
async def test_a_scripted_engine_manages_kv_if_it_is_told_to(engine_kv: EngineKV | None) -> None:
    async with sim([say("Hello.")], engine_kv=engine_kv) as engine:
        in_force = engine.info.capabilities
    assert (in_force["leases"] == "on") == (engine_kv is not None)
    assert in_force["admission"] != "on"


async def test_a_recorded_run_is_replayed_by_node_and_visit(ask: Any) -> None:
    events: list[dict[str, Any]] = [
        {"type": "run_started", "run_id": "old"},
        {"type": "generation_finished", "node": "plan", "visit": 1, "token_ids": [1, 2]},
        {"type": "generation_finished", "node": "replan", "visit": 1, "token_ids": [3]},
        {"type": "generation_finished", "node": "replan", "visit": 2, "token_ids": [4, 5]},
    ]
    async with sim(replay(events)) as engine:
        order = ["replan/1", "plan/1", "replan/2"]
        deltas = [await ask(engine, [9], 10, tag=f"new/{node}") for node in order]
        assert [[t for d in each for t in d.token_ids] for each in deltas] == [[3], [1, 2], [4, 5]]
        with pytest.raises(ScriptError, match="no \\(further\\) generation of node 'plan', visit 1"):
            await ask(engine, [9], 10, tag="new/plan/1")
        with pytest.raises(ScriptError, match="node 'other', visit 7"):
            await ask(engine, [9], 10, tag="new/other/7")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"type": "run_finished"}, "visit 1; the graph or its tools differ"),
        ({"type": "run_cancelled"}, r"its recording ends there \(the run was cancelled\); replay no further"),
        (
            {"type": "run_failed", "kind": "LimitExceeded", "message": "Limits.steps=1 reached"},
            r"ends there \(the run failed: LimitExceeded: Limits.steps=1 reached\)",
        ),
        ({"type": "generation_asked"}, r"ends there \(its journal has no end"),
    ],
)
async def test_a_replay_of_a_run_that_was_cut_short_says_how_it_ended(
    ask: Any, end: dict[str, Any], message: str
) -> None:
    said = {"type": "generation_finished", "node": "plan", "visit": 1, "token_ids": [1, 2]}
    async with sim(replay([said, end])) as engine:
        await ask(engine, [9], 10, tag="new/plan/1")
        with pytest.raises(ScriptError, match=message):
            await ask(engine, [9], 10, tag="new/replan/1")
    async with sim(replay([said, {"type": "run_cancelled"}])) as engine:
        with pytest.raises(
            ScriptError, match=r"ends early \(the run was cancelled\), or the graph or its tools differ"
        ):
            await ask(engine, [9], 10, tag="new/replan/1")


async def test_a_recording_shows_the_prompts_of_a_run(ask: Any) -> None:
    recording = Recording(lambda _: [1])
    async with sim(recording) as engine:
        for run, prompt in (("a", [1, 2]), ("b", [9]), ("a", [1, 2, 3])):
            await ask(engine, prompt, tag=f"{run}/plan/1")
    assert recording.prompts("a") == [[1, 2], [1, 2, 3]]
    assert len(recording.prompts()) == len(recording.requests) == 3
    assert_prefix_stable(recording.prompts("a"))


def test_prompts_that_only_grow_are_stable() -> None:
    assert_prefix_stable([[1], [1], [1, 2], [1, 2, 3]])
    assert_prefix_stable({"one": [[1], [1, 2]], "other": [[2], [2, 3]]})


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1, 2], [1, 2, 3], [1, 9, 3, 4]], "prompt 3 leaves prompt 2 at token 1 of 3"),
        ([[1, 2], [1]], "prompt 2 is only the first 1 of the 2 tokens of prompt 1"),
        ({"one": [[1], [2]]}, "agent 'one': prompt 2 leaves prompt 1 at token 0 of 1"),
    ],
)
def test_prompts_that_are_rewritten_are_named(prompts: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_prefix_stable(prompts)
