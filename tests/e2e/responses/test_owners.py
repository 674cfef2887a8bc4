"""Behind managed keys all tenants share the provider's account: nobody names what another owns."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from tests.conftest import running
from tests.e2e.responses.asking import ask, user
from tests.wire_models import MessagesModel, ResponsesModel, native, say

ADA, BOB = {"x-memory-user": "ada"}, {"x-memory-user": "bob"}
OTHER = {"authorization": "Bearer key-other-aaaaaaaaaaaaaaaa", **ADA}
FILES = {"authorization": "Bearer key-files-aaaaaaaaaaaaaaaa", **ADA}


@asynccontextmanager
async def live_at(up, data, **provider):
    keys = [
        {"name": n, "key": f"key-{n}-aaaaaaaaaaaaaaaa", "tenant": n}
        for n in ("acme", "other", "files")
    ]
    keys[2]["paths"] = ["/v1/files*", "/v1/containers/cntr_1"]
    told = {"base_url": up.url, "api_key": "sk-operator", **provider}
    config = {"providers": {"main": told}, "keys": keys}
    async with running("", data, config, key="key-acme-aaaaaaaaaaaaaaaa") as live:
        yield live


class Provider(ResponsesModel):
    """One that keeps conversations too."""

    def check(self, body):
        return ()

    async def serve_other(self, seen, wire):
        if "/conversations" not in seen.path:
            return await super().serve_other(seen, wire)
        ident = seen.path.partition("?")[0].split("/")[-1]
        if seen.path.endswith("/conversations"):
            ident = f"conv_{next(self.ids)}"
        ours = {"type": "function_call", "call_id": "c", "name": "core_memory_append"}
        given = {"type": "function_call_output", "call_id": "c", "output": "Saved"}
        if ident == "items":
            await wire.json({"object": "list", "data": [ours, given, user("Hi")]})
        else:
            await wire.json({"id": ident, "object": "conversation", "metadata": {}})
        return True


async def send(live, method, path, headers, body=None):
    return await live.http.request(method, f"{live.url}{path}", headers=headers, json=body)


@pytest.mark.parametrize("mode", ["full", "read", "off"])
@pytest.mark.parametrize("who", [BOB, OTHER])
async def test_an_item_of_another_owner_cannot_be_named(data, who, mode):
    async with ResponsesModel("One.") as up, live_at(up, data) as live:
        first, _ = await ask(live, "Say one")
        name = first["output"][0]["id"]
        items = [{"type": "item_reference", "id": name}, user("Go on")]
        headers = {"x-memory": mode}
        sent = {"model": "m", "input": items}
        for path in ("/responses", "/responses/input_tokens"):
            http = await send(live, "POST", path, {**who, **headers}, sent)
            assert (http.status_code, http.json()["error"]["code"]) == (404, "item_not_found")
        spelt = str(sent).replace("'", '"').replace("item_ref", "item\\u005fref").encode()
        http = await live.http.post(
            f"{live.url}/responses", content=spelt, headers={**who, **headers}
        )
        assert http.status_code == 404
        assert len(up.bodies) == 1
        http = await send(live, "POST", "/responses", {**ADA, **headers}, sent)
        assert http.status_code == 200, http.text


async def test_items_of_an_answer_that_passed_without_memory_can_be_named(data):
    async with ResponsesModel("One.") as up, live_at(up, data) as live:
        for stream in (False, True):
            off = {"x-memory": "off", **ADA}
            first, _ = await ask(live, "Say one", headers=off, stream=stream)
            items = [{"type": "item_reference", "id": first["output"][0]["id"]}, user("Go on")]
            shown, _ = await ask(live, items, headers=off, stream=stream)
            assert shown["status"] == "completed"
            http = await send(live, "POST", "/responses", BOB, {"model": "m", "input": items})
            assert http.status_code == 404


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_conversation_at_the_provider_is_its_owners_alone(data, mode):
    headers = {"x-memory": mode}
    async with Provider("One.") as up, live_at(up, data) as live:
        name = (await send(live, "POST", "/conversations", ADA, {})).json()["id"]
        seen = len(up.requests)
        path = f"/conversations/{name}"
        asked = {"model": "m", "input": "x", "conversation": {"id": name}}
        for who in (BOB, OTHER):
            for method, where, body in (
                ("GET", path, None),
                ("POST", path, {"metadata": {}}),
                ("DELETE", path, None),
                ("GET", f"{path}/items", None),
                ("POST", f"{path}/items", {"items": [user("x")]}),
                ("DELETE", f"{path}/items/msg_1", None),
                ("POST", "/responses", asked),
                ("POST", "/responses", {**asked, "conversation": "conv_unknown"}),
            ):
                http = await send(live, method, where, {**who, **headers}, body)
                assert http.status_code == 404, (method, where, http.text)
        assert len(up.requests) == seen
        for method, where, body in (("GET", path, None), ("POST", "/responses", asked)):
            http = await send(live, method, where, {**ADA, **headers}, body)
            assert http.status_code == 200, http.text
        assert up.bodies[-1]["conversation"] == {"id": name}
        page = (await send(live, "GET", f"{path}/items", {**ADA, **headers})).json()
        # And nothing of ours.
        assert [i.get("role") for i in page["data"]] == ["user"]
        assert (await send(live, "DELETE", path, ADA)).status_code == 200
        assert (await send(live, "GET", path, ADA)).status_code == 404


PICTURE = {"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}
SEARCH = {"type": "file_search", "vector_store_ids": ["vs_1"]}
RUN = {"type": "code_interpreter", "container": "cntr_1"}
AUTO = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}}
RAN = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1", "code": "1"}


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    ("body", "reached"),
    [
        ({"input": [PICTURE]}, True),
        ({"input": "x", "tools": [SEARCH]}, False),
        ({"input": "x", "tools": [RUN]}, True),
        ({"input": "x", "tools": [AUTO]}, True),
        ({"input": [user("x"), RAN, user("y")]}, True),
    ],
)
async def test_what_a_key_does_not_reach_it_cannot_name(data, body, reached, mode):
    async with Provider("One.") as up, live_at(up, data) as live:
        for headers, status in ((ADA, 404), (FILES, 200 if reached else 404)):
            told = {"x-memory": mode, **headers}
            http = await send(live, "POST", "/responses", told, {"model": "m", **body})
            assert http.status_code == status, http.text
            if status == 404:
                assert "`paths`" in http.json()["error"]["message"]
        assert len(up.bodies) == reached


async def test_a_container_that_an_answer_told_of_may_be_named_by_its_owner(data):
    async with Provider([native(RAN), say("One.")]) as up, live_at(up, data) as live:
        first, _ = await ask(live, "Run")
        assert first["output"][0]["container_id"] == "cntr_1"
        for who, status in ((ADA, 200), (BOB, 404), (OTHER, 404)):
            body = {"model": "m", "input": "x", "tools": [RUN]}
            http = await send(live, "POST", "/responses", who, body)
            assert http.status_code == status, http.text


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/chat/completions", {"type": "file", "file": {"file_id": "file_1"}}),
        ("/messages", {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
    ],
)
async def test_a_file_cannot_be_named_in_other_formats_either(data, path, content):
    async with MessagesModel("One.") as up, live_at(up, data, kind="anthropic") as live:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [content]}]}
        http = await send(live, "POST", path, ADA, body)
        assert http.status_code == 404, http.text
        assert up.requests == []
        if path == "/messages":
            assert http.json()["error"]["type"] == "not_found_error"
            assert (await send(live, "POST", path, FILES, body)).status_code == 200


async def test_what_only_looks_like_a_name_is_none(data):
    schema = {"type": "object", "properties": {"file_id": {"type": "string", "default": "x"}}}
    tool = {"type": "function", "name": "read", "parameters": {**schema, "file_id": "x"}}
    items = [user('{"file_id": "file_1"}')]
    async with Provider("One.") as up, live_at(up, data) as live:
        body = {"model": "m", "input": items, "tools": [tool], "metadata": {"file_id": "x"}}
        assert (await send(live, "POST", "/responses", ADA, body)).status_code == 200


async def test_what_a_tool_of_the_clients_is_given_names_nothing(data):
    tool = {
        "name": "read",
        "input_schema": {"type": "object"},
        "input_examples": [{"file_id": "x"}],
    }
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"file_id": "file_1"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "A page."}
    turns = [("user", "Read it."), ("assistant", [use]), ("user", [result])]
    messages = [{"role": role, "content": content} for role, content in turns]
    body = {"model": "m", "max_tokens": 9, "tools": [tool], "messages": messages}
    async with MessagesModel("One.") as up, live_at(up, data, kind="anthropic") as live:
        http = await send(live, "POST", "/messages", ADA, body)
        assert http.status_code == 200, http.text


async def test_names_have_bounds(data):
    deep = "x"
    for _ in range(40):
        deep = {"file_id": deep}
    many = [{"type": "item_reference", "id": f"msg_{i}"} for i in range(501)]
    async with Provider("One.") as up, live_at(up, data) as live:
        for items in ([deep], many):
            http = await send(live, "POST", "/responses", ADA, {"model": "m", "input": items})
            assert http.status_code == 400, http.text
            assert "limit" in http.json()["error"]["message"] or "deeper" in http.text
        assert up.requests == []
