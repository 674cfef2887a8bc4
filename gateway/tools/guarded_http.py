"""One HTTP request to an address that `url_guard` checked, and its bounded answer.

A connection of its own for each request, closed behind the answer. Nothing of the environment
(proxies, cookies, netrc) is used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.tools.url_guard import Address, CheckedUrl, UrlGuard, UrlRefused
from gateway.upstream.http1_parser import MalformedResponse, ResponseParser
from gateway.upstream.tls_trust import trust
from gateway.wire.compression import Decompressor
from memory import product_name

READ_BYTES = 1 << 16
# For each address.
CONNECT_SECONDS = 5.0
# Of a name that are tried.
MAX_ADDRESSES = 4
# Of one header of a request.
HEADER_CHARACTERS = 8192
REDIRECTS = (301, 302, 303, 307, 308)
# The length of a body, how it is framed and where it goes are the transport's.
RESERVED_HEADERS = frozenset(
    """
    host content-length transfer-encoding connection upgrade te trailer expect
    accept-encoding proxy-authorization proxy-connection keep-alive
    """.split()  # noqa: SIM905
)
PACKED = frozenset({"gzip", "x-gzip", "deflate"})
BODY_HEADERS = ("content-type",)


class RequestFailed(Exception):
    """A request without a whole answer. The text is for the model."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """max_bytes: of the body, unpacked; what is behind them is left out."""

    max_bytes: int = 1 << 20
    redirects: int = 5
    seconds: float = 20.0
    # A redirect leads to no other host.
    same_host: bool = False


@dataclass(frozen=True, slots=True)
class GuardedRequest:
    """A request. headers: by name, without those of the transport."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class GuardedAnswer:
    """An answer. headers: by lower-case name. url: after redirects. is_cut: over the limit."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    is_cut: bool = False


class GuardedHttp:
    """Sends requests through a guard."""

    def __init__(self, guard: UrlGuard) -> None:
        self.guard = guard
        self._tls: ssl.SSLContext | None = None
        self._user_agent = product_name()

    async def send(self, request: GuardedRequest, limits: AnswerLimits) -> GuardedAnswer:
        """Return the answer, after redirects. Raises UrlRefused, RequestFailed."""
        url = self.guard.check(request.url)
        host = url.host
        try:
            async with asyncio.timeout(limits.seconds):
                for _ in range(limits.redirects + 1):
                    answer = await self._send_once(url, request, limits)
                    location = answer.headers.get("location", "")
                    if answer.status not in REDIRECTS or not location:
                        return answer
                    url = self.guard.follow(url, location)
                    if limits.same_host and url.host != host:
                        raise UrlRefused(f"{host} redirects to another host, {url.host}.")
                    request = _redirected(request, answer.status, same_host=url.host == host)
        except TimeoutError:
            raise RequestFailed(f"{host} did not answer within {limits.seconds:g} s.") from None
        raise RequestFailed(f"{host} redirected more than {limits.redirects} times.")

    async def _send_once(
        self, url: CheckedUrl, request: GuardedRequest, limits: AnswerLimits
    ) -> GuardedAnswer:
        head = self._write_head(url, request)
        reader, writer = await self._connect(url)
        try:
            writer.write(head + request.body)
            await writer.drain()
            return await _read_answer(reader, url, request, limits.max_bytes)
        except (OSError, ssl.SSLError, MalformedResponse, zlib.error) as e:
            raise RequestFailed(
                f"{url.host} did not send a whole answer ({type(e).__name__})."
            ) from None
        finally:
            writer.transport.abort()

    async def _connect(self, url: CheckedUrl) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        addresses = await self.guard.find_addresses(url)
        tls_options: dict[str, Any] = {}
        if url.scheme == "https":
            if self._tls is None:
                self._tls = await asyncio.to_thread(_make_tls)
            tls_options = {"ssl": self._tls, "server_hostname": url.host}
        cause = "no address"
        for address in addresses[:MAX_ADDRESSES]:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await _open_streams(address, url.port, tls_options)
            except TimeoutError:
                cause = "no connection in time"
            except ssl.SSLCertVerificationError:
                cause = "its certificate is not valid"
            except OSError as e:
                cause = type(e).__name__
        raise RequestFailed(f"{url.host} cannot be reached ({cause}).")

    def _write_head(self, url: CheckedUrl, request: GuardedRequest) -> bytes:
        headers = {
            "Host": url.authority,
            "User-Agent": self._user_agent,
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "Connection": "close",
        }
        own_names = {name.lower() for name in headers}
        for name, value in request.headers.items():
            if name.lower() in RESERVED_HEADERS:
                continue
            if name.lower() in own_names:
                headers = {n: v for n, v in headers.items() if n.lower() != name.lower()}
            headers[name] = value
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(request.body))
        lines = [f"{request.method} {url.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any(_is_unfit(line) for line in lines):
            raise UrlRefused("a header has a line break or is too long.")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _is_unfit(line: str) -> bool:
    return len(line) > HEADER_CHARACTERS + 256 or any(character in line for character in "\r\n\0")


def _make_tls() -> ssl.SSLContext:
    context = trust()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _open_streams(
    address: Address, port: int, secured: Mapping[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection to exactly this address."""
    is_ipv4 = address.version == 4
    sock = socket.socket(socket.AF_INET if is_ipv4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        where = (str(address), port) if is_ipv4 else (str(address), port, 0, 0)
        await asyncio.get_running_loop().sock_connect(sock, where)
        return await asyncio.open_connection(sock=sock, **secured)
    except BaseException:
        sock.close()
        raise


async def _read_answer(
    reader: asyncio.StreamReader, url: CheckedUrl, request: GuardedRequest, max_bytes: int
) -> GuardedAnswer:
    """Read an answer until its end, or until there are more bytes than allowed."""
    parser = ResponseParser(request.method == "HEAD")
    body = bytearray()
    unpack: Decompressor | None = None
    is_cut = False
    while not parser.is_complete and not is_cut:
        data = await reader.read(READ_BYTES)
        if not data:
            parser.end("")
            if not parser.is_complete:
                raise MalformedResponse(parser.fault)
        else:
            parser.feed(data)
        if parser.status and unpack is None and _is_packed(parser, url.host):
            unpack = Decompressor(members=64)
        while packed_part := parser.take():
            for part in unpack.pieces(packed_part) if unpack is not None else (packed_part,):
                body += part
                if len(body) > max_bytes:
                    is_cut = True
                    break
            if is_cut:
                break
    headers: dict[str, str] = {}
    for name, value in parser.headers:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return GuardedAnswer(parser.status, headers, bytes(body[:max_bytes]), url.text, is_cut=is_cut)


def _is_packed(parser: ResponseParser, host: str) -> bool:
    """Tell whether a body is packed. Raises RequestFailed for a way that was not asked for."""
    encodings = [
        encoding
        for name, value in parser.headers
        if name.lower() == b"content-encoding"
        for encoding in value.decode("latin-1").lower().replace(",", " ").split()
        if encoding != "identity"
    ]
    if len(encodings) > 1 or not PACKED.issuperset(encodings):
        raise RequestFailed(
            f"{host} packed its answer in a way that was not asked for "
            f"({', '.join(encodings)[:80]})."
        )
    return bool(encodings)


def _redirected(request: GuardedRequest, status: int, *, same_host: bool) -> GuardedRequest:
    """Return the request that follows a redirect (RFC 9110, section 15.4)."""
    headers = request.headers if same_host else {}
    becomes_get = status == 303 or (status in (301, 302) and request.method == "POST")
    if not becomes_get or request.method == "HEAD":
        return replace(request, headers=headers, body=request.body if same_host else b"")
    headers = {name: text for name, text in headers.items() if name.lower() not in BODY_HEADERS}
    return replace(request, method="GET", headers=headers, body=b"")
