"""Anthropic's Python SDK: both clients, plain, raw events and its stream helper."""

import anthropic
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

# The SDK brings the /v1 itself.
ROOT = URL.removesuffix("/v1")
options = {"base_url": ROOT, "api_key": KEY, "default_headers": HEADERS, "max_retries": 0}
client = anthropic.Anthropic(**options)
later = anthropic.AsyncAnthropic(**options)
MEMBERS = {"model": MODEL, "max_tokens": 500}
TOOLS = [
    {
        "name": "get_weather",
        "description": "The temperature in a city.",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


def ask(name):
    return [{"role": "user", "content": PROMPTS[name]}]


def text_of(message):
    return "".join(b.text for b in message.content if b.type == "text")


def hello():
    message = client.messages.create(**MEMBERS, messages=ask("hello"))
    return {"text": text_of(message), "stop": message.stop_reason}


async def hello_streamed():
    stream = await later.messages.create(**MEMBERS, messages=ask("hello"), stream=True)
    events = [e async for e in stream]
    deltas = [e.delta for e in events if e.type == "content_block_delta"]
    closing = next(e for e in events if e.type == "message_delta")
    text = "".join(d.text for d in deltas if d.type == "text_delta")
    return {"text": text, "stop": closing.delta.stop_reason}


async def hello_in_the_helper():
    async with later.messages.stream(**MEMBERS, messages=ask("hello")) as stream:
        text = "".join([t async for t in stream.text_stream])
        message = await stream.get_final_message()
    assert text == text_of(message)
    return {"text": text, "stop": message.stop_reason}


def likes():
    messages = ask("hello")
    with client.messages.stream(**MEMBERS, messages=messages) as stream:
        answer = stream.get_final_message()
    messages += [{"role": "assistant", "content": answer.content}, *ask("likes")]
    return {"text": text_of(client.messages.create(**MEMBERS, messages=messages))}


def results(message):
    found = [(b.id, get_weather(**b.input)) for b in message.content if b.type == "tool_use"]
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": str(d)} for i, d in found]
    return {"role": "user", "content": blocks}


def weather():
    messages = ask("weather")
    while True:
        message = client.messages.create(**MEMBERS, messages=messages, tools=TOOLS)
        if message.stop_reason != "tool_use":
            return {"text": text_of(message), "cities": cities()}
        messages += [{"role": "assistant", "content": message.content}, results(message)]


async def weather_streamed():
    messages = ask("weather")
    while True:
        async with later.messages.stream(**MEMBERS, messages=messages, tools=TOOLS) as stream:
            message = await stream.get_final_message()
        if message.stop_reason != "tool_use":
            return {"text": text_of(message), "cities": cities()}
        messages += [{"role": "assistant", "content": message.content}, results(message)]


def count():
    found = client.messages.count_tokens(model=MODEL, messages=ask("likes"))
    answer = client.messages.create(**MEMBERS, messages=ask("likes"))
    sent = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    return {"exact": found.input_tokens == sent}


async def cut():
    text = []

    def read():
        for event in client.messages.create(**MEMBERS, messages=ask("cut"), stream=True):
            if event.type == "content_block_delta":
                text.append(event.delta.text)

    return {**await failure(read), "text": "".join(text)}


async def cut_in_the_helper():
    async def read():
        async with later.messages.stream(**MEMBERS, messages=ask("cut")) as stream:
            return await stream.get_final_message()

    return await failure(read)


async def too_long():
    return await failure(lambda: client.messages.create(**MEMBERS, messages=ask("too_long")))


async def limited():
    return await failure(
        lambda: later.messages.create(**MEMBERS, messages=ask("limited"), stream=True)
    )


play(
    hello,
    hello_streamed,
    hello_in_the_helper,
    likes,
    weather,
    weather_streamed,
    count,
    cut,
    cut_in_the_helper,
    too_long,
    limited,
)
