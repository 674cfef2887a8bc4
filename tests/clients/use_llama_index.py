"""LlamaIndex: its OpenAI-like model, and an agent with a tool."""

from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

llm = OpenAILike(
    model=MODEL,
    api_base=URL,
    api_key=KEY,
    default_headers=HEADERS,
    max_retries=0,
    context_window=128_000,
    is_chat_model=True,
    is_function_calling_model=True,
    additional_kwargs={"stream_options": {"include_usage": True}},
)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def ask(name):
    return [ChatMessage(role="user", content=PROMPTS[name])]


async def hello():
    answer = await llm.achat(ask("hello"))
    return {"text": answer.message.content, "tokens": answer.raw.usage.total_tokens}


async def hello_streamed():
    parts = [p async for p in await llm.astream_chat(ask("hello"))]
    return {
        "text": "".join(p.delta for p in parts),
        "tokens": next(p.raw.usage.total_tokens for p in parts if p.raw.usage),
    }


async def likes():
    answer = await llm.achat(ask("hello"))
    return {
        "text": (await llm.achat([*ask("hello"), answer.message, *ask("likes")])).message.content
    }


async def weather():
    agent = FunctionAgent(tools=[get_weather], llm=llm, streaming=False)
    answer = await agent.run(PROMPTS["weather"])
    return {"text": answer.response.content, "cities": cities()}


async def weather_streamed():
    running = FunctionAgent(tools=[get_weather], llm=llm).run(PROMPTS["weather"])
    text = "".join([e.delta async for e in running.stream_events() if isinstance(e, AgentStream)])
    await running
    return {"text": text.removeprefix("Let me look."), "cities": cities()}


def person():
    return llm.structured_predict(Person, PromptTemplate(PROMPTS["person"])).model_dump()


async def cut():
    text = []

    async def read():
        async for part in await llm.astream_chat(ask("cut")):
            text.append(part.delta)

    return {**await failure(read), "text": "".join(text)}


async def too_long():
    return await failure(lambda: llm.achat(ask("too_long")))


async def limited():
    return await failure(lambda: llm.chat(ask("limited")))


play(hello, hello_streamed, likes, weather, weather_streamed, person, cut, too_long, limited)
