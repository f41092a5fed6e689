"""From a run's conversation to token chains: what the next prompt is, and how much of it is certain already."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import evolve

from agentkv.chain import Chain, Keep, Message, Segment, SegmentKind, lasting, truncate
from agentkv.errors import TemplateError
from agentkv.graph.path import BranchId
from agentkv.runtime.program import AgentProgram, Program
from agentkv.runtime.state import ChainState, Follow, Slot, State, Tip

__all__ = ("begun", "catch_up", "expected", "not_run", "result_messages", "spawns_ahead", "tips", "with_chain")

NOTHING: Mapping[str, str] = MappingProxyType({})
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


def tips(program: Program, state: State, begun: Mapping[str, str] = NOTHING) -> tuple[Tip, ...]:
    """What is certain of the prompts that may come next: first the next agents' chains, then bare anchors.

    ``begun`` is, by call id, what results begin with that are not there yet.
    """
    found = []
    for agent in program.graph.next_agents(state.node):
        prepared = program.agents[agent.name]
        found.append(Tip(agent=agent.name, chain=_known(program, prepared, state, begun)))
    return tuple(found)


def _known(program: Program, agent: AgentProgram, state: State, begun: Mapping[str, str]) -> Chain:
    """The longest chain that ``agent``'s next prompt is certain to start with."""
    before = state.chains.get(agent.agent.name)
    results = result_messages(program, state)
    partial = _partial(program, state, results, begun)
    if before is None:
        return _first(program, agent, (*state.messages, *results), partial)
    return _behind(program, agent, before, state.messages, (*state.messages[before.seen :], *results), partial)


def _behind(
    program: Program,
    agent: AgentProgram,
    before: ChainState,
    messages: tuple[Message, ...],
    pending: tuple[Message | None, ...],
    partial: str | None,
) -> Chain:
    """``agent``'s chain with what is certain of ``pending``; ``messages`` are those said so far."""
    if not program.format.appends(pending):
        return before.chain
    held = messages[: before.seen]
    ids = program.format.known(agent.agent.instructions, agent.definitions, held, pending, before.closed, partial)
    return before.chain.extend(Segment(kind="template", label="ahead", ids=tuple(ids))) if ids else before.chain


def _first(program: Program, agent: AgentProgram, pending: tuple[Message | None, ...], partial: str | None) -> Chain:
    """The same for one that has not spoken yet: its anchor, and the conversation if templates leave that as it is."""
    chain, cut = (
        Chain.empty().extend(Segment(kind="anchor", label=agent.agent.name, ids=agent.anchor)),
        len(agent.anchor),
    )
    if not program.format.appends(pending):
        return chain
    try:
        ids = program.format.known(agent.agent.instructions, agent.definitions, (), pending, True, partial)
    except TemplateError:
        # A template may take a conversation that is whole, and not one that breaks off.
        return chain
    if tuple(ids[:cut]) != agent.anchor or len(ids) == cut:
        return chain
    return chain.extend(Segment(kind="template", label="ahead", ids=tuple(ids[cut:])))


def expected(program: Program, agent: AgentProgram, state: State | None) -> Chain:
    """The longest chain that ``agent``'s next prompt starts with if it is asked some time behind the step's results.

    These are left out: what may never be asked is rendered once a step, not with each of them. Of an agent that has a
    conversation of its own, ``state`` None, the anchor is all that is known.
    """
    if state is None:
        return Chain.empty().extend(Segment(kind="anchor", label=agent.agent.name, ids=agent.anchor))
    before = state.chains.get(agent.agent.name)
    if before is None:
        return _first(program, agent, (*state.messages, None), None)
    try:
        return _behind(program, agent, before, state.messages, (*state.messages[before.seen :], None), None)
    except TemplateError:
        # What cannot be rendered is an error once it is asked for, if it ever is.
        return before.chain


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
    messages: list[Message | None] = []
    room = _room(program, state)
    for slot in _in_order(program, state):
        if slot.outcome is None:
            messages.append(None)
            continue
        message = _result_message(program, state, slot, room)
        room -= program.format.tokenizer.count(message.content) + RESULT_OVERHEAD
        messages.append(message)
    return tuple(messages)


def _in_order(program: Program, state: State) -> tuple[Slot, ...]:
    if not _by_arrival(program, state):
        return state.slots
    missing = tuple(i for i, slot in enumerate(state.slots) if slot.outcome is None)
    return tuple(state.slots[i] for i in (*state.arrived, *missing))


def _by_arrival(program: Program, state: State) -> bool:
    node = program.graph.nodes[state.node]
    return node.kind == "tool" and node.order == "arrival"


def _result_message(program: Program, state: State, slot: Slot, room: int) -> Message:
    assert slot.outcome is not None
    limit, keep = _cut(program, state, slot, room)
    note = f"\n{slot.outcome.note}" if slot.outcome.note else ""
    limit = max(1, limit - program.format.tokenizer.count(note)) if note else limit
    text = truncate(slot.outcome.text, limit, keep, program.format.tokenizer)
    return Message(role="tool", content=text + note, call_id=slot.call.id, name=slot.call.name)


def _cut(program: Program, state: State, slot: Slot, room: int) -> tuple[int, Keep]:
    """To how many tokens a result is cut at most, and what of it stays."""
    tool = program.nodes[state.asking].tools.get(slot.call.name)
    limit = max(room, RESULT_FLOOR)
    if tool is None:
        return limit, "head"
    return limit if tool.max_tokens is None else min(tool.max_tokens, limit), tool.keep


def _partial(
    program: Program, state: State, results: tuple[Message | None, ...], begun: Mapping[str, str]
) -> str | None:
    """What the first of the missing results is certain to begin with, if something of it is there."""
    missing = [slot for slot in _in_order(program, state) if slot.outcome is None]
    if not missing or missing[0].call.id not in begun or (len(missing) > 1 and _by_arrival(program, state)):
        return None
    ready = results[: results.index(None)]
    used = sum(program.format.tokenizer.count(each.content) + RESULT_OVERHEAD for each in ready if each is not None)
    limit, keep = _cut(program, state, missing[0], _room(program, state) - used)
    return lasting(begun[missing[0].call.id], limit, keep, program.format.tokenizer)


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
