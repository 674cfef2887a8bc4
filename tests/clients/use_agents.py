"""The OpenAI Agents SDK, on its chat completions model."""

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=URL, api_key=KEY, default_headers=HEADERS, max_retries=0)
model = OpenAIChatCompletionsModel(MODEL, openai_client=client)
agent = Agent(
    "Assistant",
    instructions="Be brief.",
    model=model,
    model_settings=ModelSettings(include_usage=True),
)
forecaster = Agent(
    "Forecaster", instructions="Look it up.", model=model, tools=[function_tool(get_weather)]
)


class Person(BaseModel):
    name: str
    age: int


async def hello():
    answer = await Runner.run(agent, PROMPTS["hello"])
    return {"text": answer.final_output, "tokens": answer.context_wrapper.usage.total_tokens}


async def streamed(who, prompt):
    answer = Runner.run_streamed(who, prompt)
    text = [
        e.data.delta
        async for e in answer.stream_events()
        if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"
    ]
    return answer, "".join(text)


async def hello_streamed():
    answer, text = await streamed(agent, PROMPTS["hello"])
    assert text == answer.final_output
    return {"text": text, "tokens": answer.context_wrapper.usage.total_tokens}


async def likes():
    answer = await Runner.run(agent, PROMPTS["hello"])
    history = [*answer.to_input_list(), {"role": "user", "content": PROMPTS["likes"]}]
    return {"text": (await Runner.run(agent, history)).final_output}


async def weather():
    return {
        "text": (await Runner.run(forecaster, PROMPTS["weather"])).final_output,
        "cities": cities(),
    }


async def weather_streamed():
    _, text = await streamed(forecaster, PROMPTS["weather"])
    return {"text": text.removeprefix("Let me look."), "cities": cities()}


async def person():
    reader = Agent("Reader", model=model, output_type=Person)
    return (await Runner.run(reader, PROMPTS["person"])).final_output.model_dump()


async def person_streamed():
    answer, _ = await streamed(Agent("Reader", model=model, output_type=Person), PROMPTS["person"])
    return answer.final_output.model_dump()


async def cut():
    return await failure(lambda: streamed(agent, PROMPTS["cut"]))


async def too_long():
    return await failure(lambda: Runner.run(agent, PROMPTS["too_long"]))


async def limited():
    return await failure(lambda: Runner.run(agent, PROMPTS["limited"]))


play(
    hello,
    hello_streamed,
    likes,
    weather,
    weather_streamed,
    person,
    person_streamed,
    cut,
    too_long,
    limited,
)
