import pytest
from attrs.exceptions import FrozenInstanceError

from agentkv.tools import Context


def test_deps_are_enough_and_stay_out_of_the_repr() -> None:
    context = Context("password")
    assert context.deps == "password"
    assert repr(context) == "Context(run_id='', tool='', call_id='', attempt=1)"


def test_context_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Context(1).attempt = 2  # type: ignore[misc]


async def test_sleep_is_the_runtime_s() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await Context(None, sleep=sleep).sleep(3600)
    assert slept == [3600]


async def test_sleep_works_without_a_runtime() -> None:
    await Context(None).sleep(0)
