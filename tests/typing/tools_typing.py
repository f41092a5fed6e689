"""What a type checker must accept and refuse about tools; checked by mypy, never run."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic, TypeVar, assert_type

from attrs import frozen

from agentkv.tools import Context, Tool, tool

DepsT = TypeVar("DepsT")


@frozen
class Shop:
    url: str


@frozen
class BookShop(Shop):
    shelf: int


@frozen
class Bank:
    iban: str


@frozen
class Order:
    id: str


class Agent(Generic[DepsT]):
    def __init__(self, tools: Sequence[Tool[DepsT, ..., Any]], deps: type[DepsT]) -> None: ...


@tool
async def find_order(ctx: Context[Shop], order_id: str) -> Order:
    return Order(order_id)


@tool(timeout=3, read_only=True, keep="head+tail")
def price(ctx: Context[Shop], order_id: str, currency: str = "EUR") -> float:
    return 1.0


@tool(name="log")
async def build_log(ctx: Context[BookShop], job: str) -> AsyncIterator[str]:
    yield job


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool(retries=0)
async def ping() -> str:
    return "pong"


@tool
def balance(ctx: Context[Bank]) -> float:
    return 0.0


async def calls(shop: Context[Shop], books: Context[BookShop], bank: Context[Bank]) -> None:
    assert_type(await find_order(shop, "17"), Order)
    assert_type(await find_order(books, order_id="17"), Order)
    assert_type(price(shop, "17", currency="SEK"), float)
    assert_type(add(1, b=2), int)
    assert_type(await ping(), str)
    async for chunk in build_log(books, "j"):
        assert_type(chunk, str)
    await find_order(bank, "17")  # type: ignore[arg-type]
    await find_order(shop, 17)  # type: ignore[arg-type]
    add(1)  # type: ignore[call-arg]
    add(1, 2, c=3)  # type: ignore[call-arg]


def agents() -> None:
    assert_type(Agent([find_order, price, add, ping], Shop), Agent[Shop])
    Agent(tools=[find_order, build_log, add], deps=BookShop)
    Agent(tools=[add, ping], deps=type(None))
    Agent(tools=[balance], deps=Bank)
    Agent(tools=[balance, add], deps=Shop)  # type: ignore[list-item]
    Agent(tools=[build_log], deps=Shop)  # type: ignore[misc]
    Agent(tools=[find_order], deps=type(None))  # type: ignore[misc]


def options() -> None:
    tool(keep="middle")  # type: ignore[call-overload]
    tool(timeout="3")  # type: ignore[call-overload]
    assert_type(price.timeout, float | None)
    assert_type(Context(Shop("u")), Context[Shop])
    Context(Shop("u")).deps = Shop("v")  # type: ignore[misc]
