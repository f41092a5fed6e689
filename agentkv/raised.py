"""What functions of users' raise, in words that fit into a message, and as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from agentkv.errors import AgentKVError

__all__ = ("guarded", "shown")

# Characters of an exception's text in a message, which a journal keeps.
MOST_SAID = 2000


def shown(error: BaseException) -> str:
    """Kind and text of ``error``, of which at most 2,000 characters, and none that UTF-8 cannot hold.

    The text may be all that a server sent; the exception itself is to be the cause of the error that shows it.
    """
    kind = type(error).__name__
    try:
        said = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - also an exception's own text is made by users
        return f"{kind} (its text cannot be shown)"
    if len(said) > MOST_SAID:
        said = f"{said[:MOST_SAID]} ... and {len(said) - MOST_SAID:,} more characters"
    return f"{kind}: {said}" if said else kind


@contextmanager
def guarded(what: str, failure: type[AgentKVError]) -> Iterator[None]:
    """Have whatever the body raises be a ``failure`` that says that ``what`` raised it.

    The body is a function of the user's, which awaits nothing: a cancellation that it raises is nobody's but its own.
    Only an interrupt and the exit of the process go through.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise failure(f"{what} raised {shown(error)}") from error
