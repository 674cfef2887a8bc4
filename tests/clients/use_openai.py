"""The official Python SDK: both clients, plain and with its stream helper."""

import json

import openai
from pydantic import BaseModel
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

options = {"base_url": URL, "api_key": KEY, "default_headers": HEADERS, "max_retries": 0}
client = openai.OpenAI(**options)
later = openai.AsyncOpenAI(**options)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The temperature in a city.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


class Person(BaseModel):
    name: str
    age: int


def ask(name):
    return [{"role": "user", "content": PROMPTS[name]}]


def hello():
    answer = client.chat.completions.create(model=MODEL, messages=ask("hello"))
    return {"text": answer.choices[0].message.content, "tokens": answer.usage.total_tokens}


async def hello_streamed():
    stream = await later.chat.completions.create(
        model=MODEL, messages=ask("hello"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [c async for c in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    return {"text": text, "tokens": next(c.usage.total_tokens for c in chunks if c.usage)}


def likes():
    messages = ask("hello")
    answer = client.chat.completions.create(model=MODEL, messages=messages)
    messages += [answer.choices[0].message, *ask("likes")]
    return {
        "text": client.chat.completions.create(model=MODEL, messages=messages)
        .choices[0]
        .message.content
    }


def results(message):
    found = [(c.id, get_weather(**json.loads(c.function.arguments))) for c in message.tool_calls]
    return [
        {"role": "tool", "tool_call_id": ident, "content": str(degrees)} for ident, degrees in found
    ]


def weather():
    messages = ask("weather")
    while (
        message := client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
        .choices[0]
        .message
    ).tool_calls:
        messages += [message, *results(message)]
    return {"text": message.content, "cities": cities()}


async def weather_streamed():
    messages = ask("weather")
    while True:
        async with later.chat.completions.stream(
            model=MODEL, messages=messages, tools=TOOLS
        ) as stream:
            async for _ in stream:
                pass
            message = (await stream.get_final_completion()).choices[0].message
        if not message.tool_calls:
            return {"text": message.content, "cities": cities()}
        messages += [message, *results(message)]


def person():
    answer = client.chat.completions.parse(
        model=MODEL, messages=ask("person"), response_format=Person
    )
    return answer.choices[0].message.parsed.model_dump()


async def person_streamed():
    async with later.chat.completions.stream(
        model=MODEL, messages=ask("person"), response_format=Person
    ) as stream:
        return (await stream.get_final_completion()).choices[0].message.parsed.model_dump()


async def cut():
    text = []

    def read():
        for chunk in client.chat.completions.create(model=MODEL, messages=ask("cut"), stream=True):
            text.append(chunk.choices[0].delta.content or "")

    return {**await failure(read), "text": "".join(text)}


async def cut_in_the_helper():
    async def read():
        async with later.chat.completions.stream(model=MODEL, messages=ask("cut")) as stream:
            return await stream.get_final_completion()

    return await failure(read)


async def too_long():
    return await failure(
        lambda: client.chat.completions.create(model=MODEL, messages=ask("too_long"))
    )


async def limited():
    return await failure(
        lambda: later.chat.completions.create(model=MODEL, messages=ask("limited"), stream=True)
    )


play(
    hello,
    hello_streamed,
    likes,
    weather,
    weather_streamed,
    person,
    person_streamed,
    cut,
    cut_in_the_helper,
    too_long,
    limited,
)
