"""The frameworks that speak Responses: told in one run, asked in another, a tool of their own.

Arguments: base URL, X-Memory mode, user, framework.
"""

import asyncio
import json
import sys

URL, MODE, USER, WHICH = sys.argv[1:5]
HEADERS = {"X-Memory": MODE, "X-Memory-User": USER}
TOLD, ASKED, WEATHER = "I like tea.", "What do I like?", "What is the weather in Oslo?"
BREAK_OFF = "Break off, please."
CITIES = []


def get_weather(city: str) -> str:
    """The weather in a city."""
    CITIES.append(city)
    return "rain"


def client():
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=URL, api_key="sk-sentinel-4f1d", default_headers=HEADERS)


async def openai_raw(prompt):
    tool = {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    sdk, items = client(), [{"role": "user", "content": prompt}]
    while True:
        found = await sdk.responses.create(model="m", input=items, tools=[tool], store=False)
        calls = [i for i in found.output if i.type == "function_call"]
        if not calls:
            return found.output_text
        items += [i.model_dump(exclude_none=True) for i in found.output]
        for call in calls:
            output = get_weather(**json.loads(call.arguments))
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": output}
            )


async def openai_chained(prompt):
    sdk, before, items = client(), None, prompt
    tool = {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    while True:
        more = {"previous_response_id": before} if before else {}
        async with sdk.responses.stream(model="m", input=items, tools=[tool], **more) as stream:
            found = await stream.get_final_response()
        calls = [i for i in found.output if i.type == "function_call"]
        if not calls:
            return found.output_text
        before, items = found.id, []
        for call in calls:
            output = get_weather(**json.loads(call.arguments))
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": output}
            )


async def agents(prompt):
    from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled

    set_tracing_disabled(True)
    set_default_openai_client(client(), use_for_tracing=False)
    agent = Agent("A", instructions="Be brief.", model="m", tools=[function_tool(get_weather)])
    return (await Runner.run(agent, prompt)).final_output


async def agents_streamed(prompt):
    from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled

    set_tracing_disabled(True)
    set_default_openai_client(client(), use_for_tracing=False)
    agent = Agent("A", instructions="Be brief.", model="m", tools=[function_tool(get_weather)])
    answer = Runner.run_streamed(agent, prompt)
    async for _ in answer.stream_events():
        pass
    return answer.final_output


async def pydantic_ai(prompt):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIResponsesModel("m", provider=OpenAIProvider(openai_client=client()))
    return (await Agent(model, tools=[get_weather]).run(prompt)).output


async def langchain(prompt):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="m",
        base_url=URL,
        api_key="sk-sentinel-4f1d",
        default_headers=HEADERS,
        use_responses_api=True,
    )
    agent = create_agent(model, tools=[get_weather])
    found = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]})
    return found["messages"][-1].text


async def read_openai_raw():
    async for _ in await client().responses.create(model="m", input=BREAK_OFF, stream=True):
        pass


async def read_openai_chained():
    async with client().responses.stream(model="m", input=BREAK_OFF) as stream:
        async for _ in stream:
            pass
        await stream.get_final_response()


async def read_agents():
    await agents_streamed(BREAK_OFF)


async def read_agents_streamed():
    await agents_streamed(BREAK_OFF)


async def read_pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIResponsesModel("m", provider=OpenAIProvider(openai_client=client()))
    async with Agent(model).run_stream(BREAK_OFF) as answer:
        async for _ in answer.stream_text():
            pass


async def read_langchain():
    from langchain_openai import ChatOpenAI

    options = {"base_url": URL, "api_key": "sk-sentinel-4f1d", "default_headers": HEADERS}
    async for _ in ChatOpenAI(model="m", use_responses_api=True, **options).astream(BREAK_OFF):
        pass


async def fault():
    """What a stream that breaks off ends in."""
    try:
        await globals()[f"read_{WHICH}"]()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "nothing was raised"


async def main():
    ask = globals()[WHICH]
    facts = {"scene": "all", "told": await ask(TOLD), "asked": await ask(ASKED)}
    facts["weather"] = await ask(WEATHER)
    facts["fault"] = await fault()
    print(json.dumps({**facts, "cities": CITIES}))


asyncio.run(main())
