"""Any OpenAI-compatible server: one request in, one answer out, with the provider's key and clocks."""
from __future__ import annotations

import asyncio
import re
import zlib
from base64 import b64encode
from types import TracebackType
from urllib.parse import unquote, urlsplit

from gateway.errors import BadRequest, StreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from gateway.packing import Unpacker
from gateway.upstream.base import Incoming, Origin, Outgoing, Request, Timeouts, Wire

PACKED = (b"gzip", b"x-gzip", b"deflate")
TICK = 0.001  # seconds; some loops' timers go off that much early
TARGET = re.compile(r"[\x21-\x7e]{1,65536}")
BODYLESS = ("GET", "HEAD", "OPTIONS")  # whose requests need not say that they have no body


class Address:
    """A base URL taken apart. Raises ValueError for what is no http or https address.

    credentials: of an address with `user:password@`, the header for them; None elsewhere.
    """

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("no http or https address")
        host = url.hostname if url.hostname.isascii() else url.hostname.encode("idna").decode()
        usual = 443 if url.scheme == "https" else 80
        self.origin = Origin(url.scheme == "https", host, url.port or usual)
        name = f"[{host}]" if ":" in host else host
        self.host = (name if self.origin.port == usual else f"{name}:{self.origin.port}").encode()
        self.path = url.path
        named = url.netloc.rpartition("@")[0]
        self.credentials = (b"authorization", b"Basic " + b64encode(unquote(named).encode())) if named else None


class OpenAIUpstream:
    """A server that speaks OpenAI's HTTP API.

    base_url: up to and including `/v1`. wire: shared by all upstreams of a provider, or a test's own.
    """

    def __init__(self, base_url: str, wire: Wire, timeouts: Timeouts | None = None) -> None:
        self._wire = wire
        self._timeouts = timeouts or Timeouts()
        self._address: Address | None
        try:
            self._address = Address(base_url.rstrip("/"))
        except ValueError:  # told to who calls it: the gateway starts all the same
            self._address = None

    async def send(self, request: Outgoing) -> Incoming:
        """See the port. The clocks: connect, then first_token until the first body byte, idle between bytes, total."""
        clock = Clock(self._timeouts, request.until)
        built = self._request(request)
        try:
            with clock:
                incoming = await self._wire.call(built, self._timeouts.connect)
        except BaseException:
            clock.stop()
            raise
        headers = incoming.headers
        packed = request.method != "HEAD" and (incoming.header(b"content-encoding") or b"").strip().lower() in PACKED
        if packed:  # plain was asked for; who sends packed all the same is unpacked here, once, and the headers say so
            headers = [(k, v) for k, v in headers if k.lower() not in (b"content-encoding", b"content-length")]
        return Incoming(incoming.status, headers, _Body(incoming, clock, packed))

    def _request(self, request: Outgoing) -> Request:
        address = self._address
        if address is None:
            raise UpstreamUnreachable("The provider's base_url is no http or https address, so it cannot be reached. Check it in the configuration.")
        target = address.path + request.path
        if not TARGET.fullmatch(target):
            raise BadRequest("The path and query cannot be sent on: they have more than 64 KB, or other than printable characters.")
        headers = [*request.headers]
        if address.credentials is not None and not any(k == b"authorization" for k, _ in headers):
            headers.append(address.credentials)
        if request.body is not None or request.method not in BODYLESS:
            headers.append((b"content-length", b"%d" % len(request.body or b"")))
        return Request(address.origin, address.host, request.method, target.encode(), headers, request.body)


class Clock:
    """The limits of one call: whichever runs out first, while it is waited for, names the error.

    One timer for all of a call's waits, since a stream has one for every piece: entering a wait notes when it has to be over; the
    timer, when it goes off, looks whether that time has come, and else sets itself anew. Use: `with clock: await ...`, then `stop`.
    """

    __slots__ = ("_cancelling", "_ends", "_fired", "_limit", "_loop", "_phase", "_task", "_timeouts", "_timer", "_until", "_when")

    def __init__(self, timeouts: Timeouts, until: float = float("inf")) -> None:
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        start = self._loop.time()
        self._ends = min(start + timeouts.total, until)
        self._phase = "first_token"
        self._limit = start + timeouts.first_token  # the phase's own
        self._until = min(self._limit, self._ends)
        self._timer: asyncio.TimerHandle | None = None
        self._when = 0.0  # by the loop's time: when the timer goes off
        self._task: asyncio.Task[object] | None = None  # who waits
        self._cancelling = 0
        self._fired = False

    def idle(self) -> None:
        """From now on silence is what is limited."""
        self._phase = "idle"

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        if self._phase == "idle":
            self._limit = self._loop.time() + self._timeouts.idle
            self._until = min(self._limit, self._ends)
        if self._timer is None or self._when > self._until:
            self._set()
        self._task = task = asyncio.current_task()
        self._cancelling = task.cancelling() if task is not None else 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._fired and task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            # As asyncio.timeout does: where somebody else cancelled as well, the caller is the one who left.
            raise self._told() from error

    def _set(self) -> None:
        self.stop()
        self._when = self._until
        self._timer = self._loop.call_at(self._when, self._rang)

    def _rang(self) -> None:
        self._timer = None
        if self._task is None:
            return  # nobody waits: the next who does sets it anew
        if self._until - self._loop.time() > TICK:
            self._set()
            return
        self._fired = True
        self._task.cancel()

    def _told(self) -> UpstreamTimeout:
        phase = self._phase if self._limit <= self._ends else "total"
        limit = getattr(self._timeouts, phase)
        code = "stream_idle_timeout" if phase == "idle" else f"{phase}_timeout"
        return UpstreamTimeout(
            f"The upstream was silent past its {phase} limit of {limit:g} s. Try again, or raise `timeouts.{phase}` of its provider.", code=code)


class _Body:
    """Body bytes as they arrive. An object, not a generator: closing one that was never iterated must work too."""

    __slots__ = ("_clock", "_incoming", "_unpack")

    def __init__(self, incoming: Incoming, clock: Clock, packed: bool) -> None:
        self._incoming, self._clock = incoming, clock
        self._unpack = Unpacker() if packed else None

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            part = b""
            while not part:
                with self._clock:
                    part = await anext(self._incoming.body)
                if self._unpack is not None:
                    part = self._unpack.feed(part)
            self._clock.idle()
            return part
        except zlib.error as e:
            await self.aclose()
            raise StreamIncomplete(f"The upstream's answer broke off ({e}). Try again.") from e
        except StopAsyncIteration:
            await self.aclose()
            if self._unpack is not None and not self._unpack.whole:
                raise StreamIncomplete("The upstream's compressed answer broke off. Try again.") from None
            raise
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        self._clock.stop()
        await self._incoming.close()
