"""The client's own request while the memory is down: forwarded as it came, answered as usual, flagged `degraded`."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.answer import Completing, Head
from gateway.forward import Forwarder, Reply
from gateway.headers import Pairs
from gateway.intercept import Interceptor
from gateway.naming import renamed
from gateway.sse import DONE
from gateway.turn import check, framed, played
from gateway.wire.chat import Json, encode


class PlainWork(Completing):
    """An answer without memory, in both modes."""

    def __init__(self, body: Json, forward: Forwarder, started: float) -> None:
        self._body, self._forward, self._started = body, forward, started
        self.stream = bool(body.get("stream"))
        self._bytes = b""
        self._reply: Reply | None = None

    @property
    def memory(self) -> str:
        return "degraded"

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        options = self._body.get("stream_options")
        wants = isinstance(options, dict) and bool(options.get("include_usage"))
        reply = self._reply = await self._forward.open(lambda _: (self._body, (), None))
        icpt = Interceptor((), wants or not self.stream, self._forward.alias, lean=self.stream)
        try:
            async for shown in played(reply, icpt, self._forward):
                yield shown
        finally:
            await reply.incoming.close()
        rest, result = icpt.close()
        if rest:
            yield framed(rest)
        self._forward.meter.told(result.usage)
        check(result, self._forward, whole=reply.plain is not None)
        alias = self._forward.alias
        self._bytes = (
            renamed(reply.plain, alias)
            if reply.plain and alias
            else reply.plain or encode(icpt.answer())
        )
        yield framed([*icpt.usage_chunk(icpt.usage), DONE])

    def whole(self) -> bytes:
        return self._bytes

    def head(self, *, committed: bool) -> Head:
        return self.shaped(self._reply.headers if self._reply is not None else [])

    def named(self) -> Pairs:
        return [(b"x-memory-status", b"degraded"), *self._forward.named(self._started)]

    def over(self, error: BaseException | None) -> None:
        return
