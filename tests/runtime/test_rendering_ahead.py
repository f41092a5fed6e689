"""What is known of prompts that may come later is rendered where the template lets it, and costs no run where not."""

import shutil
from pathlib import Path

import pytest

import agentkv as akv
from agentkv.chain import Chain, ChatFormat, Message, Segment
from agentkv.engines.sim import MODEL_PATH
from agentkv.graph import compile
from agentkv.runtime.program import Program, make_program
from agentkv.runtime.rendering import expected
from agentkv.runtime.state import ChainState, State
from agentkv.tools import ToolCall

# Takes every conversation but one in which a turn that says so is followed by what begins as a placeholder does.
FUSSY = """
{%- if messages|length > 1 and 'Hm.' in messages[-2].content and 'Aword' in messages[-1].content %}
{{ oops() }}
{% endif %}
"""
CALL = ToolCall("call_0001", "look", "{}")
SAID = (Message(role="user", content="Where is it?"), Message(role="assistant", content="Hm.", calls=(CALL,)))


@akv.tool
async def look() -> str:
    """Look."""
    return "Here."


def pair(folder: Path, *, fussy: bool) -> Program:
    shutil.copytree(MODEL_PATH, folder)
    template = folder / "chat_template.jinja"
    template.write_text((FUSSY.strip() if fussy else "") + template.read_text(encoding="utf-8"), encoding="utf-8")
    clerk = akv.Agent("clerk", instructions="You look.", tools=[look])
    critic = akv.Agent("critic", instructions="You are the critic.")
    graph = akv.Graph("pair")
    plan, act, judge = graph.plan("plan", clerk), graph.tool("act"), graph.replan("judge", critic)
    graph.path(akv.START, plan, act, judge, akv.END)
    return make_program(compile(graph), ChatFormat.load(folder), 4096, akv.Limits())


@pytest.mark.parametrize("spoken", [False, True])
def test_a_later_prompt_is_known_up_to_the_results_that_are_awaited(tmp_path: Path, spoken: bool) -> None:
    program = pair(tmp_path / "model", fussy=False)
    critic = program.agents["critic"]
    before = Chain.empty().extend(Segment(kind="user", label="said", ids=tuple(_rendered(program, SAID[:1]))))
    chains = {"critic": ChainState(chain=before, seen=1)} if spoken else {}
    known = expected(program, critic, State(messages=SAID, chains=chains)).ids()
    whole = _rendered(program, (*SAID, Message(role="tool", content="Here.", call_id=CALL.id, name="look")))
    assert whole[: len(known)] == known
    assert len(known) > len(_rendered(program, SAID[:1]))
    assert expected(program, critic, None).ids() == list(critic.anchor)


def _rendered(program: Program, messages: tuple[Message, ...]) -> list[int]:
    return program.format.render("You are the critic.", (), messages, generation_prompt=False)


@pytest.mark.parametrize("spoken", [False, True])
def test_a_template_that_takes_no_conversation_that_breaks_off_leaves_what_is_there(
    tmp_path: Path, spoken: bool
) -> None:
    program = pair(tmp_path / "model", fussy=True)
    critic = program.agents["critic"]
    before = Chain.empty().extend(Segment(kind="anchor", label="critic", ids=critic.anchor))
    chains = {"critic": ChainState(chain=before, seen=1)} if spoken else {}
    assert expected(program, critic, State(messages=SAID, chains=chains)).ids() == list(critic.anchor)
