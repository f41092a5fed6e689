"""Exceptions of users' in messages: short, whatever they say, and there is none that goes round us."""

import asyncio

import pytest

from agentkv.errors import NodeError
from agentkv.raised import MOST_SAID, guarded, shown


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("so"), "ValueError: so"),
        (KeyError(), "KeyError"),
        (SpeechlessError(), "SpeechlessError (its text cannot be shown)"),
        (OSError("a\ud800"), "OSError: a\\ud800"),
        (ValueError("x" * (MOST_SAID + 5)), f"ValueError: {'x' * MOST_SAID} ... and 5 more characters"),
    ],
)
def test_an_exception_is_shown(error: Exception, said: str) -> None:
    assert shown(error) == said


@pytest.mark.parametrize("error", [ValueError("so"), SpeechlessError(), asyncio.CancelledError(), GeneratorExit()])
def test_what_a_function_raises_is_an_error_of_ours(error: BaseException) -> None:
    with pytest.raises(NodeError, match=f"it raised {type(error).__name__}") as caught, guarded("it", NodeError):
        raise error
    assert caught.value.__cause__ is error


def test_an_interrupt_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt), guarded("it", NodeError):
        raise KeyboardInterrupt
