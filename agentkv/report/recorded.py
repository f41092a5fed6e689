"""Journals, conversations and block hashes as the prompts that were sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from attrs import define, field

from agentkv.chain import Message
from agentkv.errors import JournalError
from agentkv.report.demand import RecordedPrompt
from agentkv.trace import HashRequest, HashSession, Trajectory

__all__ = ("CHARACTERS_A_TOKEN", "prompts_of_journal", "prompts_of_sessions", "prompts_of_trajectories")

#: English text and code come near it in most vocabularies; a recorded text has no tokens of its own.
CHARACTERS_A_TOKEN = 4


def prompts_of_journal(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[RecordedPrompt]:
    """The generations of runs, by run id, in the order in which they were asked. Raises ``JournalError``."""
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
    scopes: dict[str, int] = {}
    return [_of_request(session, request, scopes.setdefault(session.scope, len(scopes))) for session, request in asked]


@define
class _Branch:
    """What a run's main chain, or a branch of it, has come to."""

    name: str
    fork: str | None
    asked: Mapping[str, Any] | None = None
    started: dict[tuple[str, int], float] = field(factory=dict)
    tool: float | None = None
    reached: dict[str, int] = field(factory=dict)

    def called(self, event: Mapping[str, Any]) -> None:
        """A call was started, or has ended."""
        call, at = (event["node"], event["index"]), event["at"]
        if event["type"] == "call_started":
            self.started[call] = at
        else:
            self.tool = max(self.tool or 0.0, at - self.started.get(call, at))

    def finished(self, event: Mapping[str, Any]) -> RecordedPrompt | None:
        """The prompt that was asked last, now that its answer is there."""
        asked, self.asked = self.asked, None
        if asked is None:
            return None
        agent, output = asked["agent"], len(event["token_ids"])
        # A resume continues the prompt before it; of a first one, what the engine found is what it had seen.
        reused = min(self.reached.get(agent, event["cached"]), event["prompt"])
        self.reached[agent] = event["prompt"] + output
        tool, self.tool = self.tool, None
        return RecordedPrompt(
            chain=f"{self.name} {agent}",
            fork=self.fork,
            tokens=event["prompt"],
            output=output,
            reused=reused,
            at=asked["asked_at"],
            end=event["at"],
            wait=event["first_at"] - asked["asked_at"],
            tool=tool,
        )


def _of_run(run: str, events: Sequence[Mapping[str, Any]]) -> Iterator[RecordedPrompt]:
    branches: dict[str, _Branch] = {}
    for number, event in enumerate(events):
        try:
            prompt = _take(branches, run, event)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise JournalError(
                f"record {number} ({event.get('type')!r}) of run {run!r} is not readable ({type(error).__name__}: "
                f"{error}); {JournalError.remedy}"
            ) from error
        if prompt is not None:
            yield prompt


def _take(branches: dict[str, _Branch], run: str, event: Mapping[str, Any]) -> RecordedPrompt | None:
    """Take note of an event; the prompt that it was the end of, if it was."""
    path = event.get("branch") or ()
    branch = branches.setdefault(str(path), _branch(run, path))
    if event["type"] in ("call_started", "call_finished"):
        branch.called(event)
    elif event["type"] == "generation_asked":
        branch.asked = event
    elif event["type"] == "generation_finished":
        return branch.finished(event)
    return None


def _branch(run: str, path: Sequence[Mapping[str, Any]]) -> _Branch:
    """``path`` names the branch by fork, visit and label, outermost first; empty on the main chain."""
    if not path:
        return _Branch(name=run, fork=None)
    last = path[-1]
    return _Branch(name=f"{run} {path}", fork=f"{run} {path[:-1]} {last.get('node')} {last.get('visit')}")


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
