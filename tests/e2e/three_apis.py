"""One gateway before scripted models of the three APIs, and clients that keep their own history.

A script is told once for all APIs: a list of replies, each a text or a list of parts (see `say` and
`use` of `tests.wire_models`).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field

from tests.conftest import events
from tests.e2e.messages.client import events_of, fold
from tests.e2e.operator_tools import gateway
from tests.models import Model, call, calls, text
from tests.wire_models import MessagesModel, ResponsesModel, sse

APIS = ("chat", "responses", "messages")
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}}


@dataclass
class Answer:
    """What a client was told. calls: of its own tools, by id."""

    text: str
    calls: dict[str, str]
    parts: list
    raw: str
    headers: object
    body: object = field(default_factory=dict)


class ThreeApis:
    """The models of the three APIs."""

    def __init__(self):
        self.models = {"chat": Model("."), "responses": ResponsesModel("."), "messages": None}
        self.models["messages"] = MessagesModel(".")

    async def __aenter__(self):
        self._stack = contextlib.AsyncExitStack()
        for model in self.models.values():
            await self._stack.enter_async_context(model)
        return self

    async def __aexit__(self, *exc):
        await self._stack.aclose()
        if exc[0] is None:
            for model in (self.models["responses"], self.models["messages"]):
                assert not model.faults, model.faults

    @property
    def url(self):
        return self.models["chat"].url

    def config(self, config, **more):
        """A configuration with these models, each under its API's name. more: of each model."""
        chat, responses, messages = (self.models[api].url for api in APIS)
        providers = {
            "chat": {"kind": "openai", "base_url": chat},
            "responses": {"kind": "openai", "base_url": responses},
            "messages": {"kind": "anthropic", "base_url": messages},
        }
        models = {api: {"targets": [{"provider": api}], **more} for api in APIS}
        return {**config, "providers": providers, "models": models}

    def play(self, api, replies):
        """Let the model of an API give these replies next."""
        model = self.models[api]
        model.requests.clear()
        model.script = [_chat_reply(r) for r in replies] if api == "chat" else list(replies)

    def bodies(self, api):
        return self.models[api].bodies


def _chat_reply(reply):
    if isinstance(reply, str):
        return text(reply)
    if not isinstance(reply, list):
        return reply
    said = "".join(p.text for p in reply if p.kind == "text")
    made = [p for p in reply if p.kind == "call"]
    if not made:
        return text(said)
    named = [call(p.name, p.arguments, f"call_{id(p)}") for p in made]
    return calls(*named, content=said or None)


@contextlib.asynccontextmanager
async def three_gateways(data, config, **more):
    """A gateway that serves the three APIs, and their models. more: members of each model."""
    async with ThreeApis() as apis, gateway(apis, data, apis.config(config, **more)) as live:
        yield live, apis


class Client:
    """A client of one API, which offers a tool `shell` of its own."""

    def __init__(self, live, api, user, *, stream, **more):
        self.live, self.api, self.user, self.stream = live, api, user, stream
        self.history, self.more = [], {"model": api, **more}
        self.headers = {}

    async def say(self, words):
        self.history.append({"role": "user", "content": words})
        return await self.ask()

    async def give_results(self, answer, result="ran"):
        """Send the results of the client's own calls."""
        for ident in answer.calls:
            if self.api == "chat":
                told = {"role": "tool", "tool_call_id": ident, "content": result}
            elif self.api == "responses":
                told = {"type": "function_call_output", "call_id": ident, "output": result}
            else:
                block = {"type": "tool_result", "tool_use_id": ident, "content": result}
                told = {"role": "user", "content": [block]}
            self.history.append(told)
        return await self.ask()

    async def ask(self):
        answer = await self.send()
        self.history += answer.parts
        return answer

    async def send(self):
        path, body = REQUESTS[self.api](self.history, self.user)
        body |= {"stream": self.stream, **self.more}
        url, headers = self.live.url + path, self.headers
        response = await self.live.http.post(url, json=body, headers=headers, timeout=30)
        assert response.status_code == 200, response.text
        told = FOLDS[self.api](response) if self.stream else response.json()
        return Answer(*READS[self.api](told), response.text, response.headers, told)


def _ask_chat(history, user):
    tool = {"type": "function", "function": {"name": "shell", "parameters": SHELL}}
    return "/chat/completions", {"messages": history, "user": user, "tools": [tool]}


def _ask_responses(history, user):
    tool = {"type": "function", "name": "shell", "parameters": SHELL}
    return "/responses", {"input": history, "user": user, "tools": [tool], "store": False}


def _ask_messages(history, user):
    tool = {"name": "shell", "input_schema": SHELL}
    named = {"metadata": {"user_id": user}, "max_tokens": 99}
    return "/messages", {"messages": history, "tools": [tool], **named}


def _fold_chat(response):
    message = {"role": "assistant", "content": None}
    told = [event for event in events(response.text) if event != "[DONE]"]
    made: dict[int, dict] = {}
    finishes = []
    for event in told:
        for choice in event.get("choices") or ():
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for part in delta.get("tool_calls") or ():
                one = made.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
                one |= {k: v for k, v in part.items() if k in ("id", "type")}
                for name, value in part.get("function", {}).items():
                    one["function"][name] += value or ""
            finishes += [choice["finish_reason"]] if choice.get("finish_reason") else []
    assert len(finishes) == 1, finishes
    if made:
        message["tool_calls"] = list(made.values())
    return {"choices": [{"message": message, "finish_reason": finishes[0]}]}


def _read_chat(told):
    message = told["choices"][0]["message"]
    found = {c["id"]: c["function"]["name"] for c in message.get("tool_calls") or ()}
    assert told["choices"][0]["finish_reason"] == ("tool_calls" if found else "stop")
    return message.get("content") or "", found, [message]


def _read_responses(told):
    items = told["output"]
    texts = [p["text"] for i in items if i["type"] == "message" for p in i["content"]]
    found = {i["call_id"]: i["name"] for i in items if i["type"] == "function_call"}
    assert told["status"] == "completed"
    return "\n\n".join(texts), found, items


def _read_messages(told):
    blocks = told["content"]
    texts = [b["text"] for b in blocks if b["type"] == "text"]
    found = {b["id"]: b["name"] for b in blocks if b["type"] == "tool_use"}
    assert told["stop_reason"] == ("tool_use" if found else "end_turn")
    return "\n\n".join(texts), found, [{"role": "assistant", "content": blocks}]


REQUESTS = {"chat": _ask_chat, "responses": _ask_responses, "messages": _ask_messages}
FOLDS = {
    "chat": _fold_chat,
    "responses": lambda response: sse(response.text)[-1]["response"],
    "messages": lambda response: fold(events_of(response.text)),
}
READS = {"chat": _read_chat, "responses": _read_responses, "messages": _read_messages}


def results_in(body):
    """The results of tools in a request of any API, in their order."""
    found = []

    def look(part):
        if isinstance(part, list):
            for inner in part:
                look(inner)
        elif isinstance(part, dict):
            if part.get("role") == "tool":
                found.append(part["content"])
            elif part.get("type") == "function_call_output":
                found.append(part["output"])
            elif part.get("type") == "tool_result":
                found.append(part["content"])
            else:
                look(part.get("content"))

    look(body.get("messages") or body.get("input"))
    return [r if isinstance(r, str) else json.dumps(r) for r in found]
