"""HTTP bodies as a stream of text, from a server on this machine."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio

from agentkv.errors import SetupError, ToolFailed
from agentkv.stream import http

Writer = asyncio.StreamWriter
Answer = Callable[[dict[str, str], Writer], Awaitable[None]]
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"


class Server:
    """Answers each path by a function; ``requests`` are the headers that came."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[dict[str, str]] = []
        self.port = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def handle(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.requests.append(headers)
        await self.answers[path](headers, writer)
        writer.close()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.handle, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield found


def says(*parts: bytes, head: str = HEAD) -> Answer:
    async def answer(_: dict[str, str], writer: Writer) -> None:
        writer.write(head.encode())
        for part in parts:
            writer.write(part)
            await writer.drain()

    return answer


def moves(to: str) -> Answer:
    return says(head=f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def read(url: str, **options: Any) -> str:
    return "".join([text async for text in http(url, **options)])


async def test_it_yields_while_the_body_arrives(server: Server) -> None:
    first_read = asyncio.Event()

    async def answer(_: dict[str, str], writer: Writer) -> None:
        writer.write(HEAD.encode() + "caf\u00e9, ".encode())
        await writer.drain()
        await first_read.wait()
        writer.write(b"tea")

    server.answers["/"] = answer
    seen: list[str] = []
    async for text in http(server.url("/"), hosts=[f"127.0.0.1:{server.port}"]):
        seen.append(text)
        first_read.set()
    assert "".join(seen) == "café, tea"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.org/secret?key=1", "host 'example.org' is not allowed here"),
        ("http://127.0.0.1:1/", "host '127.0.0.1:1' is not allowed here"),
        ("http://good.example:81/", "host 'good.example:81' is not allowed here"),
        ("http://good.example@evil.example/", "a URL with a user name or a password is refused"),
        ("file:///etc/passwd", "URLs begin with http:// or https://, not 'file'"),
        ("good.example", "URLs begin with"),
        ("http://[::1", "the URL is not one"),
        ("http://good.example:x/", "the URL is not one"),
    ],
)
async def test_only_allowed_hosts_are_asked(url: str, why: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        await read(url, hosts=["good.example", "127.0.0.1"])
    assert str(failed.value).startswith(why)


async def test_a_redirect_stays_within_the_allowed_hosts_and_takes_no_secrets_elsewhere(server: Server) -> None:
    server.answers |= {"/out": moves("http://evil.example/"), "/on": moves("/there"), "/there": says(b"here")}
    server.answers["/other"] = moves(server.url("/there", "localhost"))
    here, there = f"127.0.0.1:{server.port}", f"localhost:{server.port}"
    with pytest.raises(ToolFailed, match=r"host 'evil\.example' is not allowed"):
        await read(server.url("/out"), hosts=[here])
    assert await read(server.url("/on"), hosts=[here], headers={"x-key": "k"}) == "here"
    assert [request.get("x-key") for request in server.requests[-2:]] == ["k", "k"]
    assert await read(server.url("/other"), hosts=[here, there], headers={"x-key": "k"}) == "here"
    assert [request.get("x-key") for request in server.requests[-2:]] == ["k", None]


@pytest.mark.parametrize(("first", "then", "sent"), [("https", "http", None), ("http", "https", "k")])
async def test_a_redirect_takes_no_secrets_from_https_to_http(
    monkeypatch: pytest.MonkeyPatch, first: str, then: str, sent: str | None
) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("x-key"))
        moved = {"location": f"{then}://good.example/b"}
        return httpx.Response(200, text="here") if request.url.path == "/b" else httpx.Response(302, headers=moved)

    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=httpx.MockTransport(answer)))
    assert await read(f"{first}://good.example/a", hosts=["good.example"], headers={"x-key": "k"}) == "here"
    assert seen == ["k", sent]


async def test_a_circle_of_redirects_ends(server: Server) -> None:
    server.answers["/"] = moves("/")
    with pytest.raises(ToolFailed, match="redirects more than 5 times"):
        await read(server.url("/"), hosts=[f"127.0.0.1:{server.port}"])


async def test_errors_and_long_bodies_are_failures_that_the_model_hears_of(server: Server) -> None:
    packed = HEAD.replace("Connection", "Content-Encoding: gzip\r\nConnection")
    server.answers |= {
        "/": says(head="HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        "/long": says(*[b"x" * 1000] * 50),
        "/packed": says(gzip.compress(b"x" * 1_000_000), head=packed),
    }
    hosts = [f"127.0.0.1:{server.port}"]
    with pytest.raises(ToolFailed, match=r"^127\.0\.0\.1 answered with status 404$"):
        await read(server.url("/"), hosts=hosts)
    for path in ("/long", "/packed"):
        with pytest.raises(ToolFailed, match="sent more than 20000 bytes"):
            await read(server.url(path), hosts=hosts, most_bytes=20_000)
    with pytest.raises(ToolFailed, match="ConnectError"):
        await read("http://127.0.0.1:9/", hosts=["127.0.0.1:9"], timeout=5)


@pytest.mark.parametrize(
    ("charset", "heard"), [("hex", "caf\ufffd"), ("undefined", "caf\ufffd"), ("idna", "caf\ufffd"), ("latin-1", "café")]
)
async def test_a_charset_that_is_none_of_text_is_read_as_utf_8(server: Server, charset: str, heard: str) -> None:
    server.answers["/"] = says(b"caf\xe9", head=HEAD.replace("utf-8", charset))
    assert await read(server.url("/"), hosts=[f"127.0.0.1:{server.port}"]) == heard


@pytest.mark.parametrize("named", ["GZIP", "Identity", ""])
async def test_how_a_body_is_packed_is_named_in_any_case(server: Server, named: str) -> None:
    body = gzip.compress(b"here") if named == "GZIP" else b"here"
    server.answers["/"] = says(body, head=HEAD.replace("Connection", f"Content-Encoding: {named}\r\nConnection"))
    assert await read(server.url("/"), hosts=[f"127.0.0.1:{server.port}"]) == "here"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (HEAD.replace("utf-8", "utf-16"), "sent text that is not in the encoding that it names"),
        (HEAD.replace("Connection", "Content-Encoding: gzip, gzip\r\nConnection"), "packs its answer in a way"),
        (HEAD.replace("Connection", "Content-Encoding: zstd\r\nConnection"), "packs its answer in a way"),
        (HEAD.replace("200 OK", "302 Found\r\nLocation: http://["), "redirects to what is no URL"),
    ],
)
async def test_a_server_that_lies_is_something_that_the_model_hears_of(server: Server, head: str, why: str) -> None:
    server.answers["/"] = says(b"abc", head=head)
    with pytest.raises(ToolFailed, match=rf"^127\.0\.0\.1\S* {why}"):
        await read(server.url("/"), hosts=[f"127.0.0.1:{server.port}"])


@pytest.mark.parametrize(
    "options",
    [{"timeout": "1"}, {"timeout": -1}, {"most_bytes": 0}, {"headers": "a"}, {"headers": {"key": 1}}],
)
async def test_options_of_another_kind_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=r"^stream\.http\(\w+="):
        await read("http://127.0.0.1:9/", hosts=["127.0.0.1:9"], **options)


async def test_hosts_as_one_string_are_a_mistake() -> None:
    with pytest.raises(SetupError, match=r"as \['example\.org'\]"):
        await read("http://example.org/", hosts="example.org")


@pytest.mark.parametrize(
    ("url", "hosts"), [("http://example.org/", [5]), ("http://example.org/", None), (5, []), (None, [])]
)
async def test_a_url_or_hosts_of_another_type_are_refused(url: Any, hosts: Any) -> None:
    with pytest.raises(SetupError, match=r"^stream\.http\("):
        await read(url, hosts=hosts)
