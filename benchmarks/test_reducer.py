"""What a node of a run costs the reducer beside a chain of 100,000 tokens. Goal: under 1 ms a node."""

from typing import Any

import pytest

import agentkv as akv
from agentkv.chain import ChatFormat
from agentkv.config import Limits
from agentkv.engines.sim import MODEL_PATH
from agentkv.graph import standard_graph
from agentkv.runtime.events import CallFinished, GenerationFinished, RunStarted
from agentkv.runtime.program import Program, make_program
from agentkv.runtime.reducer import reduce
from agentkv.runtime.state import State

TOKENS = 100_000


@akv.tool
async def look(key: str) -> str:
    """Look a key up."""
    return key


@pytest.fixture(scope="module")
def program() -> Program:
    agent = akv.Agent("reader", instructions="Look things up.", tools=[look])
    chat = ChatFormat.load(MODEL_PATH)
    _ = chat.verdict
    return make_program(standard_graph(agent), chat, 10 * TOKENS, Limits(steps=10**6, tool_calls=10**6, tokens=10**9))


@pytest.fixture(scope="module")
def long_run(program: Program) -> State:
    started = RunStarted(run_id="r", graph="g", digest="d", prompt="word " * TOKENS, at=0.0)
    state, _ = reduce(program, State(), started)
    assert len(state.chains["reader"].chain) >= TOKENS
    return state


def one_round(program: Program, state: State) -> State:
    """A generation with one call, and its result: plan, act, observe, and the ask of the replan."""
    text = '<tool_call>\n{"name": "look", "arguments": {"key": "a"}}\n</tool_call>'
    ids = (*program.format.tokenizer.encode([akv.chain.Piece(text, trusted=True)]), program.format.stop_ids[0])
    node = state.node
    generated = GenerationFinished(
        node=node, visit=1, token_ids=ids, finish="stop", prompt=1, cached=0, first_at=0.0, at=0.0
    )
    state, _ = reduce(program, state, generated)
    finished = CallFinished(node=state.node, index=0, status="ok", text="value " * 50, abandoned=False, at=0.0)
    state, _ = reduce(program, state, finished)
    return state


def test_a_round_beside_a_long_chain(benchmark: Any, program: Program, long_run: State) -> None:
    """Four nodes: divide by four for one."""
    benchmark(one_round, program, long_run)
