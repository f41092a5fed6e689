"""The chain API: append, generate, fork, prefill, release."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import agentkv as akv
from agentkv.errors import EngineUnavailable, StoreError
from agentkv.kv import PolicySettings
from agentkv.runtime.program import MOST_CALLS
from agentkv.store import MemoryStore
from agentkv.testing import Script, call, calls, say

from .conftest import Open, managed_sim

LONG = "The river rises in the north and runs to the sea. " * 60


@akv.tool
async def depth(at: str) -> str:
    """How deep the river is."""
    return f"2 m at {at}"


reader = akv.Agent("reader", instructions="Read. " * 20, tools=[depth], max_tokens=200)


async def test_a_conversation_by_hand(runtime: Open) -> None:
    async with runtime([call("depth", at="the mill"), say("It is 2 m deep.")]) as rt:
        chain = rt.chain(reader)
        chain.append("How deep is it?")
        asked = await chain.generate()
        [made] = asked.message.calls
        assert (made.id, made.name, asked.text) == ("call_0001", "depth", "")
        chain.append(akv.Message(role="tool", content="2 m at the mill", call_id=made.id, name=made.name))
        answer = await chain.generate()
        assert (answer.text, answer.complete) == ("It is 2 m deep.", True)
        assert [message.role for message in chain.messages] == ["user", "assistant", "tool", "assistant"]
        held = rt.format.render(reader.instructions, rt.chain(reader)._agent.definitions, chain.messages, False)
        assert held[: len(chain.ids)] == chain.ids
        assert answer.step.cached == answer.step.predicted
        for each in (*rt._services.live,):
            await each.stop()


async def test_forks_go_on_by_themselves_on_the_same_kv(runtime: Open) -> None:
    async with runtime({"": [say("Read.")], "fork.1": [say("One.")], "fork.2": [say("Two.")]}) as rt:
        chain = rt.chain(reader)
        chain.append(LONG)
        await chain.generate()
        forks = [chain.fork(), chain.fork()]
        for fork in forks:
            fork.append("Sum up.")
        answers = [await fork.generate() for fork in forks]
        assert [answer.text for answer in answers] == ["One.", "Two."]
        assert [len(each.messages) for each in (chain, *forks)] == [2, 4, 4]
        assert all(answer.step.computed < 64 for answer in answers)
        assert len(chain.steps) == 3
        await chain.release()


async def test_four_forks_while_the_trunk_decodes_compute_it_once(runtime: Open) -> None:
    """At most trunk + the branches' own + a block each, though they are sent while the trunk is being computed."""
    turns = {"": [say("Let me see. " * 30)], **{f"fork.{n}": [say("Done. " * 20)] for n in range(1, 5)}}
    async with runtime(turns, engine={"pool_blocks": 400, "max_model_len": 4096}) as rt:
        chain = rt.chain(reader)
        chain.append(LONG + LONG[:1000])
        forks = [chain.fork() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chain.generate)
            for number, fork in enumerate(forks):
                fork.append(f"Now do number {number}. " * 4)
                tasks.start_soon(fork.generate)
        [first, *others] = chain.steps if chain.steps[0].branch == "" else sorted(chain.steps, key=lambda s: s.branch)
        trunk = first.prompt
        own = [step.prompt - trunk for step in others]
        assert trunk > 900
        total = sum(step.computed for step in chain.steps)
        assert total <= trunk + sum(own) + 4 * rt.engine.info.block_size
        await chain.release()


async def test_prefill_computes_what_the_next_prompt_begins_with(runtime: Open) -> None:
    async with runtime([say("Read.")]) as rt:
        chain = rt.chain(reader)
        chain.append(LONG)
        computed = await chain.prefill()
        assert computed > 500
        assert await chain.prefill() == 0
        answer = await chain.generate()
        assert answer.step.prefilled == computed
        assert answer.step.computed <= rt.engine.info.block_size
        await chain.release()


async def test_forks_have_names_of_their_own(runtime: Open) -> None:
    turns = {"fork.a": [say("One.")], "fork#2.a": [say("Two.")], "fork.3": [say("Three.")]}
    async with runtime(turns) as rt:
        chain = rt.chain(reader)
        chain.append("Read.")
        forks = [chain.fork("a"), chain.fork("a"), chain.fork()]
        async with anyio.create_task_group() as tasks:
            for fork in forks:
                tasks.start_soon(fork.generate)
        assert sorted(step.branch for step in chain.steps) == ["fork#2.a", "fork.3", "fork.a"]
        await chain.release()


async def test_nothing_is_prefilled_where_nothing_may_be(runtime: Open) -> None:
    async with runtime([say("Read.")], kv=akv.KVConfig(branch_prefetch_limit=0)) as rt:
        chain = rt.chain(reader)
        chain.append(LONG)
        assert await chain.prefill() == 0
        await chain.release()


async def test_text_is_told_as_it_is_decoded(runtime: Open) -> None:
    async with runtime([say("It is 2 m deep.")]) as rt:
        chain, told = rt.chain(reader), list[str]()
        chain.append("How deep?")
        answer = await chain.generate(max_tokens=3, on_text=told.append)
        assert "".join(told).startswith(answer.text)
        assert (len(told) > 1, answer.complete) == (True, False)
        await chain.release()


async def test_a_released_chain_holds_nothing_and_does_nothing(runtime: Open) -> None:
    async with runtime({"": [say("Read.")], "fork.1": [say("One.")]}) as rt:
        chain = rt.chain(reader)
        chain.append(LONG)
        await chain.generate()
        fork = chain.fork()
        fork.append("Sum up.")
        await fork.generate()
        leases = (await rt.engine.stats()).get("leases", 0)
        await fork.release()
        assert (await rt.engine.stats()).get("leases", 0) == max(0, leases - 1)
        await chain.release()
        await chain.release()
        with pytest.raises(akv.errors.SetupError, match="chain of agent 'reader' was released"):
            await chain.generate()


async def test_closing_the_runtime_releases_what_is_left() -> None:
    async with akv.testing.sim(Script([say("Read.")])) as engine:
        async with akv.Runtime(engine) as rt:
            chain = rt.chain(reader)
            chain.append("Go")
            await chain.generate()
        assert not rt._services.live
    with pytest.raises(EngineUnavailable):
        rt.chain(reader)


async def test_a_prompt_that_is_too_long_is_refused(runtime: Open) -> None:
    async with runtime([say("Read.")], engine={"pool_blocks": 40, "max_model_len": 600}) as rt:
        chain = rt.chain(reader)
        chain.append(LONG)
        with pytest.raises(akv.PromptTooLong, match="leaves no room"):
            await chain.generate()
        await chain.release()


async def test_results_are_those_of_calls_that_await_one(runtime: Open) -> None:
    async with runtime([call("depth", at="the mill"), say("It is 2 m deep.")]) as rt:
        chain = rt.chain(reader)
        with pytest.raises(akv.SetupError, match=r"a result of call 'call_0001' is not awaited \(none is\)"):
            chain.append(akv.Message(role="tool", content="2 m", call_id="call_0001"))
        chain.append("How deep is it?")
        await chain.generate()
        result = akv.Message(role="tool", content="2 m", call_id="call_0001", name="depth")
        with pytest.raises(akv.SetupError, match=r"a result of call '' is not awaited \('call_0001'\)"):
            chain.append(akv.Message(role="tool", content="2 m"))
        with pytest.raises(akv.SetupError, match=r"'call_0001' is not awaited \(none is\)"):
            chain.append(result, result)
        assert len(chain.messages) == 2
        chain.append(result)
        assert (await chain.generate()).text == "It is 2 m deep."
        await chain.release()


async def test_nothing_is_appended_behind_a_prompt_that_is_being_answered(runtime: Open) -> None:
    async with runtime([say("It is deep."), say("It is.")]) as rt:
        chain = rt.chain(reader)
        chain.append("How deep is it?")
        refused: list[str] = []

        def interrupt(_: str) -> None:
            with pytest.raises(akv.SetupError, match=r"is generating already; fork\(\) it") as error:
                chain.append("And how wide?")
            refused.append(str(error.value))

        await chain.generate(on_text=interrupt)
        assert refused
        assert [message.role for message in chain.messages] == ["user", "assistant"]
        chain.append("And how wide?")
        await chain.generate()
        assert "And how wide?" in rt.format.tokenizer.decode(chain.ids)
        await chain.release()
        with pytest.raises(akv.SetupError, match="was released; make another"):
            chain.append("And how long?")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (akv.Message(role="user", content=5), "Message.content=5 must be text"),  # type: ignore[arg-type]
        (akv.Message(role="user", content=None), "Message.content=None must be text"),  # type: ignore[arg-type]
        (akv.Message(role="tool", content="", call_id=1), "Message.call_id=1 must be text"),  # type: ignore[arg-type]
        (akv.Message(role="assistant", content="", calls=("a",)), "must be a tuple of akv.ToolCall"),  # type: ignore[arg-type]
        (akv.Message(role="assistant", content="", calls=None), "must be a tuple of akv.ToolCall"),  # type: ignore[arg-type]
    ],
)
async def test_a_message_with_parts_of_another_type_is_refused(runtime: Open, message: akv.Message, field: str) -> None:
    async with runtime([say("Read.")]) as rt:
        chain = rt.chain(reader)
        with pytest.raises(akv.SetupError, match=field):
            chain.append(message)
        await chain.release()


@pytest.mark.parametrize("label", [["a"], 3, " a", "a/b", "a>b", "a\nb", "x" * 200])
async def test_a_fork_s_label_is_a_short_line(runtime: Open, label: Any) -> None:
    async with runtime([say("Read.")]) as rt:
        chain = rt.chain(reader)
        with pytest.raises(akv.SetupError, match=r"fork\(\): label .* must be a line"):
            chain.fork(label)
        assert [str(chain.fork("again")._branch[0]) for _ in range(2)] == ["fork.again", "fork#2.again"]
        await chain.release()


async def test_a_generation_that_was_cut_off_leaves_the_chain_as_it_was(runtime: Open) -> None:
    def stop(text: str) -> None:
        raise ValueError(text)

    async with runtime(Script(lambda prompt, tag: say("It is 2 m deep."))) as rt:
        chain, other = rt.chain(reader), rt.chain(reader)
        for each in (chain, other):
            each.append("How deep is it?")
        before = chain.ids
        with pytest.raises(ValueError, match="I"):
            await chain.generate(on_text=stop)
        assert chain.ids == before
        await chain.generate()
        await other.generate()
        assert chain.ids == other.ids
        for each in (chain, other):
            await each.release()


async def test_a_turn_that_cannot_be_read_stands_on_the_chain_as_it_was_said(runtime: Open) -> None:
    many = calls(*(call("depth", at=str(place)) for place in range(MOST_CALLS + 1)))
    async with runtime([many]) as rt:
        chain = rt.chain(akv.Agent("reader", instructions="Read. " * 20, tools=[depth], max_tokens=400))
        chain.append("How deep is it?")
        before = chain.ids
        with pytest.raises(akv.ModelOutputError, match="agent 'reader'"):
            await chain.generate()
        assert len(chain.ids) > len(before)
        assert len(chain.messages[-1].calls) == MOST_CALLS + 1
        await chain.release()


async def test_a_fork_made_while_its_trunk_generates_goes_on_from_before(runtime: Open) -> None:
    async with runtime(Script(lambda prompt, tag: say("It is 2 m deep."))) as rt:
        chain, forks = rt.chain(reader), list[akv.AgentChain]()
        chain.append("How deep is it?")
        await chain.generate(on_text=lambda text: forks.append(chain.fork()))
        fork = forks[0]
        fork.append("At the mill.")
        await fork.generate()
        definitions = chain._agent.definitions
        assert fork.ids == rt.format.render(reader.instructions, definitions, fork.messages, False)[: len(fork.ids)]
        await chain.release()


async def test_what_a_released_chain_has_under_way_ends_and_leaves_nothing(runtime: Open) -> None:
    async with runtime(Script(lambda prompt, tag: say("Let me see. " * 30))) as rt:
        chain, ended = rt.chain(reader), list[str]()
        chain.append(LONG)

        async def generate(work: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(akv.SetupError, match="was released"):
                await work()
            ended.append("released")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(generate, chain.generate)
            tasks.start_soon(generate, chain.fork().prefill)
            await rt.engine.clock.sleep(0.1)
            await chain.release()
        assert ended == ["released"] * 2
        # The step that was under way is long: the anchor's request, which the runtime sends, waits for it.
        await rt.engine.clock.sleep(5)


async def test_a_runtime_is_closed_whose_engine_died_under_its_chains(store: MemoryStore) -> None:
    engine = managed_sim(Script(lambda prompt, tag: say("Read.")), PolicySettings(), {})
    async with akv.Runtime(engine, store=store) as rt:
        chains = [rt.chain(reader), rt.chain(reader)]
        for chain in chains:
            chain.append("Read.")
            await chain.generate()
        fork = chains[0].fork()
        await engine.aclose()
        await chains[0].release()
        with pytest.raises(akv.SetupError, match="was released"):
            fork.append("More.")
    with pytest.raises(StoreError, match="not open"):
        await store.runs()
    assert not rt._services.live
