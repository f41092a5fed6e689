"""The body of an HTTP response as text, while it arrives."""

import codecs
from collections.abc import AsyncGenerator, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from agentkv.errors import SetupError, ToolFailed
from agentkv.stream.decoder import text_decoder

if TYPE_CHECKING:
    import httpx

__all__ = ("http",)

MOST_REDIRECTS = 5
# Seconds without a byte.
QUIET = 30.0
# What httpx unpacks with a known bound: a thousand times what came, at the most. Several at once are a bomb.
UNPACKED = {"gzip", "deflate", "identity"}


async def http(
    url: str,
    *,
    hosts: Collection[str],
    headers: Mapping[str, str] | None = None,
    most_bytes: int = 10_000_000,
    timeout: float = QUIET,
) -> AsyncGenerator[str, None]:
    """GET ``url`` and yield the body as it comes, decoded as the response says, or as UTF-8.

    ``hosts`` are the only ones that are ever contacted, also through redirects: names, as ``"example.org"``, or names
    with a port, as ``"localhost:8000"``; a name alone allows the scheme's own port. ``headers`` are sent to the first
    host alone, and not on from https to http. No proxy and no stored credentials are used. ``timeout`` bounds the
    silence between two pieces, in seconds; ``most_bytes`` the text, unpacked and in UTF-8.

    Raises ``ToolFailed`` for what the model may hear of: a host that is not allowed, a status of 400 or more, more than
    ``most_bytes``, a body packed in another way than gzip or deflate, a connection that fails. Raises ``SetupError``
    where httpx is not installed, and for arguments of another type.
    """
    httpx = _httpx()
    _check_types(url, hosts)
    _check_options(headers, most_bytes, timeout)
    sent, own = dict(headers or {}), {"Accept-Encoding": "gzip, deflate"}
    try:
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, headers=own) as client:
            for _ in range(MOST_REDIRECTS + 1):
                _check(url, hosts)
                async with client.stream("GET", url, headers=sent) as response:
                    if response.has_redirect_location:
                        there = _there(url, response.headers["location"])
                        sent, url = sent if _as_safe(url, there) else {}, there
                        continue
                    async for text in _body(response, most_bytes):
                        yield text
                    return
        raise ToolFailed(f"{_host(url)} redirects more than {MOST_REDIRECTS} times")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ToolFailed(f"{_host(url)}: {type(error).__name__}") from error


async def _body(response: "httpx.Response", most_bytes: int) -> AsyncGenerator[str, None]:
    if response.status_code >= 400:
        raise ToolFailed(f"{response.url.host} answered with status {response.status_code}")
    host, decoder = response.url.host, _decoder(response.charset_encoding)
    packed = [name.lower() for name in response.headers.get_list("content-encoding", True) if name]
    if not UNPACKED.issuperset(packed) or len(packed) > 1:
        raise ToolFailed(f"{host} packs its answer in a way that is not read here: gzip and deflate are")
    got = 0
    try:
        async for data in response.aiter_bytes():
            text = decoder.decode(data)
            # Of the text and not of what came over the wire: a few compressed bytes can be a lot of text.
            got += len(text.encode("utf-8", "surrogatepass"))
            if got > most_bytes:
                raise ToolFailed(f"{host} sent more than {most_bytes} bytes")
            if text:
                yield text
        if text := decoder.decode(b"", final=True):
            yield text
    except UnicodeError as error:
        raise ToolFailed(f"{host} sent text that is not in the encoding that it names") from error


def _decoder(named: str | None) -> codecs.IncrementalDecoder:
    """What reads the charset that a server names, which may be none, or none of text."""
    try:
        return text_decoder(named or "utf-8")
    except (LookupError, TypeError, ValueError):
        return text_decoder("utf-8")


def _there(url: str, location: str) -> str:
    """Where a redirect leads."""
    try:
        there = urljoin(url, location)
        urlsplit(there)
    except ValueError:
        raise ToolFailed(f"{_host(url)} redirects to what is no URL") from None
    return there


def _as_safe(url: str, there: str) -> bool:
    """Whether a secret that was sent to ``url`` may go ``there``: to the same host, and not newly in the clear."""
    before, after = urlsplit(url), urlsplit(there)
    return after.netloc == before.netloc and after.scheme in (before.scheme, "https")


def _check_types(url: object, hosts: object) -> None:
    if isinstance(hosts, str):
        raise SetupError(f"stream.http(hosts={hosts!r}) takes a collection of hosts, as [{hosts!r}]")
    if not isinstance(hosts, Collection) or not all(isinstance(host, str) for host in hosts):
        raise SetupError(f"stream.http(hosts={hosts!r}) takes a collection of names, as ['example.org']")
    if not isinstance(url, str):
        raise SetupError(f"stream.http() takes a URL as text, not {type(url).__name__}")


def _check_options(headers: object, most_bytes: object, timeout: object) -> None:
    if headers is not None and not (
        isinstance(headers, Mapping)
        and all(isinstance(part, str) and part.isascii() for pair in headers.items() for part in pair)
    ):
        # Headers hold secrets: none is shown.
        raise SetupError("stream.http(headers=...) must be a mapping of text to text, in ASCII, or None")
    if not isinstance(most_bytes, int) or most_bytes < 1:
        raise SetupError(f"stream.http(most_bytes={most_bytes!r}) must be a number of bytes, 1 or more")
    if not isinstance(timeout, int | float) or not 0 < timeout < inf:
        raise SetupError(f"stream.http(timeout={timeout!r}) must be a number of seconds, more than 0")


def _check(url: str, hosts: Collection[str]) -> None:
    """Raise ``ToolFailed`` unless ``url`` may be asked for."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ToolFailed("the URL is not one") from None
    if parts.scheme not in ("http", "https"):
        raise ToolFailed(f"URLs begin with http:// or https://, not {parts.scheme!r}")
    if parts.username is not None or parts.password is not None:
        raise ToolFailed("a URL with a user name or a password is refused")
    name = (parts.hostname or "").lower()
    allowed = {host.lower() for host in hosts}
    own = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    if not (f"{name}:{port}" in allowed or (own and name in allowed)):
        raise ToolFailed(f"host {_host(url)!r} is not allowed here")


def _host(url: str) -> str:
    """Host and port for a message: nothing of the rest, which may hold secrets."""
    return urlsplit(url).netloc.rpartition("@")[2][:100]


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise SetupError("stream.http() needs httpx: pip install 'agentkv[http]'") from None
    return httpx
