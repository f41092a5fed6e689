"""What every store does: the two are held against the contract, and against each other."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.errors import StoreError
from agentkv.store import MemoryStore, RunSummary, SQLiteStore, Store

Make = Callable[[], Store]


async def test_what_is_appended_is_loaded_in_order(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        await store.append("a", 0, {"type": "start", "ids": (1, 2)})
        await store.append("b", 0, {"type": "start"})
        await store.append("a", 1, {"type": "end", "text": "å\n\0\U0001f600"})
        assert await store.load("a") == [
            {"type": "start", "ids": [1, 2]},
            {"type": "end", "text": "å\n\0\U0001f600"},
        ]
        assert await store.load("b") == [{"type": "start"}]
        assert await store.runs() == [
            RunSummary(run_id="a", events=2, first="start", last="end"),
            RunSummary(run_id="b", events=1, first="start", last="start"),
        ]


async def test_an_unknown_run_is_named(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        assert await store.runs() == []
        with pytest.raises(StoreError, match="no run 'nowhere'"):
            await store.load("nowhere")


@pytest.mark.parametrize(
    ("seq", "problem"), [(0, "is in the journal already"), (2, "would leave a gap"), (-1, "would leave a gap")]
)
async def test_numbers_are_contiguous(make_store: Make, seq: int, problem: str) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        await store.append("a", 0, {"type": "x"})
        with pytest.raises(StoreError, match=f"event {seq} of run 'a' {problem}; the next is 1"):
            await store.append("a", seq, {"type": "y"})
        with pytest.raises(StoreError, match="the next is 0"):
            await store.append("b", 1, {"type": "y"})
        assert [summary.run_id for summary in await store.runs()] == ["a"]
        await store.append("a", 1, {"type": "y"})


@pytest.mark.parametrize(
    "event",
    [{}, {"type": 1}, {"type": "x", "a": b""}, {"type": "x", "a": float("nan")}, {"type": "x", ("a",): 1}],
    ids=repr,
)
async def test_an_event_that_is_no_json_object_is_refused_whole(make_store: Make, event: dict[str, Any]) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        with pytest.raises(StoreError, match="event 0 of run 'a'"):
            await store.append("a", 0, event)
        assert await store.runs() == []


async def test_lone_surrogates_survive(make_store: Make) -> None:
    event = {"type": "x\udc00", "text": "a\ud800b\U0001f600å"}
    async with aclosing(make_store()) as store:
        await store.open()
        await store.append("a", 0, event)
        assert await store.load("a") == [event]
        with pytest.raises(StoreError, match="lone surrogate"):
            await store.append("\ud800", 0, {"type": "x"})


async def test_nothing_is_shared_with_the_caller(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        event = {"type": "x", "ids": [1]}
        await store.append("a", 0, event)
        event["ids"] = []
        loaded = await store.load("a")
        loaded[0]["ids"].append(2)
        assert await store.load("a") == [{"type": "x", "ids": [1]}]


async def test_only_an_open_store_works_and_both_ends_may_be_repeated(make_store: Make) -> None:
    store = make_store()
    await store.aclose()
    for _ in range(2):
        for operation in (store.append("a", 1, {"type": "x"}), store.load("a"), store.runs()):
            with pytest.raises(StoreError, match=r"not open; await open\(\) first"):
                await operation
        await store.open()
        await store.open()
        if not await store.runs():
            await store.append("a", 0, {"type": "x"})
        assert await store.load("a") == [{"type": "x"}]
        await store.aclose()
        await store.aclose()


async def test_many_runs_append_at_once(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.open()

        async def run(name: str) -> None:
            for seq in range(20):
                await store.append(name, seq, {"type": "x", "n": seq})

        async with anyio.create_task_group() as tasks:
            for index in range(50):
                tasks.start_soon(run, f"run {index}")
        assert {(summary.run_id, summary.events) for summary in await store.runs()} == {
            (f"run {i}", 20) for i in range(50)
        }
        assert [event["n"] for event in await store.load("run 7")] == list(range(20))


async def test_of_two_that_claim_a_number_one_gets_it(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        claims = (store.append("a", 0, {"type": "x", "n": n}) for n in range(10))
        results = await asyncio.gather(*claims, return_exceptions=True)
        assert results[0] is None
        assert all(isinstance(result, StoreError) for result in results[1:])
        assert await store.load("a") == [{"type": "x", "n": 0}]


def test_summaries_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        RunSummary(run_id="a", events=1, first="x", last="x").events = 2  # type: ignore[misc]


run_ids = st.sampled_from(["a", "b", "å\0", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
events = st.fixed_dictionaries({"type": st.text(st.characters(), max_size=3)}, optional={"value": values})
operations = st.one_of(
    st.tuples(st.just("append"), run_ids, st.integers(-1, 6), events),
    st.tuples(st.just("next"), run_ids, st.just(0), events),
    st.tuples(st.sampled_from(["load", "runs", "open", "aclose", "reopen"]), run_ids),
)


async def _apply(store: Store, lengths: dict[str, int], operation: tuple[Any, ...]) -> Any:
    try:
        match operation:
            case ("append", run_id, seq, event):
                return await store.append(run_id, seq, event)
            case ("next", run_id, _, event):
                await store.append(run_id, lengths.get(run_id, 0), event)
                lengths[run_id] = lengths.get(run_id, 0) + 1
            case ("load", run_id):
                return await store.load(run_id)
            case ("runs", _):
                return await store.runs()
            case ("reopen", _):
                await store.aclose()
                await store.open()
            case (name, _):
                await getattr(store, name)()
    except StoreError as error:
        return str(error).partition(" is not open")[2] or str(error)
    return None


@settings(max_examples=40)
@given(st.lists(operations, max_size=25))
def test_both_stores_behave_alike(sequence: list[tuple[Any, ...]]) -> None:
    async def outcomes(store: Store) -> list[Any]:
        lengths: dict[str, int] = {}
        await store.open()
        try:
            return [await _apply(store, lengths, operation) for operation in (*sequence, ("reopen", ""), ("runs", ""))]
        finally:
            await store.aclose()

    with tempfile.TemporaryDirectory() as folder:
        in_file = asyncio.run(outcomes(SQLiteStore(Path(folder) / "runs.db")))
    assert repr(in_file) == repr(asyncio.run(outcomes(MemoryStore())))


async def test_ways_are_counted_for_each_tenant_and_graph_apart(make_store: Make) -> None:
    async with aclosing(make_store()) as store:
        await store.open()
        assert await store.counts("", "graph") == {}
        await store.count("", "graph", {("a", "b"): 2, ("a", "END"): 1})
        await store.count("", "graph", {("a", "b"): 1})
        await store.count("tenant", "graph", {("a", "c"): 5})
        assert await store.counts("", "graph") == {("a", "b"): 3, ("a", "END"): 1}
        assert await store.counts("tenant", "graph") == {("a", "c"): 5}
        assert await store.counts("tenant", "other") == {}
        assert await store.runs() == []
        with pytest.raises(StoreError, match="surrogate"):
            await store.count("", "graph", {("a", "\ud800"): 1})
    with pytest.raises(StoreError, match="open"):
        await store.counts("", "graph")
