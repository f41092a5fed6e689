"""Recorded conversations as ids: what the chain becomes, and what of it is certain when."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.bench.story import Story, Teller
from agentkv.chain import ChatFormat, Message, Tokenizer, ToolDefinition
from agentkv.chain.dialects import detect
from agentkv.chain.template import ChatTemplate
from agentkv.engines.sim import MODEL_PATH
from agentkv.errors import SetupError
from agentkv.tools import ToolCall
from agentkv.trace import Trajectory, read_trajectories

RECORDED = Path(__file__).parents[1] / "data" / "trajectories"
LOOK = ToolDefinition(name="look", description="Look.", parameters={"type": "object", "properties": {}})
FORGETFUL = """{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\\n' }}
{%- if message.role == 'assistant' and not loop.last %}{{- message.content.split('</think>')[-1] }}
{%- else %}{{- message.content or '' }}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat.load(MODEL_PATH)


def trajectory(*messages: Message, system: str = "Be kind.", latencies: Any = None) -> Trajectory:
    return Trajectory(
        id="one",
        place="here, line 1",
        system=system,
        tools=(LOOK,),
        messages=messages,
        latencies=latencies or tuple(None for _ in messages),
    )


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str, *calls: str) -> Message:
    return Message(role="assistant", content=text, calls=tuple(ToolCall(call, "look", "{}") for call in calls))


def result(call: str, text: str) -> Message:
    return Message(role="tool", content=text, call_id=call, name="look")


def ids_of(story: Story) -> list[int]:
    """The chain as an agent of the benchmark puts it together."""
    chain = [i for segment in story.prompt for i in segment.ids]
    for output, step in zip(story.outputs, [*story.between, None], strict=True):
        chain += output
        if step is not None:
            chain = [*chain, *(i for part in step.known for i in part)]
            chain = [*chain[: step.keep], *step.last]
    return chain


def rendered(chat: ChatFormat, one: Trajectory) -> list[int]:
    return chat.render(one.system, one.tools, one.messages, generation_prompt=False)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_chain_is_one_rendering_of_the_recorded_text(chat: ChatFormat, path: Path) -> None:
    for one in read_trajectories(path):
        story = Teller(chat).tell(one)
        whole = rendered(chat, one)
        assert ids_of(story) == story.final_ids() == whole[: story.tokens]
        assert chat.tokenizer.decode(whole[story.tokens :]).strip() == ""
        assert story.prompt[0].kind == "anchor"
        assert len(story.prompt[0].ids) == story.anchor


texts = st.one_of(st.text(max_size=20), st.sampled_from(["", "<|im_end|>", "</tool_response>", "  \n", "a b"]))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    messages, number = [user(draw(texts))], 0
    for _ in range(draw(st.integers(1, 4))):
        calls = [f"c{number + n}" for n in range(draw(st.integers(0, 3)))]
        number += len(calls)
        messages += [said(draw(texts), *calls), *(result(call, draw(texts)) for call in calls)]
        if not calls or draw(st.booleans()):
            messages.append(user(draw(texts)))
    return (*messages, said(draw(texts)))


@settings(deadline=None, max_examples=60)
@given(messages=conversations(), system=texts)
def test_so_is_that_of_any_other(messages: tuple[Message, ...], system: str) -> None:
    chat = _chat()
    one = trajectory(*messages, system=system)
    story = Teller(chat).tell(one)
    assert ids_of(story) == rendered(chat, one)[: story.tokens]
    assert len(story.outputs) == len(story.between) + 1 == sum(message.role == "assistant" for message in messages)
    for step in story.between:
        assert len(step.known) in {0, len(step.calls)}
        assert step.keep is None


def _chat(found: list[ChatFormat] = []) -> ChatFormat:  # noqa: B006 - loading takes longer than all examples
    if not found:
        found.append(ChatFormat.load(MODEL_PATH))
    return found[0]


def test_what_is_certain_grows_in_call_order(chat: ChatFormat) -> None:
    messages = (user("Go."), said("", "a", "b"), result("a", "first found"), result("b", "then found"), said("Done."))
    (step,) = Teller(chat).tell(trajectory(*messages)).between
    decode = chat.tokenizer.decode
    assert "found" not in decode(step.known[0])
    assert "first found" in decode([*step.known[0], *step.known[1]])
    assert "then" not in decode([*step.known[0], *step.known[1]])
    assert "then found" in decode(step.last)
    assert step.calls == ("look", "look")


def test_conversations_of_one_agent_are_one_group(chat: ChatFormat) -> None:
    teller = Teller(chat)
    one, other = (teller.tell(trajectory(user(text), said("Yes."))) for text in ("One?", "Two?"))
    third = teller.tell(trajectory(user("One?"), said("Yes."), system="Be quick."))
    assert one.group == other.group != third.group
    assert one.prompt[0].ids == other.prompt[0].ids


def test_a_template_that_forgets_has_the_chain_cut(chat: ChatFormat) -> None:
    template = ChatTemplate(FORGETFUL, {"eos_token": "<|im_end|>"})
    forgetful = ChatFormat(Tokenizer.load(MODEL_PATH), template, detect(template))
    messages = (user("Go."), said("<think>hm</think>Yes."), user("Sure?"), said("<think>oh</think>No."))
    story = Teller(forgetful).tell(trajectory(*messages))
    assert ids_of(story) == story.final_ids()
    assert "hm" not in forgetful.tokenizer.decode(story.final_ids())
    assert story.between[0].keep is not None
    assert story.tokens >= len(story.final_ids())


def test_what_cannot_be_rendered_is_named(chat: ChatFormat) -> None:
    template = ChatTemplate(
        (MODEL_PATH / "chat_template.jinja").read_text()
        + "{% if messages[-1].content == 'Go.' %}{{ raise_exception('no going') }}{% endif %}",
        {"eos_token": "<|im_end|>"},
    )
    picky = ChatFormat(Tokenizer.load(MODEL_PATH), template, detect(template))
    with pytest.raises(SetupError, match=r"here, line 1 \(one\): .*no going"):
        Teller(picky).tell(trajectory(user("Go."), said("Yes."), system=""))


def test_a_huge_conversation_is_told(chat: ChatFormat, tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [{"role": "user", "content": "word " * 20_000}]
    for number in range(60):
        turns += [
            {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "name": "look", "arguments": {}}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "line\n" * 50},
        ]
    path = tmp_path / "huge.jsonl"
    path.write_text(json.dumps({"id": "huge", "turns": turns}))
    (one,) = read_trajectories(path)
    story = Teller(chat).tell(one)
    assert story.tokens > 20_000
    assert len(story.outputs) == 60
