"""The client's own request while the memory is down: forwarded as it came, answered as usual,
flagged `degraded`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.chat.interceptor import Interceptor
from gateway.chat.round_stream import raise_for_incomplete, sse_frames, stream_round
from gateway.http.response import CompletionProducer, ResponseHead
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.replies import CompletionReply
from gateway.wire.chat import Json, encode
from gateway.wire.headers import Pairs
from gateway.wire.model_field import replace_model
from gateway.wire.sse import DONE


class DegradedChatProducer(CompletionProducer):
    """An answer without memory, in both modes."""

    def __init__(self, body: Json, forward: Dispatcher, started: float) -> None:
        super().__init__(stream=bool(body.get("stream")))
        self._body, self._forward, self._started = body, forward, started
        self._bytes = b""
        self._reply: CompletionReply | None = None

    @property
    def memory(self) -> str:
        return "degraded"

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        options = self._body.get("stream_options")
        wants = isinstance(options, dict) and bool(options.get("include_usage"))
        reply = self._reply = await self._forward.complete(lambda _: (self._body, (), None))
        icpt = Interceptor((), wants or not self.stream, self._forward.alias, lean=self.stream)
        try:
            async for shown in stream_round(reply, icpt, self._forward):
                yield shown
        finally:
            await reply.incoming.close()
        rest, result = icpt.close()
        if rest:
            yield sse_frames(rest)
        self._forward.meter.record_usage(result.usage)
        raise_for_incomplete(result, self._forward, whole=reply.plain is not None)
        alias = self._forward.alias
        self._bytes = (
            replace_model(reply.plain, alias)
            if reply.plain and alias
            else reply.plain or encode(icpt.answer())
        )
        yield sse_frames([*icpt.usage_chunk(icpt.usage), DONE])

    def whole(self) -> bytes:
        return self._bytes

    def build_head(self, *, committed: bool) -> ResponseHead:
        return self.completion_head(self._reply.headers if self._reply is not None else [])

    def extra_headers(self) -> Pairs:
        return [(b"x-memory-status", b"degraded"), *self._forward.target_headers(self._started)]

    def on_finish(self, error: BaseException | None) -> None:
        return
