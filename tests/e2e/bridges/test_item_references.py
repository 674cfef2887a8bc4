"""Items that are named by their ids alone: legal at a strict server, in every mode and path.

What the gateway still holds is told in full where the server cannot take the id. What nobody knows
any more is tried, and left out once its server has refused it.
"""

from __future__ import annotations

import json

import pytest

from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.e2e.bridges.test_orphaned_reasoning import (
    SCRIPTS,
    SHAPES,
    STREAMED,
    TOOL,
    StoringResponses,
    as_reference,
    going_on,
    lose,
)
from tests.e2e.responses.asking import ask, kinds, texts, user
from tests.wire_models import ResponsesModel, say, think

TRIGGER = {"type": "compaction_trigger"}
CHAT_ONLY = {"providers.openai.wires": ["chat"]}
STATELESS = {"models": {"m": {"targets": [{"provider": "openai", "stateful": False}]}}}
PATHS = {
    "off": ("/responses", {"x-memory": "off"}, []),
    "read": ("/responses", {"x-memory": "read"}, []),
    "write": ("/responses", {"x-memory": "write"}, []),
    "full": ("/responses", {}, []),
    "compact": ("/responses/compact", {}, []),
    "trigger": ("/responses", {}, [TRIGGER]),
    "count": ("/responses/input_tokens", {"x-memory": "off"}, []),
    "count with memory": ("/responses/input_tokens", {}, []),
}
SUMMARY = "Ada likes green tea; the city is Oslo."


class RefusingResponses(StoringResponses):
    """It refuses what is illegal, as the vendor does, and goes on."""

    def __init__(self, *script):
        super().__init__(*script)
        self.refused = []

    def check(self, body):
        return ()

    async def _behave(self, seen, wire):
        faults = list(super().check(seen.json)) if seen.method == "POST" else []
        if faults:
            self.refused.append(seen.json)
            status = 404 if faults[0].startswith("404") else 400
            message = f"Item {faults[0]}"
            await wire.json({"error": {"message": message, "code": None, "param": "input"}}, status)
            return
        await super()._behave(seen, wire)


def referring(shown, *, calls):
    """A history as Vercel's SDK tells it: everything that a server said by its id alone.

    calls: calls too, whose results name them.
    """
    return going_on(shown, lambda item: named(item) if calls else as_reference(item))


def named(item):
    return {"type": "item_reference", "id": item["id"]}


def body_of(items, path):
    more = {"store": False} if path == "trigger" else {"store": True}
    more = {} if path in ("compact", "count", "count with memory") else more
    return {"model": "m", "user": "ada", "input": items, "tools": [TOOL], **more}


@pytest.mark.parametrize("calls", [False, True], ids=["calls told", "calls named"])
@pytest.mark.parametrize("path", PATHS)
@SHAPES
async def test_a_reference_is_legal_wherever_it_goes(data, path, shape, calls):
    where, headers, behind = PATHS[path]
    async with StoringResponses(*SCRIPTS[shape]) as up, running(up.url, data) as live:
        shown, _ = await ask(live, [user("Hi")], store=True, tools=[TOOL])
        items = [*referring(shown, calls=calls), *behind]
        for _ in range(2):
            http = await live.http.post(
                f"{live.url}{where}", json=body_of(items, path), headers=headers
            )
            assert http.status_code == 200, http.text
        assert "mnemogate-" not in json.dumps(up.bodies)
        sent = up.bodies[-1]["input"]
        assert kinds(sent)[-len(behind) :] == kinds(behind) if behind else True
        # Its server knows what was shown last.
        if path == "off" and shape == "pure":
            assert [i["id"] for i in sent[1:-1]] == [i["id"] for i in shown["output"][1:]]


@pytest.mark.parametrize("way", ["erased", "store down"])
@pytest.mark.parametrize("path", ["off", "write", "full", "compact"])
@pytest.mark.parametrize(("turns", "stream"), [(1, False), (7, True)])
@SHAPES
async def test_what_nobody_knows_any_more_is_left_out_once_it_is_refused(
    data, path, shape, way, turns, stream
):
    """The conversation goes on: no resend of it is refused for good."""
    if (path, stream) == ("compact", True):
        stream = False
    where, headers, _ = PATHS[path]
    script = [*SCRIPTS[shape][:-1] * turns, "Yes."]
    async with RefusingResponses(*script) as up, running(up.url, data) as live:
        items = []
        for _ in range(turns):
            shown, _ = await ask(live, [user("Hi")], store=True, tools=[TOOL])
            items += referring(shown, calls=True)
        await lose(way, live, data)
        sent = body_of(items, path) | ({"stream": True} if stream else {})
        for _ in range(2):
            before = len(up.requests)
            http = await live.http.post(f"{live.url}{where}", json=sent, headers=headers)
            assert http.status_code == 200, http.text
            assert len(up.requests) - before <= 6
        if path in ("write", "full"):
            assert http.headers["x-memory-status"] == "degraded"
        assert user("Hi") in up.bodies[-1]["input"]
        assert len(up.refused) >= 1


async def test_a_refusal_that_names_no_reference_is_the_clients(data):
    def refuses(*_):
        return (400, {"error": {"message": "No such voice: msg_x", "code": None}})

    async with ResponsesModel(refuses) as up, running(up.url, data) as live:
        up.check = lambda body: ()
        sent = {"model": "m", "input": [{"type": "item_reference", "id": "msg_y"}, user("Hi")]}
        for headers in ({"x-memory": "off"}, {"x-memory": "write"}):
            before = len(up.requests)
            http = await live.http.post(f"{live.url}/responses", json=sent, headers=headers)
            assert http.status_code == 400
            assert len(up.requests) == before + 1


@pytest.mark.parametrize("config", [STATELESS, CHAT_ONLY], ids=["stateless", "chat"])
@pytest.mark.parametrize("path", ["off", "full"])
@STREAMED
async def test_a_reference_to_what_is_kept_here_is_told_in_full(data, config, path, stream):
    model = ChatOnlyModel if config is CHAT_ONLY else ResponsesModel
    first = "Hm." if config is CHAT_ONLY else [think(), say("Hm.")]
    _, headers, _ = PATHS[path]
    async with model(first, "Yes.") as up, running(up.url, data, config) as live:
        shown, _ = await ask(live, "Think")
        items = [user("Think"), *map(named, shown["output"]), user("So?")]
        answer, _ = await ask(live, items, headers=headers, stream=stream)
        assert texts(answer) == ["Yes."]
        sent = json.dumps(up.bodies[-1])
        assert "item_reference" not in sent
        assert "Hm." in sent
        asked = len(up.requests)
        unknown = [{"type": "item_reference", "id": "msg_no"}, user("So?")]
        http = await live.http.post(
            f"{live.url}/responses", json=body_of(unknown, path), headers=headers
        )
        assert (http.status_code, http.json()["error"]["code"]) == (400, "item_not_found")
        assert "Send the item itself" in http.json()["error"]["message"]
        assert len(up.requests) == asked


class WithoutCompaction(ResponsesModel):
    """It knows neither the path nor the trigger."""

    async def _behave(self, seen, wire):
        if seen.path.endswith("/compact") or b"compaction_trigger" in seen.body:
            await wire.json({"error": {"message": "Invalid URL", "code": None}}, 404)
        else:
            await super()._behave(seen, wire)


@pytest.mark.parametrize("keeps", [False, True], ids=["stateless", "stores"])
@pytest.mark.parametrize("path", ["compact", "trigger"])
async def test_what_a_reference_names_is_compacted_here(data, path, keeps):
    where, headers, behind = PATHS[path]
    async with WithoutCompaction("Oslo is rainy.") as up, ChatOnlyModel(SUMMARY) as chat:
        main = [{"provider": "main", "stateful": keeps}]
        config = {
            "providers": {"main": {"base_url": up.url}, "side": {"base_url": chat.url}},
            "models": {"m": {"targets": main}, "s": {"targets": [{"provider": "side"}]}},
            "memory": {"summarizer": "s"},
        }
        async with running("", data, config) as live:
            shown, _ = await ask(live, "Oslo?", store=True)
            items = [user("Oslo?"), *map(named, shown["output"]), user("More"), *behind]
            url = f"{live.url}{where}"
            http = await live.http.post(url, json=body_of(items, path), headers=headers)
            assert http.status_code == 200, http.text
            assert http.json()["output"][-1]["type"] == "compaction"
            assert "Oslo is rainy." in json.dumps(chat.bodies[-1])
            unknown = [{"type": "item_reference", "id": "msg_no"}, user("More"), *behind]
            http = await live.http.post(url, json=body_of(unknown, path), headers=headers)
            assert (http.status_code, http.json()["error"]["code"]) == (400, "item_not_found")
