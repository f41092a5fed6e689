"""Journals, conversations and block hashes as the prompts that were sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from agentkv.chain import Message
from agentkv.report.demand import RecordedPrompt
from agentkv.trace import HashRequest, HashSession, Trajectory

__all__ = ("CHARACTERS_A_TOKEN", "prompts_of_journal", "prompts_of_sessions", "prompts_of_trajectories")

#: English text and code come near it in most vocabularies; a recorded text has no tokens of its own.
CHARACTERS_A_TOKEN = 4


def prompts_of_journal(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[RecordedPrompt]:
    """The generations of runs, by run id, in the order in which they were asked."""
    found = [prompt for run, events in runs.items() for prompt in _of_run(run, events)]
    return sorted(found, key=lambda prompt: prompt.at or 0.0)


def prompts_of_trajectories(trajectories: Iterable[Trajectory], *, block_size: int) -> list[RecordedPrompt]:
    """One prompt for each turn of an assistant. Tokens are estimated, from the number of characters."""
    return [
        prompt
        for number, trajectory in enumerate(trajectories)
        for prompt in _of_trajectory(f"{number} {trajectory.id}", trajectory, block_size)
    ]


def prompts_of_sessions(sessions: Iterable[HashSession]) -> list[RecordedPrompt]:
    """The requests of sessions, in the order in which they were sent."""
    asked = [(session, request) for session in sessions for request in session.requests]
    asked.sort(key=lambda pair: pair[1].at)
    return [_of_request(session, request) for session, request in asked]


def _of_run(run: str, events: Sequence[Mapping[str, Any]]) -> Iterator[RecordedPrompt]:
    asked: Mapping[str, Any] | None = None
    started: dict[tuple[str, int], float] = {}
    tool: float | None = None
    reached: dict[str, int] = {}
    for event in events:
        kind, at = event["type"], event["at"]
        if kind == "call_started":
            started[event["node"], event["index"]] = at
        elif kind == "call_finished":
            tool = max(tool or 0.0, at - started.get((event["node"], event["index"]), at))
        elif kind == "generation_asked":
            asked = event
        elif kind == "generation_finished" and asked is not None:
            agent, output = asked["agent"], len(event["token_ids"])
            yield RecordedPrompt(
                chain=f"{run} {agent}",
                tokens=event["prompt"],
                output=output,
                # A resume continues the prompt before it; of a first one, what the engine found is what it had seen.
                reused=min(reached.get(agent, event["cached"]), event["prompt"]),
                at=asked["asked_at"],
                end=at,
                wait=event["first_at"] - asked["asked_at"],
                tool=tool,
            )
            reached[agent] = event["prompt"] + output
            asked, tool = None, None


def _of_trajectory(chain: str, trajectory: Trajectory, block_size: int) -> Iterator[RecordedPrompt]:
    size = block_size * CHARACTERS_A_TOKEN
    text = trajectory.system + "".join(f"{tool.name}{tool.description}{tool.parameters}" for tool in trajectory.tools)
    keys: list[int] = []
    latency: float | None = None
    for message, seconds in zip(trajectory.messages, trajectory.latencies, strict=True):
        said = _text(message)
        if message.role == "assistant":
            _extend(keys, text, size)
            yield RecordedPrompt(
                chain=chain,
                tokens=len(text) // CHARACTERS_A_TOKEN,
                output=len(said) // CHARACTERS_A_TOKEN,
                keys=tuple(keys),
                tool=latency,
            )
            latency = None
        elif seconds is not None:
            latency = max(latency or 0.0, seconds)
        text += f"\n{message.role}\n{said}"


def _text(message: Message) -> str:
    return message.content + "".join(f"{call.name}{call.arguments}" for call in message.calls)


def _extend(keys: list[int], text: str, size: int) -> None:
    """Add the keys of the whole blocks of ``text`` that are not there yet."""
    for start in range(len(keys) * size, len(text) - size + 1, size):
        before = keys[-1].to_bytes(8, "big") if keys else b""
        block = before + text[start : start + size].encode("utf-8", "surrogatepass")
        keys.append(int.from_bytes(blake2b(block, digest_size=8).digest(), "big"))


def _of_request(session: HashSession, request: HashRequest) -> RecordedPrompt:
    # A request whose end was not recorded says nothing about which chains were alive together.
    end = request.at + request.duration if request.duration is not None else None
    return RecordedPrompt(
        chain=session.id,
        tokens=request.prompt,
        output=request.output,
        keys=request.hashes[: request.prompt // session.block_size],
        at=request.at if end is not None or len(session.requests) > 1 else None,
        end=end,
        wait=request.ttft,
        tool=request.think if request.after_tool else None,
    )
