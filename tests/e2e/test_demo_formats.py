"""`mnemogate demo` answers every format that a newcomer's program may speak, from one memory."""

from __future__ import annotations

import httpx
import pytest
from openai import OpenAI

from tests.gateway.cli.command import started

MODEL = "mnemogate-demo"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with started(tmp_path_factory.mktemp("demo"), "demo", "--port", "0") as process:
        process.waited("until Ctrl-C")
        yield process.waited(r'base_url = "(\S+)/v1"')[1]


def ask_messages(url, text, user, *, stream=False):
    body = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    answer = httpx.post(
        f"{url}/v1/messages", json={**body, "stream": stream}, headers={"x-memory-user": user}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-memory-status"] == "ok"
    return answer


def test_what_responses_was_told_is_known_in_messages_and_chat(url):
    with OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        headers = {"x-memory-user": "zoe"}
        first = client.responses.create(
            model=MODEL, input="My name is Zoe and I like plums.", extra_headers=headers
        )
        assert "Nice to meet you, Zoe" in first.output_text
        then = client.responses.create(
            model=MODEL,
            input="What is my name?",
            previous_response_id=first.id,
            extra_headers=headers,
        )
        assert then.output_text == "Your name is Zoe."
        with client.responses.stream(
            model=MODEL, input="What do I like?", extra_headers=headers
        ) as stream:
            assert stream.get_final_response().output_text == "You like plums."
        chat = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "What is my name?"}],
            extra_headers=headers,
        )
        assert chat.choices[0].message.content == "Your name is Zoe."
    answer = ask_messages(url, "What is my name?", "zoe").json()
    assert answer["content"] == [{"type": "text", "text": "Your name is Zoe."}]
    assert answer["stop_reason"] == "end_turn"
    events = ask_messages(url, "What do I like?", "zoe", stream=True).text
    assert '"text":" plums."' in events
    assert events.rstrip().endswith('data: {"type":"message_stop"}')


def test_what_messages_was_told_is_known_in_responses(url):
    ask_messages(url, "My name is Kim.", "kim")
    with OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        answer = client.responses.create(
            model=MODEL, input="What is my name?", extra_headers={"x-memory-user": "kim"}
        )
    assert answer.output_text == "Your name is Kim."


@pytest.mark.parametrize("path", ["responses", "messages"])
def test_a_malformed_request_is_refused_in_the_shape_of_its_format(url, path):
    answer = httpx.post(f"{url}/v1/{path}", json={"model": MODEL, "max_tokens": 9, "input": 7})
    assert answer.status_code == 400
    error = answer.json()
    assert error["error"]["message"]
    assert (error.get("type") == "error") == (path == "messages")
