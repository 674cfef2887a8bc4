"""What costs with its size is done beside the event loop; which thread did it tells."""

from __future__ import annotations

import json

from gateway.apis.responses.responses_reply import Echo
from gateway.chat.stored import stored_responses
from tests.conftest import running
from tests.e2e.responses.asking import ask
from tests.e2e.responses.test_conversations import ADA, STATELESS
from tests.e2e.test_bounds import STORES
from tests.long_work import noted
from tests.wire_models import ResponsesModel

# Just below the 8 MiB that are read of a stored object.
LONG = "a" * (7 << 20)
ITEM = {
    "type": "message",
    "id": "msg_1",
    "role": "user",
    "content": [{"type": "input_text", "text": LONG}],
}
PAGE = {"object": "list", "data": [ITEM], "has_more": False}


class LongStore(ResponsesModel):
    """A provider whose stored objects are long."""

    async def serve_other(self, seen, wire):
        path = seen.path.partition("?")[0]
        if path.endswith("/responses"):
            return await super().serve_other(seen, wire)
        if "items" in path:
            body = PAGE
        elif "/conversations" in path:
            body = {"id": "conv_1", "object": "conversation", "metadata": {"x": LONG}}
        else:
            shown = self.replies[path.partition("/responses/")[2].partition("/")[0]]
            body = {**shown, "output": [ITEM]}
        await wire.answer(200, json.dumps(body).encode())
        return True


# By request: what cleans its answer, if anything of ours may be in it.
OBJECTS = {
    "POST /conversations": "",
    "GET /conversations/conv_1": "",
    "POST /conversations/conv_1": "",
    "DELETE /conversations/conv_1/items/msg_1": "",
    "POST /conversations/conv_1/items": "",
    "GET /conversations/conv_1/items/msg_1": "",
    "GET /conversations/conv_1/items": "client_items",
    "GET /responses/{id}/input_items": "client_items",
    "GET /responses/{id}?include[]=reasoning.encrypted_content": "restore",
    "DELETE /conversations/conv_1": "",
}


async def test_a_stored_object_is_read_cleaned_and_written_beside_the_loop(data, monkeypatch):
    """Law: of up to 8 MiB, whichever request it answers."""
    restore = Echo.restore
    async with LongStore("Yes.") as up, running(up.url, data, STORES) as live:
        shown, _ = await ask(live, "Hi", headers=ADA)
        with noted(stored_responses.client_items) as work:

            def restoring(self, response):
                work.note("restore", len(json.dumps(response)))
                return restore(self, response)

            monkeypatch.setattr(Echo, "restore", restoring)
            for request, cleaner in OBJECTS.items():
                work.clear()
                method, path = request.format(id=shown["id"]).split()
                body = {} if method == "POST" else None
                http = await live.http.request(method, live.url + path, headers=ADA, json=body)
                assert (request, http.status_code) == (request, 200), http.text[:200]
                assert len(http.content) > len(LONG)
                assert work.on_loop == [], request
                assert {"decode", "encode_json", cleaner} - {""} <= work.names_beside, request


# Where a provider keeps no conversations. {item}: one that was added.
KEPT_HERE = (
    "POST /conversations/{id}/items",
    "GET /conversations/{id}/items",
    "GET /conversations/{id}/items/{item}",
    "DELETE /conversations/{id}/items/{item}",
)


async def test_a_conversation_that_is_kept_here_is_read_and_written_beside_the_loop(data):
    item = {**ITEM, "content": [{"type": "input_text", "text": LONG[: 3 << 20]}]}
    async with ResponsesModel("Yes.") as up, running(up.url, data, STATELESS) as live:
        made = await live.http.post(f"{live.url}/conversations", headers=ADA, json={})
        names = {"id": made.json()["id"], "item": ""}
        with noted() as work:
            for request in KEPT_HERE:
                work.clear()
                method, path = request.format(**names).split()
                body = {"items": [item]} if method == "POST" else None
                http = await live.http.request(method, live.url + path, headers=ADA, json=body)
                assert (request, http.status_code) == (request, 200), http.text[:200]
                assert work.on_loop == [], request
                assert work.beside, request
                if method == "POST":
                    names["item"] = http.json()["data"][0]["id"]
