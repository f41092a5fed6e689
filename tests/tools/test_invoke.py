import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from agentkv.errors import ToolError, ToolFailed, ToolRetry
from agentkv.tools import Context, Outcome, Tool, tool

Ask = Callable[..., Awaitable[Outcome]]


class Item(BaseModel):
    name: str
    count: int = 1


async def test_arguments_and_context_reach_an_async_tool(ask: Ask) -> None:
    @tool
    async def order(ctx: Context[str], items: list[Item], gift: bool = False) -> dict[str, Any]:
        return {"who": ctx.deps, "call": ctx.call_id, "items": items, "gift": gift}

    outcome = await ask(order, '{"items": [{"name": "å"}]}', deps="Ada")
    assert outcome == Outcome("ok", '{"who":"Ada","call":"call_0001","items":[{"name":"å","count":1}],"gift":false}')


async def test_positional_only_and_keyword_only_parameters(ask: Ask) -> None:
    @tool
    def f(ctx: Context[None], a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert await ask(f, '{"d": 9, "a": 1}') == Outcome("ok", "[1,2,3,9]")
    assert await ask(f, '{"a": 1, "b": 5, "c": 6}') == Outcome("ok", "[1,5,6,4]")


async def test_a_default_is_the_function_s_own_object(ask: Ask) -> None:
    marker = object()

    @tool
    async def f(x: Any = marker) -> bool:
        return x is marker

    assert await ask(f) == Outcome("ok", "true")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("{}", ["- items: Field required"]),
        ('{"items": [{"name": 1, "count": "2"}]}', ["- items.0.name: ", "- items.0.count: "]),
        ('{"items": [], "extra": 1, "a0": 2}', ["- extra: Extra", "- a0: Extra"]),
        ('{"items": ', ["- Invalid JSON"]),
        ("[1]", ["- Input should be an object"]),
    ],
)
async def test_wrong_arguments_are_explained_field_by_field(ask: Ask, arguments: str, lines: list[str]) -> None:
    @tool
    async def order(items: list[Item]) -> None:
        raise AssertionError("must not run")

    outcome = await ask(order, arguments)
    first, *rest = outcome.text.splitlines()
    assert (outcome.status, first) == ("invalid", "Invalid arguments for `order`:")
    assert len(rest) == len(lines)
    assert all(line.startswith(start) for line, start in zip(rest, lines, strict=True))
    assert "http" not in outcome.text
    assert await ask(order, arguments) == outcome


async def test_the_explanation_is_short_however_large_the_arguments(ask: Ask) -> None:
    @tool
    async def f(items: list[int]) -> None: ...

    huge = '"' + "x" * 100_000 + '"'
    for arguments in (
        f'{{"items": [{", ".join([huge] * 100)}]}}',
        f'{{"items": [], {huge}: 1}}',
        f'{{"items": {huge}}}',
    ):
        outcome = await ask(f, arguments)
        assert outcome.status == "invalid"
        assert len(outcome.text) < 2_000
    many = await ask(f, '{"items": [' + ",".join(["null"] * 30) + "]}")
    assert many.text.endswith("- and 20 more")


async def test_a_tool_s_own_validation_error_is_not_the_model_s_fault(ask: Ask) -> None:
    @tool
    async def f() -> None:
        Item.model_validate({})

    with pytest.raises(ToolError, match="tool 'f' raised ValidationError"):
        await ask(f)


async def test_validators_may_speak_to_the_model_or_break(ask: Ask) -> None:
    def check(value: int) -> int:
        if value == 0:
            raise ToolRetry("Not 0.")
        return 1 // (value - 1)

    @tool
    async def f(x: Annotated[int, AfterValidator(check)]) -> None: ...

    assert await ask(f, '{"x": 0}') == Outcome("retry", "Not 0.")
    with pytest.raises(ToolError, match="tool 'f' raised ZeroDivisionError"):
        await ask(f, '{"x": 1}')


def _raiser(error: BaseException, kind: str) -> Tool[Any, ..., Any]:
    async def coroutine() -> str:
        raise error

    async def stream() -> AsyncIterator[str]:
        yield "a"
        raise error

    def plain() -> str:
        raise error

    def chunks() -> Iterator[str]:
        yield "a"
        raise error

    functions: dict[str, Any] = {"async": coroutine, "stream": stream, "sync": plain, "chunks": chunks}
    made: Tool[Any, ..., Any] = tool(name="f")(functions[kind])
    return made


KINDS = pytest.mark.parametrize("kind", ["async", "stream", "sync", "chunks"])


@KINDS
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ToolRetry("Give a\ud800 date."), Outcome("retry", "Give a\ufffd date.")),
        (ToolRetry(), Outcome("retry", "`f` asks for another try.")),
        (ToolFailed("No such order."), Outcome("failed", "No such order.")),
        (ToolFailed(), Outcome("failed", "`f` failed.")),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [ToolRetry("Again.")]), ToolFailed("x")]),
            Outcome("retry", "Again."),
        ),
    ],
    ids=repr,
)
async def test_two_exceptions_speak_to_the_model(ask: Ask, kind: str, error: Exception, outcome: Outcome) -> None:
    told = await ask(_raiser(error, kind))
    # an async generator's chunk stays, and the reason stands behind it
    assert (told.status, told.note or told.text) == (outcome.status, outcome.text)


@KINDS
@pytest.mark.parametrize(
    "error",
    [
        KeyError("secret"),
        TimeoutError(),
        ExceptionGroup("g", [ToolRetry("x"), ValueError("y")]),
        BaseExceptionGroup("g", [asyncio.CancelledError()]),
    ],
    ids=repr,
)
async def test_any_other_exception_ends_the_run_and_names_the_tool(ask: Ask, kind: str, error: BaseException) -> None:
    with pytest.raises(
        ToolError, match=rf"^tool 'f' raised {type(error).__name__}.*raise ToolRetry or ToolFailed"
    ) as raised:
        await ask(_raiser(error, kind))
    assert raised.value.__cause__ is error


async def test_of_a_very_long_exception_the_beginning_is_shown(ask: Ask) -> None:
    with pytest.raises(ToolError, match=r"raised ValueError: x{2000} \.\.\. and 998,000 more characters; raise"):
        await ask(_raiser(ValueError("x" * 1_000_000), "async"))


@pytest.mark.parametrize("kind", ["async", "stream"])
async def test_a_cancellation_that_nobody_asked_for_is_the_tool_s_error(ask: Ask, kind: str) -> None:
    with pytest.raises(ToolError, match="tool 'f' raised CancelledError"):
        await ask(_raiser(asyncio.CancelledError(), kind))
    assert (await ask(_raiser(ToolRetry("x"), kind))).status == "retry"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("g", [KeyboardInterrupt()])], ids=repr)
def test_an_interrupt_is_nobody_s_outcome(ask: Ask, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await ask(_raiser(error, "async"))

    with pytest.raises(type(error)):
        asyncio.run(main())
    gc.collect()
    assert caplog.messages == []


@pytest.mark.parametrize(
    "value", [b"x", object(), float("nan"), {1: "a", "1": "b"}], ids=lambda value: type(value).__name__
)
async def test_a_result_without_json_form_is_the_programmer_s_mistake(ask: Ask, value: object) -> None:
    @tool
    async def f() -> object:
        return value

    with pytest.raises(
        ToolError, match=rf"^tool 'f' returned a {type(value).__name__} that the model cannot be given: "
    ):
        await ask(f)


async def test_streams_are_collected_whole(ask: Ask) -> None:
    @tool
    async def stream(n: int) -> AsyncIterator[str]:
        for i in range(n):
            yield f"{i} "

    @tool
    def chunks(n: int) -> Iterator[str]:
        for i in range(n):
            yield f"{i} "

    for each in (stream, chunks):
        assert await ask(each, '{"n": 3}') == Outcome("ok", "0 1 2 ")
        assert await ask(each, '{"n": 0}') == Outcome("ok", "")


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (ToolFailed("exit status 2"), "failed", "exit status 2"),
        (ToolRetry("again, please"), "retry", "again, please"),
        (None, "timeout", "`log` timed out after 0.1 s."),
    ],
)
async def test_a_stream_that_ends_early_keeps_what_it_gave_and_says_why(
    ask: Ask, error: Exception | None, status: Any, note: str
) -> None:
    @tool(timeout=0.1)
    async def log() -> AsyncIterator[str]:
        yield "one, "
        yield "two"
        if error is not None:
            raise error
        await asyncio.sleep(10)

    outcome = await ask(log)
    assert outcome == Outcome(status, "one, two", note=note)
    assert outcome.whole == f"one, two\n{note}"


async def test_a_stream_that_gave_nothing_ends_as_any_tool_does(ask: Ask) -> None:
    @tool
    async def log() -> AsyncIterator[str]:
        for line in ():
            yield line
        raise ToolFailed("no log")

    assert await ask(log) == Outcome("failed", "no log")


async def test_chunks_are_passed_on_as_they_come(ask: Ask) -> None:
    seen: list[str] = []

    @tool
    async def log() -> AsyncIterator[str]:
        for n in range(3):
            assert len(seen) == n
            yield f"{n} "

    assert await ask(log, on_text=seen.append) == Outcome("ok", "0 1 2 ")
    assert seen == ["0 ", "1 ", "2 "]


async def test_a_stream_yields_text_only(ask: Ask) -> None:
    @tool
    async def stream() -> AsyncIterator[Any]:
        yield 1

    @tool
    def chunks() -> Iterator[Any]:
        yield 1

    for each in (stream, chunks):
        with pytest.raises(ToolError, match=f"^tool '{each.name}' yielded a int; a streaming tool yields str only"):
            await ask(each)
