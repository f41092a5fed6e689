"""A subprocess' output as text, while it runs."""

import codecs
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath

import anyio
from anyio.abc import Process

from agentkv.errors import ToolError, ToolFailed
from agentkv.stream.decoder import text_decoder

__all__ = ("process",)

# Seconds between the request to end and the end that nobody can refuse; and, after a process has ended, of waiting for
# what it left behind, which is looked at so often.
GRACE = 2.0
LOOK = 0.2
# Bytes that are read after a process has ended: more than a pipe and its reader hold of the process' own.
LEFT_OVER = 2 << 20
MOST_BYTES = 100_000_000


async def process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    encoding: str = "utf-8",
    most_bytes: int = MOST_BYTES,
) -> AsyncGenerator[str, None]:
    """Run ``argv`` and yield what it writes, standard error included, as it comes.

    No shell is involved: each element is one argument as it is. Standard input is empty. ``env`` replaces the
    environment. Bytes that are not in ``encoding`` become U+FFFD. When the tool is cancelled or times out, the process
    and those in its group are ended: asked first, then killed. What it leaves running when it ends is waited for two
    more seconds at most, and then ended too.

    Raises ``ToolFailed`` with the exit status if that is not 0 and ``check`` is set, and for more than ``most_bytes``.
    Raises ``ToolError`` where ``argv`` is no list or empty, or cannot be run, and where ``encoding`` is none of text or
    cannot read what comes.
    """
    _check(argv, most_bytes)
    decoder, child = _decoder(encoding), await _start(argv, cwd, env)
    name, got = PurePath(os.fsdecode(argv[0])).name, 0
    try:
        async for data in _output(child):
            got += len(data)
            if got > most_bytes:
                raise ToolFailed(f"{name} wrote more than {most_bytes} bytes")
            if text := decoder.decode(data):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text
        status = await child.wait()
    except UnicodeError as error:
        raise ToolError(f"stream.process(encoding={encoding!r}) cannot read what {name} writes: {error}") from error
    finally:
        with anyio.CancelScope(shield=True):
            await _end(child)
    if check and status:
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise ToolFailed(f"{name} {ended}")


def _check(argv: object, most_bytes: object) -> None:
    if isinstance(argv, str | bytes) or not isinstance(argv, Sequence) or not argv:
        raise ToolError(f"stream.process() takes a list of arguments, as ['git', 'log']; got {argv!r}")
    if not isinstance(most_bytes, int) or most_bytes < 1:
        raise ToolError(f"stream.process(most_bytes={most_bytes!r}) must be a number of bytes, 1 or more")


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    try:
        return text_decoder(encoding)
    except (LookupError, TypeError, ValueError) as error:
        raise ToolError(f"stream.process(encoding={encoding!r}) must name an encoding of text: {error}") from error


async def _start(
    argv: Sequence[str | os.PathLike[str]], cwd: str | os.PathLike[str] | None, env: Mapping[str, str] | None
) -> Process:
    try:
        # Of a session of its own, so that what it starts can be ended with it.
        return await anyio.open_process(
            [os.fspath(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError, TypeError) as error:
        raise ToolError(f"stream.process() cannot run {argv[0]!r}: {error}") from error


async def _output(child: Process) -> AsyncGenerator[bytes, None]:
    """What the process writes; what it started and left behind may hold the pipe open for as long as it lives."""
    assert child.stdout is not None
    # Only time in which nothing comes is counted: a reader that is slow is to get all that the process wrote.
    patience, left = GRACE, LEFT_OVER
    while patience > 0 and left > 0:
        data, since = b"", anyio.current_time()
        with anyio.move_on_after(min(LOOK, patience)):
            try:
                data = await child.stdout.receive()
            except anyio.EndOfStream:
                return
        if child.returncode is not None:
            patience -= anyio.current_time() - since
            left -= len(data)
        if data:
            yield data


async def _end(child: Process) -> None:
    """End the process and its group, if they still run, and close the pipes."""
    if child.returncode is None:
        _signal(child, 15)
        with anyio.move_on_after(GRACE):
            await _ended(child)
    _signal(child, 9)
    await _ended(child)
    await child.aclose()


async def _ended(child: Process) -> None:
    """Return when the process has ended, whoever else holds its pipe: ``wait`` before anyio 4.15 waits for these."""
    while child.returncode is None:
        with anyio.move_on_after(LOOK):
            await child.wait()


def _signal(child: Process, number: int) -> None:
    """Send a signal to the child's group, which may outlive the child."""
    if child.returncode is not None and _exists(child.pid):
        # A group that has members keeps its number from being given again: this process has nothing to do with ours.
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _exists(pid: int) -> bool:
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    return True
