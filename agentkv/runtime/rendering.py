"""From a run's conversation to token chains: what the next prompt is, and how much of it is certain already."""

from attrs import evolve

from agentkv.chain import Chain, Message, Segment, SegmentKind, truncate
from agentkv.graph.path import BranchId
from agentkv.runtime.program import AgentProgram, Program
from agentkv.runtime.state import ChainState, Follow, Slot, State, Tip

__all__ = ("begun", "catch_up", "not_run", "result_messages", "spawns_ahead", "tips", "with_chain")

# Template text around one result (headers, separators) that has to fit beside it.
RESULT_OVERHEAD = 32
# A result is never cut to less than this: what remains would tell the model nothing.
RESULT_FLOOR = 64


def catch_up(program: Program, agent: AgentProgram, state: State) -> ChainState:
    """``agent``'s chain with the whole conversation in it, ready to generate from."""
    before = state.chains.get(agent.agent.name)
    if before is None:
        return _render(program, agent, state, None)
    new = state.messages[before.seen :]
    if not program.format.appends(new):
        return _render(program, agent, state, before)
    ids = program.format.delta(
        agent.agent.instructions, agent.definitions, state.messages[: before.seen], new, before.closed
    )
    segment = Segment(kind=_kind(new), label=new[0].name or new[0].role if new else "turn", ids=tuple(ids))
    return ChainState(chain=before.chain.extend(segment), seen=len(state.messages))


def _kind(new: tuple[Message, ...]) -> SegmentKind:
    # Two generations of one agent in a row have nothing between them but the template's own text.
    if not new:
        return "template"
    return "tool_result" if new[0].role == "tool" else "user"


def _render(program: Program, agent: AgentProgram, state: State, before: ChainState | None) -> ChainState:
    ids = tuple(program.format.render(agent.agent.instructions, agent.definitions, state.messages))
    cut = len(agent.anchor)
    if ids[:cut] != agent.anchor:
        cut = 0
    chain = Chain.empty()
    if cut:
        chain = chain.extend(Segment(kind="anchor", label=agent.agent.name, ids=ids[:cut]))
    chain = chain.extend(Segment(kind="user", label="conversation", ids=ids[cut:]))
    diverged = None if before is None else before.chain.common_prefix(ids)
    return ChainState(chain=chain, seen=len(state.messages), diverged_at=diverged)


def tips(program: Program, state: State) -> tuple[Tip, ...]:
    """What is certain of the prompts that may come next: first the next agents' chains, then bare anchors."""
    found = []
    for agent in program.graph.next_agents(state.node):
        prepared = program.agents[agent.name]
        found.append(Tip(agent=agent.name, chain=_known(program, prepared, state)))
    return tuple(found)


def _known(program: Program, agent: AgentProgram, state: State) -> Chain:
    """The longest chain that ``agent``'s next prompt is certain to start with."""
    before = state.chains.get(agent.agent.name)
    if before is None:
        return Chain.empty().extend(Segment(kind="anchor", label=agent.agent.name, ids=agent.anchor))
    pending = (*state.messages[before.seen :], *result_messages(program, state))
    if not program.format.appends(pending):
        return before.chain
    ids = program.format.known(
        agent.agent.instructions, agent.definitions, state.messages[: before.seen], pending, before.closed
    )
    return before.chain.extend(Segment(kind="template", label="ahead", ids=tuple(ids))) if ids else before.chain


def spawns_ahead(program: Program, state: State, node: str) -> tuple[Follow, ...]:
    """The first prompts of the sub-agents that are sure to come after ``node``: they depend on nothing said before."""
    found = []
    for spawn in program.graph.next_spawns(node):
        inner, visit = program.branches[spawn.name], state.visits.get(spawn.name, 0) + 1
        first = inner.nodes.get(inner.graph.start)
        if first is None:
            continue
        for label, prompt in spawn.declared:
            texts = [prompt, *([first.node.instruction] if first.node.instruction else [])]
            alone = State(messages=tuple(Message(role="user", content=text) for text in texts))
            tip = Tip(agent=first.agent.agent.name, chain=catch_up(inner, first.agent, alone).chain)
            found.append(Follow(tips=(tip,), branch=(BranchId(spawn.name, visit, label),)))
    return tuple(found)


def begun(program: Program, agent: AgentProgram, state: State, text: str) -> Chain:
    """The longest chain that ``agent``'s next prompt is certain to start with if a user message follows that begins
    with ``text``.
    """
    before = state.chains.get(agent.agent.name)
    held = 0 if before is None else before.seen
    new = (*state.messages[held:], Message(role="user", content=text))
    if before is not None and not program.format.appends(new):
        return before.chain
    ids = program.format.begun(
        agent.agent.instructions, agent.definitions, state.messages[:held], new, before is None or before.closed
    )
    chain = Chain.empty() if before is None else before.chain
    return chain.extend(Segment(kind="template", label="ahead", ids=tuple(ids))) if ids else chain


def result_messages(program: Program, state: State) -> tuple[Message | None, ...]:
    """The step's results in the order in which they enter the chain; None for those not there yet.

    A result is cut to its tool's ``max_tokens`` and to what the model's context has left.
    """
    node = program.graph.nodes[state.node]
    by_arrival = node.kind == "tool" and node.order == "arrival"
    order = (*state.arrived, *(i for i, slot in enumerate(state.slots) if slot.outcome is None))
    messages: list[Message | None] = []
    room = _room(program, state)
    for slot in (state.slots[i] for i in order) if by_arrival else state.slots:
        if slot.outcome is None:
            messages.append(None)
            continue
        message = _result_message(program, state, slot, room)
        room -= program.format.tokenizer.count(message.content) + RESULT_OVERHEAD
        messages.append(message)
    return tuple(messages)


def _result_message(program: Program, state: State, slot: Slot, room: int) -> Message:
    assert slot.outcome is not None
    tool = program.nodes[state.asking].tools.get(slot.call.name)
    limit = max(room, RESULT_FLOOR)
    limit = limit if tool is None or tool.max_tokens is None else min(tool.max_tokens, limit)
    keep = "head" if tool is None else tool.keep
    text = truncate(slot.outcome.text, limit, keep, program.format.tokenizer)
    return Message(role="tool", content=text, call_id=slot.call.id, name=slot.call.name)


def _room(program: Program, state: State) -> int:
    """Tokens that results may take: the context less the asking agent's chain and its next answer."""
    asking = program.nodes[state.asking]
    used = len(state.chains[asking.agent.agent.name].chain)
    return program.max_model_len - used - asking.max_tokens - RESULT_OVERHEAD * (1 + len(state.slots))


def not_run(message: Message) -> tuple[Message, ...]:
    """Results for the calls of a turn that is not acted upon: each call has exactly one."""
    return tuple(
        Message(role="tool", content="The call was not run.", call_id=call.id, name=call.name) for call in message.calls
    )


def with_chain(state: State, agent: str, chain: ChainState) -> State:
    """``state`` with ``agent``'s chain replaced."""
    return evolve(state, chains={**state.chains, agent: chain})
