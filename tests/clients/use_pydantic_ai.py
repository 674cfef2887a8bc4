"""pydantic-ai: agents with a tool, with an output tool, and with the provider's own structured
output.
"""

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResultEvent
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

client = AsyncOpenAI(base_url=URL, api_key=KEY, default_headers=HEADERS, max_retries=0)
model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
agent = Agent(model, instructions="Be brief.")
forecaster = Agent(model, tools=[get_weather])


class Person(BaseModel):
    name: str
    age: int


async def hello():
    answer = await agent.run(PROMPTS["hello"])
    return {"text": answer.output, "tokens": answer.usage.total_tokens}


async def hello_streamed():
    async with agent.run_stream(PROMPTS["hello"]) as answer:
        text = "".join([part async for part in answer.stream_text(delta=True)])
    return {"text": text, "tokens": answer.usage.total_tokens}


async def likes():
    answer = await agent.run(PROMPTS["hello"])
    return {
        "text": (await agent.run(PROMPTS["likes"], message_history=answer.all_messages())).output
    }


async def weather():
    return {"text": (await forecaster.run(PROMPTS["weather"])).output, "cities": cities()}


async def weather_streamed():
    async with forecaster.run_stream_events(PROMPTS["weather"]) as events:
        found = [event async for event in events]
    (result,) = [event.result for event in found if isinstance(event, AgentRunResultEvent)]
    return {"text": result.output, "cities": cities()}


async def person():
    return (
        await Agent(model, output_type=NativeOutput(Person)).run(PROMPTS["person"])
    ).output.model_dump()


async def person_by_a_tool():
    return (await Agent(model, output_type=Person).run(PROMPTS["person"])).output.model_dump()


async def cut():
    text = []

    async def read():
        async with agent.run_stream(PROMPTS["cut"]) as answer:
            async for part in answer.stream_text(delta=True, debounce_by=None):
                text.append(part)

    return {**await failure(read), "text": "".join(text)}


async def too_long():
    return await failure(lambda: agent.run(PROMPTS["too_long"]))


async def limited():
    return await failure(lambda: agent.run(PROMPTS["limited"]))


play(
    hello,
    hello_streamed,
    likes,
    weather,
    weather_streamed,
    person,
    person_by_a_tool,
    cut,
    too_long,
    limited,
)
