"""B.

An upstream that compresses what nobody asked it to compress: headers and body agree, and the body
can be read.
"""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from tests.conftest import events
from tests.e2e.wire.rows import row
from tests.e2e.wire.same import exact
from tests.e2e.wire.test_answer_body import HI, WHOLE, answering, changed, piece

pytestmark = pytest.mark.asyncio(loop_scope="session")


@row(28)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("model", [b"m", b"alias"])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_an_answer_compressed_unasked_can_be_read(shared, mode, model, coding):
    pack = gzip.compress if coding == "gzip" else zlib.compress
    shared.up.script = [answering(pack(json.dumps(WHOLE).encode()), f"content-encoding: {coding}")]
    response = await shared.post(HI.replace(b'"m"', b'"%s"' % model) % b"", mode)
    assert response.status_code == 200
    assert response.json()["model"] == ("m-2024-08-06" if model == b"m" else "alias")
    assert exact(json.dumps({**response.json(), "model": ""})) == exact(
        json.dumps(changed(model=""))
    )


@row(28)
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_stream_compressed_unasked_can_be_read(shared, mode):
    async def packed(seen, wire):
        chunks = [piece({"role": "assistant", "content": "x"}), piece({}, "stop")]
        text = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
        await wire.start_stream("content-encoding: gzip")
        await wire.part(gzip.compress(text.encode()))
        await wire.end()

    shared.up.script = [packed]
    found = events((await shared.post(HI % b',"stream":true', mode)).text)
    assert [e if e == "[DONE]" else e["choices"][0]["delta"].get("content") for e in found] == [
        "x",
        None,
        "[DONE]",
    ]
