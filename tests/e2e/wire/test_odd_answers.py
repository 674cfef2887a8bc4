"""Answers as odd as real servers send them: what is legal or harmless is read."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.models import Model

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ANSWERS = {
    "chat/completions": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi 😀"},
                "finish_reason": "stop",
            }
        ],
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hi 😀", "annotations": []}],
            }
        ],
    },
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hi 😀"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("path", ANSWERS)
async def test_a_byte_order_mark_before_an_answer_is_passed_over(data, mode, path):
    answer = BYTE_ORDER_MARK + json.dumps(ANSWERS[path]).encode()
    user = [{"role": "user", "content": "hi"}]
    asked = {"model": "m", "max_tokens": 9, ("input" if path == "responses" else "messages"): user}
    async with (
        Model(lambda seen, wire: wire.answer(200, answer)) as model,
        running(model.url, data) as live,
    ):
        response = await live.http.post(
            f"{live.url}/{path}", json=asked, headers={"x-memory": mode, "x-memory-user": "ada"}
        )
        assert response.status_code == 200, response.text
        assert response.headers["x-memory-status"] == ("off" if mode == "off" else "ok")
        assert "Hi 😀" in json.dumps(response.json(), ensure_ascii=False)


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(("second", "status"), [("same", 200), ("other", 502)])
async def test_two_equal_lengths_are_one_and_unequal_ones_a_bad_answer(data, mode, second, status):
    body = json.dumps(ANSWERS["chat/completions"]).encode()
    length = len(body) if second == "same" else len(body) - 1
    again = f"content-length: {length}"
    async with (
        Model(lambda seen, wire: wire.answer(200, body, again)) as model,
        running(model.url, data, {"routing.retries": 0}) as live,
    ):
        response = await live.chat("hi", {"x-memory": mode})
        assert response.status_code == status
