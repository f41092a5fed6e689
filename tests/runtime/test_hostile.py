"""Users' functions, options and streams at their worst: a named error, an event loop that goes on, no leftovers."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, field_validator

import agentkv as akv
from agentkv.runtime import joining
from agentkv.runtime.follower import Follower
from agentkv.store import MemoryStore
from agentkv.testing import Script, call, say, sim

from .conftest import Open, check_journal

AHEAD = akv.KVConfig(kv_transfer_mode="bidirectional")


def agent(*tools: Any) -> akv.Agent[None, str]:
    return akv.Agent("clerk", instructions="You help. " * 20, tools=tools)


def forked(
    strategy: Any, over: Any = lambda text: ["a", "b"], prompt: Any = str, limit: int = 16
) -> akv.Graph[None, str]:
    graph = akv.Graph("ways", output=str)
    first = graph.plan("first", agent(), tool_choice="none")
    fork = graph.fork("ways", over=over, prompt=prompt, limit=limit)
    join, last = graph.join("best", fork, strategy), graph.replan("last", agent(), tool_choice="none")
    graph.path(akv.START, first, fork)
    graph.path(join, last, akv.END)
    return graph


def cancels(*_: Any) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (forked(akv.winner(choose=lambda outputs: ["1"])), r"join 'best': its choose= function returned \['1'\]"),  # type: ignore[arg-type,return-value]
        (forked(akv.winner(choose=cancels)), "join 'best': its choose= function raised CancelledError"),
        (forked(akv.all_of(), over=cancels), "node 'ways': its over= function raised CancelledError"),
        (forked(akv.all_of(), prompt=cancels), "node 'ways': its prompt= function raised CancelledError"),
        (forked(akv.all_of(), over=lambda text: "abc"), "node 'ways': its over= function returned a str"),
        (forked(akv.all_of(), over=lambda text: {"a": 1}), "node 'ways': its over= function returned a dict"),
    ],
)
async def test_a_function_about_branches_that_goes_wrong_is_named(
    runtime: Open, store: MemoryStore, target: Any, said: str
) -> None:
    async with runtime(Script(lambda prompt, tag: say("So."))) as rt, rt.start(target, "Go") as run:
        with pytest.raises(akv.errors.NodeError, match=said):
            await run.result()
        await check_journal(store, run)


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise self


class Answer(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        raise {1: SpeechlessError, 2: asyncio.CancelledError, 3: GeneratorExit}[n]


def speechless(*_: Any) -> Any:
    raise SpeechlessError


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (forked(akv.winner(choose=speechless)), "join 'best': its choose= function raised SpeechlessError"),
        (forked(akv.all_of(), over=speechless), "node 'ways': its over= function raised SpeechlessError"),
        (forked(akv.all_of(), prompt=speechless), "node 'ways': its prompt= function raised SpeechlessError"),
        (1, "agent 'clerk': the output type's own validation raised SpeechlessError"),
        (2, "agent 'clerk': the output type's own validation raised CancelledError"),
        (3, "agent 'clerk': the output type's own validation raised GeneratorExit"),
    ],
)
async def test_whatever_a_function_raises_ends_its_run_alone(
    runtime: Open, store: MemoryStore, target: Any, said: str
) -> None:
    answer = "So." if isinstance(target, akv.Graph) else f'{{"n": {target}}}'
    strict = akv.Agent("clerk", instructions="You count.", output=Answer)
    target = target if isinstance(target, akv.Graph) else strict
    async with runtime(Script(lambda prompt, tag: say(answer))) as rt, rt.start(target, "Go") as run:
        with pytest.raises(akv.errors.NodeError, match=said):
            await run.result()
        await check_journal(store, run)


async def test_a_list_of_branches_without_end_ends_the_run(runtime: Open) -> None:
    async with runtime(Script(lambda prompt, tag: say("So."))) as rt:
        with pytest.raises(akv.LimitExceeded, match="node 'ways': more branches were listed than limit=16"):
            await rt.run(forked(akv.all_of(), over=lambda text: count()), "Go")


async def test_functions_about_results_that_raise_a_cancellation_are_named(runtime: Open) -> None:
    @akv.tool(read_only=True, predict=cancels)
    async def read() -> str:
        """Read."""
        return "text"

    async with runtime([call("read"), say("So.")]) as rt:
        with pytest.raises(akv.ToolError, match="tool 'read': its predict function raised CancelledError"):
            await rt.run(agent(read), "Go", kv=AHEAD)


def streaming(pieces: Iterator[str], **options: Any) -> Any:
    @akv.tool(name="log", **options)
    async def tool() -> AsyncIterator[str]:
        """Waits for nothing."""
        for piece in pieces:
            yield piece

    return tool


async def test_a_stream_that_waits_for_nothing_lets_others_go_on(runtime: Open) -> None:
    async with runtime([call("log"), say("So.")]) as rt:
        async with rt.start(agent(streaming("x" for _ in count())), "Go", kv=AHEAD) as run:
            with anyio.move_on_after(0.3):
                await run.result()
        assert run.report.outcome == "run_cancelled"


async def test_many_small_pieces_are_looked_at_no_more_often_than_they_can_matter(runtime: Open) -> None:
    looks: list[Any] = []
    async with runtime([call("log"), say("So.")]) as rt:
        tool = streaming(iter(["word "] * 40_000))
        async with rt.start(agent(tool), "Go", kv=AHEAD) as run:
            arriving = run._shell._results
            extend = arriving.extend

            def watched(*args: Any) -> Any:
                looks.append(args)
                return extend(*args)

            arriving.extend = watched  # type: ignore[method-assign]
            await run.result()
    assert 10 < len(looks) < 250


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cache_salt": b"secret"}, "Runtime: cache_salt is of type bytes"),
        ({"cache_salt": ""}, "Runtime: cache_salt is empty"),
        ({"cache_salt": "secret\ud800"}, "Runtime: cache_salt is empty, or no text"),
        ({"kv": "auto"}, r"Runtime\(kv='auto'\) must be akv.KVConfig"),
        ({"limits": 3}, r"Runtime\(limits=3\) must be akv.Limits"),
        ({"options": 5}, r"Runtime\(options=5\) must be a mapping"),
        ({"options": {5: 1}}, r"Runtime\(options=.* must be a mapping"),
        ({"engine_kv": 5}, r"Runtime\(engine_kv=5\) must be akv.EngineKV"),
        ({"memo_file": 5}, r"Runtime\(memo_file=5\) must be the path"),
        ({"progress": 5}, r"Runtime\(progress=5\) must be a function"),
    ],
)
def test_options_of_the_wrong_kind_are_named_and_no_salt_is_shown(options: dict[str, Any], said: str) -> None:
    with pytest.raises(akv.SetupError, match=said) as caught:
        akv.Runtime("sim", **options)
    assert "secret" not in str(caught.value)


async def test_salts_of_runs_and_chains_are_not_shown_either(runtime: Open) -> None:
    async with runtime([say("So.")]) as rt:
        for wrong in (b"secret", "secret\ud800"):
            with pytest.raises(akv.SetupError, match="run: cache_salt") as caught:
                await rt.run(agent(), "Go", cache_salt=wrong)  # type: ignore[arg-type]
            assert "secret" not in str(caught.value)
            with pytest.raises(akv.SetupError, match="chain: cache_salt") as caught:
                rt.chain(agent(), cache_salt=wrong)  # type: ignore[arg-type]
            assert "secret" not in str(caught.value)
        with pytest.raises(akv.SetupError, match=r"chain\(kv='auto'\)"):
            rt.chain(agent(), kv="auto")  # type: ignore[arg-type]


async def test_a_tenant_that_is_none_stays_within_the_runtimes_salt(runtime: Open) -> None:
    asked = akv.testing.Recording(Script([say("So."), say("And so.")]))
    async with runtime(asked, cache_salt="house") as rt:
        for given in ({}, {"cache_salt": None}, {"cache_salt": "guest"}):
            await rt.run(agent(), "Go", **given)  # type: ignore[arg-type]
        chain = rt.chain(agent(), cache_salt=None)
        chain.append("Go")
        await chain.generate()
        await chain.release()
    assert [request.cache_salt for request in asked.requests] == ["house", "house", "guest", "house"]


async def test_a_runtime_is_opened_once_at_a_time(runtime: Open) -> None:
    async with runtime([say("So.")]) as rt:
        with pytest.raises(akv.SetupError, match="the runtime is open already"):
            await rt.__aenter__()
        assert (await rt.run(agent(), "Go")).output == "So."


async def test_run_sync_says_what_to_do_where_a_loop_or_the_engine_runs(runtime: Open) -> None:
    with pytest.raises(akv.SetupError, match="called in a running event loop"):
        akv.run_sync(agent(), "Go", engine=sim([say("So.")]))
    async with runtime([say("So.")]) as rt:
        with pytest.raises(akv.SetupError, match="'sim' runs already"):
            await anyio.to_thread.run_sync(lambda: akv.run_sync(agent(), "Go", engine=rt.engine))


async def test_a_chain_refuses_what_it_cannot_take(runtime: Open) -> None:
    async with runtime(Script(lambda prompt, tag: say("So."))) as rt:
        chain = rt.chain(agent())
        with pytest.raises(akv.SetupError, match=r"append\(\) takes texts and akv.Message\(...\), not dict"):
            chain.append("Hello", {"role": "user"})  # type: ignore[arg-type]
        made = akv.Message(role="assistant", content="", calls=(akv.ToolCall([], "look", "{}"),))  # type: ignore[arg-type]
        with pytest.raises(akv.SetupError, match=r"Message.calls=.* must be a tuple of akv.ToolCall"):
            chain.append(made)
        for options in ({"max_tokens": 0}, {"max_tokens": "3"}, {"max_tokens": True}, {"on_text": 5}):
            with pytest.raises(akv.SetupError, match=f"generate.{next(iter(options))}="):
                await chain.generate(**options)  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chain.generate)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(akv.SetupError, match="agent 'clerk' is generating already"):
                await chain.generate()
        assert [message.role for message in chain.messages] == ["assistant"]
        await chain.release()
        with pytest.raises(akv.SetupError, match="was released"):
            chain.fork()


class Pathlike:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


async def test_a_memo_file_may_be_named_by_whatever_names_files(tmp_path: Path) -> None:
    file, kv = tmp_path / "memo.json", akv.KVConfig(predict_results="agent")
    async with akv.Runtime(sim([say("So.")]), kv=kv, memo_file=Pathlike(file)):
        pass
    assert file.exists()


async def test_a_memo_file_that_cannot_be_one_is_refused_at_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    kv = akv.KVConfig(predict_results="agent")
    for path, said in ((tmp_path / "pipe", "but a pipe"), (tmp_path / "none" / "memo", "its folder is missing")):
        with pytest.raises(akv.errors.StoreError, match=said):
            async with akv.Runtime(sim([say("So.")]), kv=kv, memo_file=path):
                pass


async def test_many_branches_are_rendered_for_their_join_no_more_often_than_it_can_matter(
    runtime: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[int] = []
    begun = joining.begun

    def watched(*args: Any) -> Any:
        rendered.append(len(args[-1]))
        return begun(*args)

    monkeypatch.setattr(joining, "begun", watched)
    graph = forked(akv.all_of(order="arrival"), over=lambda text: range(200), prompt="Do {}.".format, limit=200)
    limits = akv.Limits(steps=500, tokens=10**6)
    async with runtime(Script(lambda prompt, tag: say("So.")), limits=limits) as rt:
        assert (await rt.run(graph, "Go", kv=AHEAD)).output == "So."
    assert rendered == sorted(set(rendered))
    assert 20 < len(rendered) < 100


async def test_what_goes_wrong_behind_a_run_s_end_changes_nothing(
    runtime: Open, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(follower: Follower) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("late")

    monkeypatch.setattr(Follower, "run", late)
    async with runtime([say("So.")]) as rt:
        result = await rt.run(agent(), "Go")
    await store.open()
    ends = [entry["type"] for entry in await store.load(result.id) if entry["type"].startswith("run_")]
    assert (result.output, ends) == ("So.", ["run_started", "run_finished"])


async def test_a_run_begins_once_and_one_that_has_not_is_not_waited_for(runtime: Open) -> None:
    async with runtime([say("So.")]) as rt:
        run, other = rt.start(agent(), "Go"), rt.start(agent(), "Go")
        async with run:
            with pytest.raises(akv.SetupError, match="has begun already"):
                await run.__aenter__()
            await run.result()
        with pytest.raises(akv.SetupError, match="has begun already"):
            await run.__aenter__()
        assert run.report.outcome == "run_finished"
        with anyio.fail_after(5):
            await other.stop()
        async with other:
            with pytest.raises(akv.RunCancelled):
                await other.result()
