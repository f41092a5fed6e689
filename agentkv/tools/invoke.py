"""Runs one call of a tool and says what came of it."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from attrs import evolve, frozen
from pydantic import ValidationError

from agentkv.errors import AgentKVError, ToolError, ToolFailed, ToolRetry
from agentkv.raised import shown
from agentkv.tools.arguments import explain
from agentkv.tools.attended import attended
from agentkv.tools.call import Outcome, ToolCall
from agentkv.tools.context import Context
from agentkv.tools.definition import Tool
from agentkv.tools.serialize import clean_text, dump

__all__ = ("ToolClock", "invoke")


# Pieces of a stream that are taken at a time.
FAIR = 16
# Pieces of a stream that may come while no time passes: on a simulated clock, which stands still while a tool works,
# neither a timeout nor anything else would ever end one that goes on.
MOST_AT_ONCE = 1_000_000


class ToolClock(Protocol):
    """The part of an engine's clock that a call needs."""

    def now(self) -> float: ...

    def deadline(self, seconds: float | None) -> AbstractAsyncContextManager[anyio.CancelScope]: ...

    def busy(self) -> AbstractAsyncContextManager[None]: ...


@frozen
class _Ended:
    """How the function ended: with a value or with an exception."""

    value: object = None
    error: BaseException | None = None


async def invoke(
    tool: Tool[Any, ..., Any],
    call: ToolCall,
    context: Context[Any],
    clock: ToolClock,
    *,
    limiter: CapacityLimiter | None = None,
    on_text: Callable[[str], None] | None = None,
    on_left: Callable[[], None] = lambda: None,
) -> Outcome:
    """Check the arguments of ``call``, run ``tool`` within its timeout and turn the result into text.

    ``on_text`` is given each chunk of an async generator as it comes. If the generator then fails or takes too
    long, the outcome keeps what it gave and says why there is no more.

    ``limiter`` bounds the worker threads of ``def`` tools (None: anyio's own limit); waiting for one counts
    against no timeout. A thread cannot be stopped: at a timeout or a cancellation it is left to run on, no
    longer counted by the limiter. So is an async tool that has not ended ``attended.PATIENCE`` seconds after it was
    cancelled. ``on_left`` is called then. Whatever a tool does after its deadline, the outcome is ``"timeout"``.

    Raises ``ToolError`` when the tool raises an exception of its own or returns something without a JSON
    form. A cancellation of the caller always passes through.
    """
    try:
        positional, keywords = tool.arguments.bind(call.arguments)
    except ValidationError as error:
        return Outcome("invalid", explain(tool.name, error))
    except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything
        return _judge(tool, error)
    function = partial(tool.function, *((context,) if tool.takes_context else ()), *positional, **keywords)
    await checkpoint()  # delivers a cancellation asked for earlier, before the tool begins
    stream = _Stream(tool.name, on_text, on_left)
    async with _worker(tool, limiter), clock.deadline(tool.timeout) as scope:
        ended = await _attempt(tool, function, clock, stream)
    await checkpoint_if_cancelled()  # also if the tool ended in the same moment
    if scope.cancelled_caught:
        text = f"`{tool.name}` timed out after {tool.timeout:g} s."
        return stream.cut_short(Outcome("timeout", text, abandoned=stream.left))
    if ended.error is not None:
        return stream.cut_short(_judge(tool, ended.error))
    return _told(tool, ended.value)


class _Stream:
    """What a tool has given so far, piece by piece, and whether it was left behind."""

    def __init__(self, name: str, on_text: Callable[[str], None] | None, on_left: Callable[[], None]) -> None:
        self.left = False
        self._name, self._on_text, self._on_left = name, on_text, on_left
        self._chunks: list[str] = []
        self._moved = (0.0, 0)

    @property
    def text(self) -> str:
        return "".join(self._chunks)

    @property
    def count(self) -> int:
        return len(self._chunks)

    def leave(self) -> None:
        """Nobody waits for the tool any more, though it goes on."""
        self.left = True
        self._on_left()

    def add(self, chunk: object) -> None:
        text = _text(self._name, chunk)
        if self.left:
            raise asyncio.CancelledError
        self._chunks.append(text)
        if self._on_text is not None:
            self._on_text(text)

    def check(self, now: float) -> None:
        """Raise ``ToolError`` if the stream goes on and on while time stands still."""
        at, count = self._moved
        if now != at:
            self._moved = now, self.count
        elif self.count - count > MOST_AT_ONCE:
            raise ToolError(
                f"tool {self._name!r} yielded more than {MOST_AT_ONCE:,} pieces while no time passed on the simulated "
                "clock, which waits for it: let it end, or await ctx.sleep() between pieces"
            )

    def cut_short(self, outcome: Outcome) -> Outcome:
        """``outcome``, which says why the stream ended, behind what it gave."""
        return evolve(outcome, text=clean_text(self.text), note=outcome.text) if self._chunks else outcome


async def _attempt(tool: Tool[Any, ..., Any], function: partial[Any], clock: ToolClock, stream: _Stream) -> _Ended:
    """Run the function to its end, whatever that is, or leave it behind when cancelled."""
    async with clock.busy():
        try:
            return await attended(partial(_outlast, tool, function, clock, stream), stream.leave)
        except asyncio.CancelledError:
            if tool.kind == "sync":
                stream.leave()
            raise


async def _outlast(tool: Tool[Any, ..., Any], function: partial[Any], clock: ToolClock, stream: _Stream) -> _Ended:
    """How the function ends.

    An exception does not tell whether the call was cancelled: tools swallow cancellations, turn them into
    errors of their own, and await things that others cancelled. Who waits for this knows.
    """
    try:
        return _Ended(value=await _run(tool, function, clock, stream))
    except BaseExceptionGroup as group:
        if group.subgroup((KeyboardInterrupt, SystemExit)):
            raise
        return _Ended(error=group)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - tools may raise anything
        return _Ended(error=error)


async def _run(tool: Tool[Any, ..., Any], function: partial[Any], clock: ToolClock, stream: _Stream) -> object:
    match tool.kind:
        case "async":
            return await function()
        case "stream":
            async with aclosing(function()) as chunks:
                async for chunk in chunks:
                    stream.add(chunk)
                    if not stream.count % FAIR:
                        # A generator need not wait for anything itself: others, and its deadline, have their turn.
                        await checkpoint()
                        stream.check(clock.now())
            return stream.text
        case "sync":
            # the caller holds the worker's slot already, so that queueing for it is outside the deadline
            slot = CapacityLimiter(1)
            return await to_thread.run_sync(_call, tool.name, function, abandon_on_cancel=True, limiter=slot)


def _call(name: str, function: partial[Any]) -> object:
    value = function()
    return "".join(_text(name, chunk) for chunk in value) if inspect.isgenerator(value) else value


def _text(name: str, chunk: object) -> str:
    if not isinstance(chunk, str):
        raise ToolError(f"tool {name!r} yielded a {type(chunk).__qualname__}; a streaming tool yields str only")
    return chunk


@asynccontextmanager
async def _worker(tool: Tool[Any, ..., Any], limiter: CapacityLimiter | None) -> AsyncIterator[None]:
    if tool.kind != "sync":
        yield
        return
    limiter = limiter or to_thread.current_default_thread_limiter()
    borrower = object()
    await limiter.acquire_on_behalf_of(borrower)
    try:
        yield
    finally:
        limiter.release_on_behalf_of(borrower)


def _judge(tool: Tool[Any, ..., Any], error: BaseException) -> Outcome:
    """The outcome that ``error`` stands for; raises ``ToolError`` when it is not meant for the model."""
    leaves = list(_leaves(error))
    if all(isinstance(leaf, ToolRetry | ToolFailed) for leaf in leaves):
        retry = isinstance(leaves[0], ToolRetry)
        default = f"`{tool.name}` asks for another try." if retry else f"`{tool.name}` failed."
        return Outcome("retry" if retry else "failed", clean_text(str(leaves[0])) or default)
    if isinstance(error, ToolError):
        raise error
    remedy = "raise ToolRetry or ToolFailed for what the model should hear of"
    raise ToolError(f"tool {tool.name!r} raised {shown(error)}; {remedy}") from error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _told(tool: Tool[Any, ..., Any], value: object) -> Outcome:
    try:
        return Outcome("ok", dump(value))
    except AgentKVError as error:
        returned = type(value).__qualname__
        raise ToolError(f"tool {tool.name!r} returned a {returned} that the model cannot be given: {error}") from error
    except Exception as error:  # noqa: BLE001 - a serializer of the user's may raise anything
        return _judge(tool, error)
