"""B.

What an upstream answers reaches the client: members, choices, numbers, names; whole and streamed.
"""

from __future__ import annotations

import copy
import json

import pytest

from tests.conftest import events
from tests.e2e.wire.rows import row
from tests.e2e.wire.same import exact, ordered
from tests.models import call

pytestmark = pytest.mark.asyncio(loop_scope="session")
MODES = ["full", "read", "write", "off"]
HI = b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}'
LOGPROBS = {
    "content": [
        {
            "token": "hé",
            "logprob": -0.0,
            "bytes": [104, 195, 169],
            "top_logprobs": [{"token": "x", "logprob": -9999.0, "bytes": None}],
        }
    ],
    "refusal": None,
}
USAGE = {
    "prompt_tokens": 0,
    "completion_tokens": 7,
    "total_tokens": 7,
    "cost": 1e-7,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0, "x": None},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 3,
        "rejected_prediction_tokens": 0,
    },
    "queue_time": 0.5,
    "unknown": {"a": [1]},
}
MESSAGE = {
    "content": "Hé \u2028 ok",
    "role": "assistant",
    "refusal": None,
    "reasoning_content": "hm",
    "reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": None}],
    "annotations": [
        {
            "type": "url_citation",
            "url_citation": {"url": "https://x", "start_index": 0, "end_index": 1},
        }
    ],
    "audio": {"id": "a", "data": "AAAA", "expires_at": 1},
    "citations": [],
    "x_unknown": {"b": 1.0, "a": 1},
}
WHOLE = {
    "x_first": {"z": 1, "a": [None, -0.0, 1.0, 1e-7, 18446744073709551615]},
    "id": "chatcmpl-☃",
    "object": "chat.completion",
    "created": 1,
    "model": "m-2024-08-06",
    "choices": [
        {
            "message": MESSAGE,
            "index": 0,
            "logprobs": LOGPROBS,
            "finish_reason": "stop",
            "native_finish_reason": "STOP",
            "content_filter_results": {"hate": {"filtered": False}},
        }
    ],
    "usage": USAGE,
    "system_fingerprint": None,
    "service_tier": "default",
    "provider": "X",
    "prompt_filter_results": [],
    "citations": ["https://x"],
}


def changed(**members):
    return {**copy.deepcopy(WHOLE), **members}


def answering(raw, *headers):
    return lambda seen, wire: wire.answer(
        200, raw if isinstance(raw, bytes) else json.dumps(raw).encode(), *headers
    )


def streaming(*chunks, done=True):
    async def answer(seen, wire):
        await wire.start_stream()
        for chunk in chunks:
            await wire.event(chunk)
        if done:
            await wire.event(b"[DONE]")
        await wire.end()

    return answer


def piece(delta, finish=None, index=0, **members):
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "m",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish, **members}],
    }


async def streamed(shared, mode, *chunks, asked=True):
    shared.up.script = [streaming(*chunks)]
    found = events(
        (
            await shared.post(
                HI
                % (
                    b',"stream":true'
                    + (b',"stream_options":{"include_usage":true}' if asked else b"")
                ),
                mode,
            )
        ).text
    )
    assert found[-1] == "[DONE]"
    return found[:-1]


@row(21)
@pytest.mark.parametrize("mode", MODES)
async def test_every_member_of_an_answer_survives(shared, mode):
    shared.up.script = [answering(WHOLE)]
    response = await shared.post(HI % b"", mode)
    assert response.content == json.dumps(WHOLE).encode()


@row(5, 21)
@pytest.mark.parametrize("mode", MODES)
async def test_an_untouched_answer_is_the_upstreams_bytes(shared, mode):
    raw = (
        b' {"id" : "x", "choices":[ '
        b'{"index":0,"message":{"role":"assistant","content":"\\u00e9\\/\\ud83d"},'
        b'"finish_reason":"stop","p":1.10} '
        b'],"n":1E2,"big":123456789012345678901 }\r\n'
    )
    shared.up.script = [answering(raw)]
    assert (await shared.post(HI % b"", mode)).content == raw


@row(21)
@pytest.mark.parametrize("mode", MODES)
async def test_members_of_chunks_survive_at_every_level(shared, mode):
    extra = {"x_first": {"z": 1.0, "a": None}}
    chunks = [
        {
            **extra,
            **piece(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning_content": "hm",
                    "x_delta": [1, {"b": 1e-7}],
                },
                native_finish_reason=None,
                x_choice={"z": 0, "a": -0.0},
            ),
            "system_fingerprint": None,
            "service_tier": "flex",
            "provider": "X",
            "obfuscation": "ab",
        },
        {
            **piece(
                {"content": "Hé\u2028", "annotations": [{"type": "url_citation"}], "refusal": None}
            ),
            "x": 18446744073709551616,
        },
        {
            **piece(
                {
                    "reasoning_details": [{"type": "reasoning.encrypted", "data": "AA=="}],
                    "audio": {"id": "a", "transcript": "t"},
                }
            ),
            **extra,
        },
        {**piece({}, "stop", native_finish_reason="STOP"), "citations": ["x"]},
    ]
    assert ordered(await streamed(shared, mode, *chunks)) == ordered(chunks)


@row(22)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
async def test_every_choice_keeps_its_content_and_index(shared, mode, order):
    choices = [
        {
            "index": i,
            "message": {
                "role": "assistant",
                "content": f"answer {i}",
                "tool_calls": [call("f", {}, f"c{i}")],
            },
            "finish_reason": ["stop", "length", "tool_calls"][i],
        }
        for i in order
    ]
    shared.up.script = [answering(changed(choices=choices))]
    assert ordered((await shared.post(HI % b',"n":3', mode)).json()["choices"]) == ordered(choices)
    shared.up.script = [
        [
            {
                "message": {"content": f"lane {i} says"},
                "finish_reason": ["stop", "length", "content_filter"][i],
            }
            for i in range(3)
        ]
    ]
    found = events((await shared.post(HI % b',"n":3,"stream":true', mode)).text)[:-1]
    said, ends = {}, {}
    for choice in (c for e in found for c in e["choices"]):
        said[choice["index"]] = said.get(choice["index"], "") + (
            choice["delta"].get("content") or ""
        )
        ends |= {choice["index"]: choice["finish_reason"]} if choice["finish_reason"] else {}
    assert said == {i: f"lane {i} says" for i in range(3)}
    assert ends == {0: "stop", 1: "length", 2: "content_filter"}


@row(23)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    "logprobs",
    [
        {"logprobs": LOGPROBS},
        {"logprobs": None},
        {},
        {"logprobs": {"content": [], "refusal": None}},
        {"logprobs": {"content": None}},
    ],
)
async def test_logprobs_are_equal_null_or_missing_as_they_were(shared, mode, logprobs):
    whole = changed(
        choices=[
            {
                "index": 0,
                "message": {"role": "assistant", "content": "x"},
                **logprobs,
                "finish_reason": "stop",
            }
        ]
    )
    shared.up.script = [answering(whole)]
    assert (await shared.post(HI % b',"logprobs":true', mode)).content == json.dumps(whole).encode()
    chunks = [
        piece({"role": "assistant", "content": "x"}, **logprobs),
        piece({"content": "y"}, **logprobs),
        piece({}, "stop", **logprobs),
    ]
    assert ordered(await streamed(shared, mode, *chunks)) == ordered(chunks)


@row(24)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "usage",
    [
        USAGE,
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        None,
        {"input_tokens": 3},
        "missing",
    ],
)
async def test_usage_is_the_upstreams_or_none(shared, mode, usage):
    whole = changed(usage=usage)
    if usage == "missing":
        del whole["usage"]
    shared.up.script = [answering(whole)]
    assert (await shared.post(HI % b"", mode)).content == json.dumps(whole).encode()
    end = [] if usage in (None, "missing") else [{**piece({}), "choices": [], "usage": usage}]
    chunks = [piece({"role": "assistant", "content": "x"}), piece({}, "stop"), *end]
    assert ordered(await streamed(shared, mode, *chunks)) == ordered(chunks)


@row(25)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    "reason",
    [
        "stop",
        "length",
        "tool_calls",
        "content_filter",
        "function_call",
        "x_new_reason",
        "STOP",
        "error",
    ],
)
async def test_a_finish_reason_is_the_upstreams(shared, mode, reason):
    message = {"role": "assistant", "content": None, "tool_calls": [call("f", '{"a":')]}
    whole = changed(choices=[{"index": 0, "message": message, "finish_reason": reason}])
    shared.up.script = [answering(whole)]
    assert (await shared.post(HI % b"", mode)).content == json.dumps(whole).encode()
    chunks = [
        piece({"role": "assistant", "tool_calls": [{"index": 0, **call("f", '{"a":')}]}),
        piece({}, reason),
    ]
    assert ordered(await streamed(shared, mode, *chunks)) == ordered(chunks)


@row(26)
# Off swaps a member and never makes one.
@pytest.mark.parametrize(
    ("mode", "echoed"),
    [
        *(
            (mode, name)
            for mode in MODES
            for name in ("real", "real-2024-08-06", "alias", "org/other", "", None, {"a": 1})
        ),
        *((mode, "missing") for mode in MODES if mode != "off"),
    ],
)
async def test_an_alias_is_the_model_of_every_body_and_chunk(shared, mode, echoed):
    def named(body):
        return (
            {k: v for k, v in body.items() if k != "model"}
            if echoed == "missing"
            else {**body, "model": echoed}
        )

    body = HI.replace(b'"m"', b'"alias"')
    shared.up.script = [answering(named(WHOLE))]
    response = await shared.post(body % b"", mode)
    assert response.json()["model"] == "alias"
    assert response.headers["x-mnemogate-upstream"] == "openai/real"
    assert ordered({k: v for k, v in response.json().items() if k != "model"}) == ordered(
        {k: v for k, v in WHOLE.items() if k != "model"}
    )
    chunks = [
        piece({"role": "assistant", "content": "x"}),
        piece({"content": "y"}),
        piece({}, "stop"),
        {**piece({}), "choices": [], "usage": USAGE},
    ]
    shared.up.script = [streaming(*map(named, chunks))]
    response = await shared.post(
        body % b',"stream":true,"stream_options":{"include_usage":true}', mode
    )
    found = events(response.text)
    assert [e["model"] for e in found[:-1]] == ["alias"] * 4
    assert response.headers["x-mnemogate-upstream"] == "openai/real"
    assert [e["choices"] for e in found[:-1]] == [c["choices"] for c in chunks]


@row(26)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("echoed", ["m", "m-2024-08-06", "org/other:free", ""])
async def test_without_an_alias_the_model_is_verbatim(shared, mode, echoed):
    shared.up.script = [answering(changed(model=echoed))]
    assert (await shared.post(HI % b"", mode)).json()["model"] == echoed
    found = await streamed(
        shared,
        mode,
        {**piece({"role": "assistant", "content": "x"}), "model": echoed},
        {**piece({}, "stop"), "model": echoed},
    )
    assert {e["model"] for e in found} == {echoed}


@row(27)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    ("ident", "created"),
    [("chatcmpl-1", 1_700_000_000), ("", 0), (None, None), (5, 1.5), ("x", "x")],
)
async def test_id_and_created_are_the_upstreams(shared, mode, ident, created):
    shared.up.script = [answering(changed(id=ident, created=created))]
    body = (await shared.post(HI % b"", mode)).json()
    assert exact(json.dumps([body["id"], body["created"]])) == exact(json.dumps([ident, created]))
    found = await streamed(
        shared,
        mode,
        *[
            {**c, "id": ident, "created": created}
            for c in (piece({"role": "assistant", "content": "x"}), piece({}, "stop"))
        ],
    )
    assert all(
        exact(json.dumps([e["id"], e["created"]])) == exact(json.dumps([ident, created]))
        for e in found
    )


@row(28)
@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("model", [b"m", b"alias"])
async def test_headers_and_body_agree(shared, mode, model):
    for headers in ([], ["content-encoding: identity"], ["x-a: 1", "vary: accept-encoding"]):
        shared.up.script = [answering(WHOLE, *headers)]
        response = await shared.post(HI.replace(b'"m"', b'"%s"' % model) % b"", mode)
        assert int(response.headers["content-length"]) == len(response.content)
        assert json.loads(response.content)["id"] == "chatcmpl-☃"
