"""A journal that was changed by hand, or written by another version, is refused record by record."""

from collections.abc import Callable
from typing import Any

import pytest

import agentkv as akv
from agentkv.errors import JournalError
from agentkv.report import prompts_of_journal
from agentkv.runtime import from_journal, replay
from agentkv.store import MemoryStore
from agentkv.testing import call, say, sim
from agentkv.testing import replay as responder

Entry = dict[str, Any]


@akv.tool
async def depth(at: str) -> str:
    """How deep the river is."""
    return f"2 m at {at}"


@pytest.fixture
async def recorded() -> tuple[Any, list[Entry]]:
    """The program and the journal of a run with one call."""
    store = MemoryStore()
    agent = akv.Agent("reader", instructions="Read.", tools=[depth], max_tokens=64)
    async with akv.Runtime(sim([call("depth", at="the mill"), say("2 m.")]), store=store) as rt:
        async with rt.start(agent, "How deep?") as run:
            await run.result()
        return run._program, await store.load(run.id)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.update(type="novel"), "unknown type 'novel'; read it with the agentkv that wrote it"),
        (lambda entry: entry.pop("type"), "unknown type None"),
        (lambda entry: entry.pop("at"), "'call_finished' record is not readable: TypeError: .*'at'"),
        (lambda entry: entry.update(branch=[{"fork": 1}]), "'call_finished' record is not readable: TypeError"),
        (lambda entry: entry.update(branch=7), "'call_finished' record is not readable: TypeError"),
    ],
)
async def test_a_record_that_no_run_wrote_is_named(
    recorded: tuple[Any, list[Entry]], change: Callable[[Entry], object], message: str
) -> None:
    entry = next(each for each in recorded[1] if each["type"] == "call_finished")
    assert from_journal(entry).type == "call_finished"
    change(entry)
    with pytest.raises(JournalError, match=message):
        from_journal(entry)


@pytest.mark.parametrize("entry", [None, 7, "x", [["type", "run_started"]]])
def test_what_is_no_record_at_all_is_named(entry: Any) -> None:
    with pytest.raises(JournalError, match=r"^the journal holds .* where a record should be; read it with the agentkv"):
        from_journal(entry)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("call_finished", lambda entry: entry.update(index=9)),
        ("generation_finished", lambda entry: entry.update(token_ids="none")),
        ("generation_finished", lambda entry: entry.update(node="elsewhere")),
    ],
)
async def test_a_record_that_does_not_follow_is_named(
    recorded: tuple[Any, list[Entry]], kind: str, change: Callable[[Entry], object]
) -> None:
    program, entries = recorded
    number = next(number for number, each in enumerate(entries) if each["type"] == kind)
    change(entries[number])
    events = [from_journal(each) for each in entries]
    with pytest.raises(JournalError, match=rf"record {number} \('{kind}'\) of run '\w+' does not follow .* restore"):
        replay(program, events)


async def test_other_readers_of_a_journal_name_the_record(recorded: tuple[Any, list[Entry]]) -> None:
    entries = recorded[1]
    assert len(prompts_of_journal({"r": entries})) == 2
    number = next(number for number, each in enumerate(entries) if each["type"] == "generation_finished")
    del entries[number]["token_ids"]
    with pytest.raises(JournalError, match=rf"record {number} \('generation_finished'\) of run 'r' is not readable"):
        prompts_of_journal({"r": entries})
    with pytest.raises(JournalError, match=rf"record {number} is not readable \(KeyError: 'token_ids'\)"):
        responder(entries)


def test_a_time_beyond_all_numbers_is_a_journal_error() -> None:
    asked = {"type": "generation_asked", "agent": "a", "asked_at": 1.0, "at": 1.0}
    finished = {
        "type": "generation_finished",
        "token_ids": [1],
        "cached": 0,
        "prompt": 9,
        "first_at": 10**400,
        "at": 2.0,
    }
    with pytest.raises(JournalError, match=r"record 1 \('generation_finished'\) of run 'r' is not readable \(Overflow"):
        prompts_of_journal({"r": [asked, finished]})
