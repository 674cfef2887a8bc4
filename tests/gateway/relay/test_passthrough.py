"""Of a long relayed event only what may name a model or a usage is read, not its long strings."""

import json
from types import SimpleNamespace

import pytest

from gateway.relay import passthrough
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.wire.model_field import replace_model
from gateway.wire.sse import LONG_BYTES, SseFramer, frame

LONG = "x" * (3 * LONG_BYTES)
USAGE = {"input_tokens": 3}
ESCAPED = 'a "quoted" line\n' * (LONG_BYTES // 8)


def producer(alias, usages):
    meter = SimpleNamespace(record_usage=usages.append)
    forward = SimpleNamespace(meter=meter, alias=alias)
    return PassthroughProducer(forward, RelayedRequest("POST", "/responses", None), True)


def event_of(data, name=b""):
    head = b"event: " + name + b"\n" if name else b""
    framer = SseFramer()
    framer.feed(b": begun\n\n")
    (event,) = framer.feed(head + frame(data))
    return event


@pytest.mark.parametrize("name", [b"", b"response.completed"])
@pytest.mark.parametrize("text", ["short", LONG, ESCAPED, LONG + "\n" + LONG])
@pytest.mark.parametrize("alias", [None, "mine"])
def test_a_long_event_is_edited_as_a_short_one_is(name, text, alias):
    usages = []
    told = {"model": "real", "usage": USAGE, "output": [{"text": text}]}
    data = json.dumps({"type": "response.completed", "response": told}).encode()
    shown = producer(alias, usages)._edit(event_of(data, name))
    wanted = replace_model(data, alias) if alias else data
    assert shown.data == wanted
    assert shown.event_bytes == event_of(wanted, name).event_bytes
    assert usages == [USAGE]


def test_of_a_long_event_no_long_string_is_read(monkeypatch):
    sizes = []

    def watched(data, model):
        sizes.append(len(data))
        return replace_model(data, model)

    monkeypatch.setattr(passthrough, "replace_model", watched)
    data = json.dumps({"response": {"model": "real", "a": LONG, "b": [LONG]}}).encode()
    shown = producer("mine", [])._edit(event_of(data))
    assert json.loads(shown.data)["response"] == {"model": "mine", "a": LONG, "b": [LONG]}
    assert len(sizes) == 1
    assert sizes[0] < LONG_BYTES // 64
