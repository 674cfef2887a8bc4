"""J. The relay's edges: aliases inside events and forms, cut streams, HEAD and OPTIONS."""

from __future__ import annotations

import json

import pytest

from tests.e2e.wire.rows import row
from tests.e2e.wire.test_other_streams import (
    ENDS,
    MESSAGE,
    START,
    asked,
    numbered,
    parsed,
    sending,
    told,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


@row(151)
@pytest.mark.parametrize("cut", [False, True, "reset"])
@pytest.mark.parametrize("model", ["m", "alias"])
@pytest.mark.parametrize("half", [b"", b'event: response.output_text.delta\ndata: {"type":"resp'])
async def test_a_cut_response_ends_with_a_failed_event(shared, cut, model, half):
    shared.up.script = [sending(told(*numbered(*START)) + half, cut=cut)]
    found = parsed((await asked(shared, "/responses", model)).text)
    assert [name for name, _ in found[:-1]] == [e["type"] for e in START]
    name, last = found[-1]
    assert (name, last["type"], last["sequence_number"]) == (
        "response.failed",
        "response.failed",
        len(START),
    )
    assert (last["response"]["status"], last["response"]["id"]) == ("failed", "resp_1")
    assert last["response"]["error"]["code"] == "stream_incomplete"
    assert isinstance(last["response"]["error"]["message"], str)


@row(151)
async def test_a_whole_response_stream_has_nothing_added(shared):
    for end in ENDS:
        raw = told(*numbered(*START, ENDS[end]))
        shared.up.script = [sending(raw)]
        assert (await asked(shared, "/responses")).content == raw


@row(26, 151)
async def test_an_alias_is_the_model_inside_response_events(shared):
    shared.up.script = [sending(told(*numbered(*START, ENDS["completed"])), 17)]
    found = parsed((await asked(shared, "/responses", "alias")).text)
    assert [d["response"]["model"] for _, d in found if "response" in d] == ["alias", "alias"]
    assert [n for n, _ in found] == [e["type"] for e in (*START, ENDS["completed"])]
    assert [d["sequence_number"] for _, d in found] == [0, 1, 2, 3]


@row(26, 152)
async def test_an_alias_is_the_model_inside_message_events(shared):
    shared.up.script = [sending(MESSAGE, 17)]
    found = parsed((await asked(shared, "/messages", "alias")).text)
    assert found[0][1]["message"]["model"] == "alias"
    assert found[-1] == ("message_stop", {"type": "message_stop"})


@row(15, 150)
@pytest.mark.parametrize("boundary", ["b", '"b"'])
async def test_an_alias_in_a_form_is_the_targets_name_upstream(shared, boundary):
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n--b\r\n'
        b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff\r\n--b--\r\n'
    )
    shared.up.script = [lambda seen, wire: wire.json({"text": "x"})]
    response = await shared.live.http.post(
        f"{shared.live.url}/audio/transcriptions",
        content=form % b"alias",
        headers={"content-type": f"multipart/form-data; boundary={boundary}"},
    )
    assert response.status_code == 200
    assert shared.up.requests[-1].body == form % b"real"


@row(15, 150)
async def test_the_model_of_a_form_is_its_field_and_not_text_in_a_file(shared):
    """A part that merely quotes a form must not choose the model, nor be changed."""
    form = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        b'name="model"\r\n'
        b"\r\nnot-this\r\n--b\r\n"
        b"content-disposition: form-data; name=model\r\nContent-Type: text/plain\r\n\r\nm\r\n"
        b"--b--\r\n"
    )
    shared.up.script = [lambda seen, wire: wire.json({"text": "x"})]
    response = await shared.live.http.post(
        f"{shared.live.url}/audio/transcriptions",
        content=form,
        headers={"content-type": "multipart/form-data; boundary=b"},
    )
    assert (response.headers["x-mnemogate-upstream"], shared.up.requests[-1].body) == (
        "openai/m",
        form,
    )


@row(153)
@pytest.mark.parametrize("path", ["/v1/files/f", "/v1/files/f/content", "/u/ada/v1/files/f"])
async def test_head_is_relayed(shared, path):
    async def answer(seen, wire):
        await wire.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 5000\r\nx-a: 1\r\n\r\n"
        )

    shared.up.script = [answer]
    for _ in range(2):
        response = await shared.live.http.head(shared.live.root + path)
        assert (
            response.status_code,
            response.headers["x-a"],
            response.headers["content-type"],
            response.content,
        ) == (200, "1", "audio/mpeg", b"")
        assert response.headers["content-length"] == "5000"
        assert shared.up.requests[-1].method == "HEAD"


@row(153)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/health", "/ready"])
async def test_head_answers_as_get_without_the_body(shared, path):
    whole, head = (
        await shared.live.http.get(shared.live.root + path),
        await shared.live.http.head(shared.live.root + path),
    )
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


@row(153)
async def test_options_is_relayed(shared):
    shared.up.script = [
        lambda seen, wire: wire.answer(200, json.dumps({"a": 1}).encode(), "allow: GET, HEAD")
    ]
    response = await shared.live.http.options(f"{shared.live.url}/files/f")
    assert (response.status_code, response.headers.get("allow")) == (200, "GET, HEAD")
    assert shared.up.requests[-1].method == "OPTIONS"
