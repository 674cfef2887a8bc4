"""instructor: a model filled in by a tool, by a JSON schema, and bit by bit from a stream."""

import instructor
from instructor.core import InstructorRetryException
from openai import AsyncOpenAI
from pydantic import BaseModel
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, failure, play, told

plain = AsyncOpenAI(base_url=URL, api_key=KEY, default_headers=HEADERS, max_retries=0)
client = instructor.from_openai(plain)
schema = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)


class Person(BaseModel):
    name: str
    age: int


def ask(name):
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": PROMPTS[name]}],
        "max_retries": 0,
    }


async def hello():
    answer = await client.chat.completions.create(response_model=None, **ask("hello"))
    return {"text": answer.choices[0].message.content, "tokens": answer.usage.total_tokens}


async def person():
    return (
        await schema.chat.completions.create(response_model=Person, **ask("person"))
    ).model_dump()


async def person_by_a_tool():
    found, answer = await client.chat.completions.create_with_completion(
        response_model=Person, **ask("person")
    )
    assert len(answer.choices[0].message.tool_calls) == 1
    return found.model_dump()


async def person_streamed():
    parts = [
        p
        async for p in schema.chat.completions.create_partial(
            response_model=Person, **ask("person")
        )
    ]
    return parts[-1].model_dump()


async def person_by_a_tool_streamed():
    parts = [
        p
        async for p in client.chat.completions.create_partial(
            response_model=Person, **ask("person")
        )
    ]
    return parts[-1].model_dump()


async def cut():
    async def read():
        return [
            p
            async for p in client.chat.completions.create_partial(
                response_model=Person, **ask("cut")
            )
        ]

    return await failure(read)


async def refused(name):
    """What the app asked for failed: its error says so, and what it came from is the SDK's."""
    try:
        await client.chat.completions.create(response_model=Person, **ask(name))
    except InstructorRetryException as e:
        return told(e.__cause__)


async def too_long():
    return await refused("too_long")


async def limited():
    return await refused("limited")


play(
    hello,
    person,
    person_by_a_tool,
    person_streamed,
    person_by_a_tool_streamed,
    cut,
    too_long,
    limited,
)
