"""Journals, conversations and block hashes as the prompts that were sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from agentkv.chain import Message
from agentkv.errors import JournalError
from agentkv.report.demand import RecordedPrompt
from agentkv.report.early import Early, RecordedResult, Repeats, there_early
from agentkv.report.recorded_run import RecordedRun
from agentkv.tools import ToolCall
from agentkv.trace import HashRequest, HashSession, Trajectory

__all__ = ("CHARACTERS_A_TOKEN", "prompts_of_journal", "prompts_of_sessions", "prompts_of_trajectories")

#: English text and code come near it in most vocabularies; a recorded text has no tokens of its own.
CHARACTERS_A_TOKEN = 4


def prompts_of_journal(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[RecordedPrompt]:
    """The generations of runs, by run id, in the order in which they were asked. Raises ``JournalError``."""
    repeats = Repeats()
    found = [prompt for run, events in runs.items() for prompt in _of_run(run, events, repeats)]
    return sorted(found, key=lambda prompt: prompt.at or 0.0)


def prompts_of_trajectories(trajectories: Iterable[Trajectory], *, block_size: int) -> list[RecordedPrompt]:
    """One prompt for each turn of an assistant. Tokens are estimated, from the number of characters."""
    repeats = Repeats()
    return [
        prompt
        for number, trajectory in enumerate(trajectories)
        for prompt in _of_trajectory(f"{number} {trajectory.id}", trajectory, block_size, repeats)
    ]


def prompts_of_sessions(sessions: Iterable[HashSession]) -> list[RecordedPrompt]:
    """The requests of sessions, in the order in which they were sent."""
    asked = [(session, request) for session in sessions for request in session.requests]
    asked.sort(key=lambda pair: pair[1].at)
    scopes: dict[str, int] = {}
    return [_of_request(session, request, scopes.setdefault(session.scope, len(scopes))) for session, request in asked]


def _of_run(run: str, events: Sequence[Mapping[str, Any]], repeats: Repeats) -> Iterator[RecordedPrompt]:
    recorded = RecordedRun(run, repeats)
    for number, event in enumerate(events):
        try:
            prompt = recorded.take(event)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise JournalError(
                f"record {number} ({event.get('type')!r}) of run {run!r} is not readable ({type(error).__name__}: "
                f"{error}); {JournalError.remedy}"
            ) from error
        if prompt is not None:
            yield prompt


def _of_trajectory(chain: str, trajectory: Trajectory, block_size: int, repeats: Repeats) -> Iterator[RecordedPrompt]:
    size = block_size * CHARACTERS_A_TOKEN
    text = trajectory.system + "".join(f"{tool.name}{tool.description}{tool.parameters}" for tool in trajectory.tools)
    keys: list[int] = []
    had, calls = 0, dict[str, ToolCall]()
    latency: float | None = None
    results: list[RecordedResult] = []
    for message, seconds in zip(trajectory.messages, trajectory.latencies, strict=True):
        said = _text(message)
        if message.role == "assistant":
            _extend(keys, text, size)
            yield RecordedPrompt(
                chain=chain,
                tokens=len(text) // CHARACTERS_A_TOKEN,
                output=len(said) // CHARACTERS_A_TOKEN,
                keys=tuple(keys),
                early=_early(len(text), had, results, repeats, block_size),
                tool=latency,
            )
            latency, results, had = None, [], len(text) + len(said)
            calls = {call.id: call for call in message.calls}
        elif message.role == "tool":
            results.append(RecordedResult(call=calls[message.call_id].key, text=said, at=seconds))
        if message.role != "assistant" and seconds is not None:
            latency = max(latency or 0.0, seconds)
        text += f"\n{message.role}\n{said}"


def _early(
    characters: int, had: int, results: Sequence[RecordedResult], repeats: Repeats, block_size: int
) -> Early | None:
    """Of a conversation's prompt of so many characters, of which the engine ``had`` some."""
    repeated, there = repeats.all_in(results), there_early(results)
    if there is None or not results:
        return None if there is None else Early()
    tokens = (each // CHARACTERS_A_TOKEN for each in (characters, had, there[0]))
    return Early.of(*tokens, repeated=repeated, block_size=block_size, followed=False)


def _text(message: Message) -> str:
    return message.content + "".join(f"{call.name}{call.arguments}" for call in message.calls)


def _extend(keys: list[int], text: str, size: int) -> None:
    """Add the keys of the whole blocks of ``text`` that are not there yet."""
    for start in range(len(keys) * size, len(text) - size + 1, size):
        before = keys[-1].to_bytes(8, "big") if keys else b""
        block = before + text[start : start + size].encode("utf-8", "surrogatepass")
        keys.append(int.from_bytes(blake2b(block, digest_size=8).digest(), "big"))


def _of_request(session: HashSession, request: HashRequest, scope: int) -> RecordedPrompt:
    # A request whose end was not recorded says nothing about which chains were alive together.
    end = request.at + request.duration if request.duration is not None else None
    return RecordedPrompt(
        chain=session.id,
        tokens=request.prompt,
        output=request.output,
        keys=tuple((scope, each) for each in request.hashes[: request.prompt // session.block_size]),
        at=request.at if end is not None or len(session.requests) > 1 else None,
        end=end,
        wait=request.ttft,
        tool=request.think if request.after_tool else None,
    )
