"""A stream in another format: what cannot be read breaks it off, and is told once."""

from __future__ import annotations

import pytest

from gateway.apis.translation.messages_reply_from_chat import MessagesReply
from gateway.apis.translation.messages_reply_to_chat import StreamedAnswer
from gateway.apis.translation.reply_stream import BridgedStream
from gateway.apis.translation.responses_reply_to_chat import StreamedResponse
from gateway.errors import StreamIncomplete
from gateway.upstream.base import UpstreamResponse
from gateway.upstream.translated_body import translate_response

TRANSLATORS = {
    "messages at chat": lambda: BridgedStream(MessagesReply("m", "x")),
    "chat at messages": lambda: StreamedAnswer(1),
    "chat at responses": lambda: StreamedResponse(0, False, bool),
}


async def sent(data):
    yield data


async def read(translator, data):
    response = UpstreamResponse(200, [], sent(data))
    return b"".join([part async for part in translate_response(response, translator).body])


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("data", [b'{"a": NaN}', b'{"a"', b'{"a": "\xff"}'])
async def test_an_object_that_nobody_can_read_breaks_the_stream_off(name, data):
    with pytest.raises(StreamIncomplete) as caught:
        await read(TRANSLATORS[name](), b"data: " + data + b"\n\n")
    assert str(caught.value).count("the upstream sent") == 1


@pytest.mark.parametrize("name", ["chat at messages", "chat at responses"])
async def test_what_is_no_object_is_passed_over(name):
    assert await read(TRANSLATORS[name](), b"data: ping\n\ndata: [DONE]\n\n") == b""
