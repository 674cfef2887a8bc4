"""Anthropic's SDK and the search of a gateway in place of the vendor's: every byte has its types.

Arguments: the URL of the gateway, without the version, and its key. Prints what a user sees of a
plain answer, of one that the SDK's helper reads, and of the next turn.
"""

import json
import sys

import anthropic
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

URL, KEY = sys.argv[1:]
client = anthropic.Anthropic(base_url=URL, auth_token=KEY, max_retries=0)
MEMBERS = {
    "model": "m",
    "max_tokens": 500,
    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
}
ASKED = {"role": "user", "content": "Weather?"}
events = TypeAdapter(RawMessageStreamEvent)


def facts_of(message):
    """What a user sees of an answer."""
    asked, result, text = message.content
    (citation,) = text.citations
    return {
        "types": [block.type for block in message.content],
        "query": asked.input["query"],
        "urls": [hit.url for hit in result.content],
        "text": text.text,
        "cited": [citation.type, citation.url, citation.cited_text],
        "requests": message.usage.server_tool_use.web_search_requests,
        "stop": message.stop_reason,
    }


def plain():
    raw = client.messages.with_raw_response.create(**MEMBERS, messages=[ASKED])
    return Message.model_validate_json(raw.http_response.content)


def streamed():
    raw = client.messages.with_raw_response.create(**MEMBERS, messages=[ASKED], stream=True)
    lines = raw.http_response.read().decode().splitlines()
    for line in lines:
        if line.startswith("data: "):
            events.validate_json(line.removeprefix("data: "))
    with client.messages.stream(**MEMBERS, messages=[ASKED]) as stream:
        return stream.get_final_message()


def go_on(message):
    messages = [ASKED, {"role": "assistant", "content": message.content}]
    messages.append({"role": "user", "content": "Sure?"})
    return client.messages.create(**MEMBERS, messages=messages).content[0].text


answers = {"plain": plain(), "streamed": streamed()}
told = {name: facts_of(message) for name, message in answers.items()}
told |= {"again": [go_on(message) for message in answers.values()]}
print(json.dumps(told))
