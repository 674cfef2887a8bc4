"""LangChain's `ChatAnthropic`, alone and with a tool bound to it."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import ToolMessage
from scenes import HEADERS, KEY, MODEL, PROMPTS, URL, cities, failure, get_weather, play

llm = ChatAnthropic(
    model=MODEL,
    base_url=URL.removesuffix("/v1"),
    api_key=KEY,
    default_headers=HEADERS,
    max_retries=0,
    max_tokens=500,
)
able = llm.bind_tools([get_weather])


def facts(message):
    return {"text": message.text, "stop": message.response_metadata["stop_reason"]}


def hello():
    return facts(llm.invoke(PROMPTS["hello"]))


async def hello_streamed():
    whole = None
    async for chunk in llm.astream(PROMPTS["hello"]):
        whole = chunk if whole is None else whole + chunk
    return facts(whole)


async def likes():
    history = [("user", PROMPTS["hello"])]
    history += [await llm.ainvoke(history), ("user", PROMPTS["likes"])]
    return {"text": (await llm.ainvoke(history)).text}


def weather():
    messages = [("user", PROMPTS["weather"])]
    while True:
        messages.append(answer := able.invoke(messages))
        if not answer.tool_calls:
            return {"text": answer.text, "cities": cities()}
        messages += results(answer)


async def weather_streamed():
    messages = [("user", PROMPTS["weather"])]
    while True:
        whole = None
        async for chunk in able.astream(messages):
            whole = chunk if whole is None else whole + chunk
        if not whole.tool_calls:
            return {"text": whole.text, "cities": cities()}
        messages += [whole, *results(whole)]


def results(message):
    found = [(c["id"], get_weather(**c["args"])) for c in message.tool_calls]
    return [ToolMessage(str(degrees), tool_call_id=ident) for ident, degrees in found]


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


play(hello, hello_streamed, likes, weather, weather_streamed, cut, too_long, limited)
