"""What arrives has a bound, whichever side it comes from, and the error names it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest

from gateway.wire.json_weight import is_readable
from memory.context.tokens import estimate_at_once
from memory.conversation.foreign_json import decode_foreign
from tests.conftest import running
from tests.e2e.responses.test_conversations import ADA
from tests.long_work import noted
from tests.models import Model, call, calls
from tests.wire_models import MessagesModel, ResponsesModel, pieces, use

STORES = {
    "providers": {"openai": {"base_url": "set below", "wires": ["chat", "responses"]}},
    "models": {"*": {"targets": [{"provider": "openai", "stateful": True}]}},
}
MIB = 1 << 20


def object_of(size):
    return b'{"id":"conv_1","object":"conversation","x":"%b"}' % (b"a" * size)


MANY = b"{" + b",".join(b'"a%d":1' % i for i in range(150_000)) + b"}"


def answering(body):
    """A server that answers everything with these bytes."""
    return Model(lambda seen, wire: wire.answer(200, body))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (object_of(9 * MIB), "more than 8 MiB"),
        (
            MANY,
            "100000 members of one object",
        ),
        (b"[" + b"{}," * 600_000 + b"{}]", "500000 JSON values"),
    ],
)
async def test_a_stored_object_of_the_providers_is_read_within_a_limit(data, body, words):
    async with answering(body) as up, running(up.url, data, STORES) as live:
        http = await live.http.post(f"{live.url}/conversations", json={}, headers=ADA)
        assert http.status_code == 502, http.text[:200]
        assert words in http.json()["error"]["message"]


async def test_a_stored_object_of_up_to_8_mib_is_passed_on(data):
    sent = object_of(7 * MIB)
    async with answering(sent) as up, running(up.url, data, STORES) as live:
        http = await live.http.post(f"{live.url}/conversations", json={}, headers=ADA)
        assert (http.status_code, http.json()["id"]) == (200, "conv_1")


FLOOD = b": still thinking\n\n" * 4000


def flooding(seconds, head=b""):
    """A server that sends nothing but comments for so long."""

    async def flood(seen, wire):
        await wire.start_stream()
        until = asyncio.get_running_loop().time() + seconds
        await wire.part(head or b": hello\n\n")
        with contextlib.suppress(OSError):
            while asyncio.get_running_loop().time() < until:
                await wire.part(FLOOD)

    return Model(flood)


@pytest.mark.parametrize("mode", ["off", "full"])
async def test_comments_before_the_first_event_are_bounded(data, mode):
    async with flooding(20) as up, running(up.url, data) as live:
        began = time.perf_counter()
        http = await live.chat("hi", {"x-memory": mode}, stream=True)
        assert time.perf_counter() - began < 10
        assert http.status_code == 502
        assert "128 KiB of comments" in http.json()["error"]["message"]


EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize("mode", ["off", "full"])
@pytest.mark.parametrize("piece", [EVENT, b": hello\n\n", FLOOD])
async def test_the_total_limit_holds_while_bytes_keep_arriving(data, mode, piece):
    async def trickle(seen, wire):
        await wire.start_stream()
        await wire.part(EVENT)
        with contextlib.suppress(OSError):
            for _ in range(2000):
                await wire.part(piece)
                await asyncio.sleep(0 if piece is FLOOD else 0.01)

    limits = {"providers": {"openai": {"base_url": "set below", "timeouts": {"total": 1}}}}
    async with Model(trickle) as up, running(up.url, data, limits) as live:
        began = time.perf_counter()
        http = await live.chat("hi", {"x-memory": mode}, stream=True)
        assert 0.5 < time.perf_counter() - began < 4
        assert "total_timeout" in http.text[-500:]
        assert "timeouts.total" in http.text[-500:]


ALIAS = {"models": {"nice": {"targets": [{"provider": "openai", "model": "real"}]}}}


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("size", [10, 3 * MIB, 40 * MIB])
async def test_an_alias_names_a_whole_answer_of_any_length(data, place, size):
    members = [b'"model":"real"', b'"data":"%b"' % (b"a" * size)]
    if place == "last":
        members.reverse()
    sent = b"{%b}" % b",".join(members)
    async with answering(sent) as up, running(up.url, data, ALIAS) as live:
        http = await live.http.post(f"{live.url}/embeddings", json={"model": "nice", "input": "x"})
        assert http.status_code == 200
        assert http.content == sent.replace(b"real", b"nice")


WHOLE_HEAD = b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
# Of an answer that is read ahead, and of what the sockets hold.
HELD_BACK = 2 * MIB


@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_long_whole_answer_of_an_alias_is_not_held(data, place):
    """Law: it reaches the client as it comes, but for so much; its last part waits for that."""
    model, part, count = b'"model":"real"', b"a" * MIB, 16
    head, tail = (model + b',"data":"', b'"') if place == "first" else (b'"data":"', b'",' + model)
    has_arrived, is_in_time = asyncio.Event(), []

    async def last_when_the_others_arrived(seen, wire):
        parts = [b"{" + head, *[part] * count, tail + b"}"]
        length = sum(map(len, parts))
        await wire.raw(WHOLE_HEAD % length)
        for each in parts[:-1]:
            await wire.raw(each)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(has_arrived.wait(), 10)
        is_in_time.append(has_arrived.is_set())
        await wire.raw(parts[-1])

    async with Model(last_when_the_others_arrived) as up, running(up.url, data, ALIAS) as live:
        sent, size = {"model": "nice", "input": "x"}, 0
        async with live.http.stream("POST", f"{live.url}/embeddings", json=sent) as answer:
            async for piece in answer.aiter_raw():
                size += len(piece)
                if size >= count * MIB - HELD_BACK:
                    has_arrived.set()
        assert answer.status_code == 200
        assert size == len(head) + count * MIB + len(tail) + 2
        assert is_in_time == [True]


@pytest.mark.parametrize("piece", [0, MIB // 32, 8 * MIB], ids=["whole", "pieces", "one piece"])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_arguments_that_are_too_long_go_nowhere(data, monkeypatch, path, piece):
    """Law: a memory call of megabytes is refused by its size, and kept by no round or record.

    It is read beside the event loop, in as many or as few events as it comes.
    """
    monkeypatch.setattr(pieces, "__defaults__", (piece,))
    monkeypatch.setattr(Model, "argument_piece", piece)
    long = {"label": "human", "content": "words " * MIB}
    if path == "chat/completions":
        up = Model(calls(call("core_memory_append", long)), "Fine.")
    elif path == "responses":
        up = ResponsesModel([use("core_memory_append", long)], "Fine.")
    else:
        up = MessagesModel([use("core_memory_append", long)], "Fine.")
    sent = {"model": "m", "stream": piece > 0}
    if path == "responses":
        sent["input"] = "hi"
    else:
        sent |= {"max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    kinds = {"providers": {"openai": {"base_url": "set below", "kind": "anthropic"}}}
    async with up, running(up.url, data, kinds if path == "messages" else None) as live:
        with noted(is_readable, decode_foreign, estimate_at_once) as work:
            http = await live.http.post(f"{live.url}/{path}", json=sent, headers=ADA)
        assert http.status_code == 200, http.text
        assert "Fine." in http.text
        assert work.on_loop == []
        assert work.beside or (piece == MIB // 32 and path == "chat/completions")
        again = json.dumps(up.requests[-1].json)
        assert len(again) < 50_000
        # It names what the provider keeps.
        assert "left_out" in again or path == "responses"
        assert "at most 100000 are allowed" in again
