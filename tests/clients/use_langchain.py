"""LangChain: `ChatOpenAI`, and an agent with a tool."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

llm = ChatOpenAI(
    model=MODEL,
    base_url=URL,
    api_key=KEY,
    default_headers=HEADERS,
    max_retries=0,
    stream_usage=True,
)
agent = create_agent(llm, [get_weather])


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def hello():
    answer = llm.invoke(PROMPTS["hello"])
    return {"text": answer.text, "tokens": answer.usage_metadata["total_tokens"]}


async def hello_streamed():
    whole = None
    async for chunk in llm.astream(PROMPTS["hello"]):
        whole = chunk if whole is None else whole + chunk
    return {"text": whole.text, "tokens": whole.usage_metadata["total_tokens"]}


async def likes():
    history = [("user", PROMPTS["hello"])]
    history += [await llm.ainvoke(history), ("user", PROMPTS["likes"])]
    return {"text": (await llm.ainvoke(history)).text}


def weather():
    answer = agent.invoke({"messages": [("user", PROMPTS["weather"])]})
    return {"text": answer["messages"][-1].text, "cities": cities()}


async def weather_streamed():
    text = {}
    async for message, _ in agent.astream(
        {"messages": [("user", PROMPTS["weather"])]}, stream_mode="messages"
    ):
        if message.type == "AIMessageChunk":
            text[message.id] = text.get(message.id, "") + message.text
    return {"text": list(text.values())[-1], "cities": cities()}


def person():
    return llm.with_structured_output(Person).invoke(PROMPTS["person"]).model_dump()


def person_by_a_tool():
    return (
        llm.with_structured_output(Person, method="function_calling")
        .invoke(PROMPTS["person"])
        .model_dump()
    )


async def cut():
    text = []

    async def read():
        async for chunk in llm.astream(PROMPTS["cut"]):
            text.append(chunk.text)

    return {**await failure(read), "text": "".join(text)}


async def too_long():
    return await failure(lambda: llm.invoke(PROMPTS["too_long"]))


async def limited():
    return await failure(lambda: llm.ainvoke(PROMPTS["limited"]))


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
