"""There is one door to what a provider stores, and every spelling of a path goes through it."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import shutil
import socket
import sys
import zlib
from contextlib import asynccontextmanager
from urllib.parse import quote

import httpx
import pytest

from tests.conftest import running
from tests.e2e.responses.asking import ask, user
from tests.e2e.responses.test_owners import ADA, FILES, OTHER, Provider, live_at
from tests.gateway.http.test_paths import spelt_once
from tests.sockets import RawServer, free_port

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEAD_AWAY = [
    "..%2F..%2F..%2Ffiles%3Flimit=100",
    "..%2f..%2ffiles",
    "%2e%2e%2ffiles",
    "..%252f..%252ffiles",
    "..%5c..%5cfiles",
    "%2e%2e",
    "..;%2ffiles",
    "x%2F..%2F..%2Ffiles",
    "x%2Fy",
    "x%3Flimit=100",
]


async def asked(live, method, path, headers, body=None):
    """Send a path as it is spelt: httpx would mend it."""
    raw = quote(path, safe="".join(map(chr, range(0x21, 0x7F)))).encode()
    url = httpx.URL(live.root).copy_with(raw_path=raw)
    return await live.http.request(method, url, headers=headers, json=body)


def reached(up):
    """The paths that clients' requests reached; the memory's own jobs ask for chat completions."""
    return [r.path for r in up.requests if r.path != "/v1/chat/completions"]


@asynccontextmanager
async def behind_nginx(url, folder):
    """An ordinary nginx before a server: it decodes and folds the path, as nginx does."""
    port, folder = free_port(), folder / "nginx"
    folder.mkdir()
    conf = folder / "nginx.conf"
    conf.write_text(f"""
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {url.removesuffix("/v1")}/; }} }}
}}
""")
    proxy = await asyncio.create_subprocess_exec("nginx", "-c", str(conf), "-p", str(folder))
    try:
        for _ in range(500):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        proxy.terminate()
        await proxy.wait()


@pytest.mark.parametrize("nginx", [False, True])
async def test_a_name_never_leads_out_of_its_place(data, tmp_path, nginx):
    if nginx and shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    async with Provider("One.") as up:
        async with behind_nginx(up.url, tmp_path) if nginx else here(up.url) as url:
            async with live_at(up, data, base_url=url) as live:
                made = await asked(live, "POST", "/v1/conversations", ADA, {})
                name = made.json()["id"]
                first, _ = await ask(live, "Say one", headers=ADA)
                seen = len(reached(up))
                for away in LEAD_AWAY:
                    for method, path in (
                        ("GET", f"/v1/conversations/{name}/items/{away}"),
                        ("DELETE", f"/v1/conversations/{name}/items/{away}"),
                        ("GET", f"/u/ada/v1/conversations/{name}/items/{away}"),
                        ("GET", f"/v1/conversations/{away}"),
                        ("GET", f"/v1/responses/{away}"),
                        ("GET", f"/v1/responses/{away}/input_items"),
                        ("POST", f"/v1/responses/{away}/cancel"),
                        ("GET", f"/v1/responses/{first['id']}%2F{away}"),
                    ):
                        http = await asked(live, method, path, ADA)
                        assert http.status_code == 404, (method, path, http.text)
                assert reached(up)[seen:] == []
                http = await asked(live, "GET", f"/v1/conversations/{name}/items/msg_1", ADA)
                assert (http.status_code, reached(up)[-1]) == (
                    200,
                    f"/v1/conversations/{name}/items/msg_1",
                )


@asynccontextmanager
async def here(url):
    yield url


BODIES = [
    {"previous_response_id": "RESPONSE"},
    {"Previous_Response_Id": "RESPONSE"},
    {"conversation": "CONVERSATION"},
    {"conversation": {"id": "CONVERSATION"}},
    {"input": [{"type": "item_reference", "id": "ITEM"}]},
    {"input": [{"content": [{"type": "input_file", "file_id": "file_1"}]}]},
    {"prompt": {"id": "pmpt_1"}},
    {"images": [{"file_id": "file_1"}]},
    {"voice": {"id": "voice_1"}},
]
PATHS = [
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/chat/moderations",
    "/v1/images/edits",
    "/v1/audio/speech",
    "/u/eve/v1/responses/compact",
]


@pytest.mark.parametrize("model", [{"model": "m"}, {}])
async def test_every_relayed_body_is_checked_for_what_it_names(data, model):
    async with Provider("One.") as up, live_at(up, data) as live:
        made = await asked(live, "POST", "/v1/conversations", ADA, {})
        first, _ = await ask(live, "Say one")
        real = {
            "CONVERSATION": made.json()["id"],
            "RESPONSE": first["id"],
            "ITEM": first["output"][0]["id"],
        }
        seen = len(reached(up))
        for path in PATHS:
            for body in BODIES:
                text = json.dumps({**model, **body})
                for name, value in real.items():
                    text = text.replace(name, value)
                http = await asked(
                    live, "POST", path, {**OTHER, "x-memory": "off"}, json.loads(text)
                )
                assert http.status_code == 404, (path, body, http.text)
        assert reached(up)[seen:] == []
        own = {"model": "m", "previous_response_id": first["id"], "user": "ada"}
        http = await asked(live, "POST", "/v1/responses/compact", {"x-memory": "off"}, own)
        assert (http.status_code, reached(up)[-1]) == (200, "/v1/responses/compact")


async def test_a_form_is_checked_for_what_it_names(data):
    async def answers(seen, wire):
        await wire.json({})

    async with RawServer(answers) as up, live_at(up, data) as live:
        form = {"model": (None, "m"), "file_id": (None, "file_1"), "image": ("a.png", b"x")}
        http = await live.http.post(f"{live.url}/images/edits", files=form, headers=OTHER)
        assert http.status_code == 404, http.text
        http = await live.http.post(f"{live.url}/images/edits", files=form, headers=FILES)
        assert http.status_code == 200, http.text
        sent = {"model": "m", "file_id": "file_1"}
        http = await live.http.post(f"{live.url}/images/edits", data=sent, headers=OTHER)
        assert http.status_code == 404, http.text
        escaped = b"file%5Fid=" + b"%41" * 100_000
        kind = {"content-type": "application/x-www-form-urlencoded"}
        url = f"{live.url}/images/edits"
        http = await live.http.post(url, content=escaped, headers={**OTHER, **kind})
        assert http.status_code == 400, http.text
        assert "300010 bytes, of which 262144 are read" in http.text
        packed = json.dumps({"model": "m", "file_id": "file_1"}).encode("utf-16")
        http = await live.http.post(f"{live.url}/images/edits", content=packed, headers=OTHER)
        assert http.status_code == 400, http.text


CHAINED = b'{"model":"m","input":"x","previous_response_id":"RESPONSE"}'
REFERRING = b'{"model":"m","input":[{"type":"item_reference","id":"ITEM"}]}'
PACKED = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
FORMS = {
    "twice": CHAINED[:-1] + b',"previous_response_id":null}',
    "in escapes": CHAINED.replace(b"_id", b"_\\u0069d"),
    "in other capitals": CHAINED.replace(b"previous", b"Previous"),
    "behind a mark of the byte order": b"\xef\xbb\xbf" + CHAINED,
    "behind a form feed": b"\x0c" + CHAINED,
    "in UTF-16": CHAINED.decode().encode("utf-16"),
    "before NUL": CHAINED + b"\0",
    "before another value": CHAINED + b" {}",
    "beside a long number": CHAINED[:-1] + b',"seed":' + b"9" * 5000 + b"}",
    "beside deep nesting": CHAINED[:-1] + b',"metadata":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "as a reference": REFERRING,
    "as a reference without a type": REFERRING.replace(b'"type":"item_reference",', b""),
    "as a reference of no type": REFERRING.replace(b'"item_reference"', b"null"),
    "as a reference of two ids": REFERRING.replace(b"}", b',"id":"x"}', 1),
    "in an input that comes twice": REFERRING[:-1] + b',"input":"x"}',
    "in a conversation that comes twice": (
        b'{"model":"m","input":"x","conversation":{"id":"CONVERSATION","id":null}}'
    ),
}
KINDS = {
    "text": {"content-type": "text/plain"},
    "no type": {"content-type": ""},
    "form": {"content-type": "application/x-www-form-urlencoded"},
    "parts": {"content-type": "multipart/form-data; boundary=x"},
    **{name: {"content-encoding": name} for name in PACKED},
}


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_no_form_of_a_body_hides_what_it_names(data, mode):
    async with Provider("One.") as up, live_at(up, data) as live:
        made = await asked(live, "POST", "/v1/conversations", ADA, {})
        first, _ = await ask(live, "Say one")
        names = {
            b"CONVERSATION": made.json()["id"].encode(),
            b"RESPONSE": first["id"].encode(),
            b"ITEM": first["output"][0]["id"].encode(),
        }
        sent = [(form, body, {}) for form, body in FORMS.items()]
        sent += [(kind, CHAINED, headers) for kind, headers in KINDS.items()]
        for form, body, more in sent:
            for name, value in names.items():
                body = body.replace(name, value)
            body = PACKED.get(form, bytes)(body)
            for path in ("responses", "responses/compact"):
                seen = len(up.requests)
                headers = {"content-type": "application/json", **OTHER, "x-memory": mode, **more}
                url = f"{live.url}/{path}"
                http = await live.http.post(url, content=body, headers=headers)
                assert http.status_code < 500, (form, path, http.text)
                arrived = b"".join(r.body for r in up.requests[seen:])
                assert not [n for n in names.values() if n in arrived], (form, path)


# Every route that reads or names a stored object.
ROUTES = [
    ("GET", "responses/RESPONSE"),
    ("DELETE", "responses/RESPONSE"),
    ("POST", "responses/RESPONSE/cancel"),
    ("GET", "responses/RESPONSE/input_items"),
    ("GET", "conversations/CONVERSATION"),
    ("POST", "conversations/CONVERSATION"),
    ("DELETE", "conversations/CONVERSATION"),
    ("GET", "conversations/CONVERSATION/items"),
    ("POST", "conversations/CONVERSATION/items"),
    ("GET", "conversations/CONVERSATION/items/ITEM"),
    ("DELETE", "conversations/CONVERSATION/items/ITEM"),
    ("GET", "files"),
    ("GET", "files/file_1/content"),
    ("GET", "vector_stores/vs_1/files"),
    ("GET", "containers/cntr_1/files/f/content"),
    ("GET", "batches/b_1"),
    ("POST", "batches/b_1/cancel"),
    ("GET", "chat/completions/chatcmpl_1"),
    ("GET", "threads/t_1/messages"),
    ("POST", "messages/batches"),
    ("GET", "uploads/u_1"),
    ("GET", "skills/s_1"),
]


# What a key without their `paths` is told of them, however they are spelt. Responses and
# conversations it may name; one that is not its own is not found.
REFUSALS = {"responses": 404, "conversations": 404}


def names_no_path(http):
    """Whether a spelling folds to nothing that is there."""
    return http.status_code == 404 and "There is nothing at" in http.text


async def test_no_spelling_reaches_what_the_canonical_one_refuses(data):
    rng = random.Random(7)
    async with Provider("One.") as up, live_at(up, data) as live:
        made = await asked(live, "POST", "/v1/conversations", ADA, {})
        first, _ = await ask(live, "Say one")
        names = (made.json()["id"], first["id"], first["output"][0]["id"])
        seen = len(reached(up))
        for method, route in ROUTES:
            path = route
            for mark, name in zip(("CONVERSATION", "RESPONSE", "ITEM"), names, strict=True):
                path = path.replace(mark, name)
            body = {"items": [user("x")]} if method == "POST" else None
            refusal = REFUSALS.get(route.partition("/")[0], 403)
            for root in ("/v1", "/u/ada/v1", "/u/eve/v1", "//v1", "/v1/.", "/u/ada//v1"):
                http = await asked(live, method, f"{root}/{path}", OTHER, body)
                assert http.status_code == refusal, (method, root, path, http.text)
                for _ in range(12):
                    odd = spelt_once(rng, path.split("/"))
                    http = await asked(live, method, f"{root}/{odd}", OTHER, body)
                    folds = not names_no_path(http)
                    assert http.status_code == (refusal if folds else 404), (root, odd, http.text)
        assert reached(up)[seen:] == []


async def test_each_spelling_gives_the_canonical_answer_or_404(data):
    rng = random.Random(11)
    async with Provider("One.") as up, live_at(up, data) as live:
        first, _ = await ask(live, "Say one", headers=ADA)
        chained = {"model": "m", "input": "x", "previous_response_id": first["id"]}
        for tail in ("responses", "responses/compact", "responses/input_tokens"):
            for _ in range(60):
                seen, odd = len(reached(up)), spelt_once(rng, tail.split("/"))
                stranger = await asked(live, "POST", f"/v1/{odd}", OTHER, chained)
                assert stranger.status_code == 404, (odd, stranger.text)
                assert reached(up)[seen:] == []
                owner = await asked(live, "POST", f"/v1/{odd}", ADA, chained)
                if not names_no_path(owner):
                    assert owner.status_code == 200, (odd, owner.text)
                    assert owner.headers["x-memory-status"] in ("ok", "off"), odd
                    assert reached(up)[-1] == f"/v1/{tail}"


async def test_what_is_forwarded_is_the_folded_path(data):
    rng = random.Random(13)

    async def answers(seen, wire):
        await wire.json({})

    async with RawServer(answers) as up, live_at(up, data) as live:
        for _ in range(120):
            odd = spelt_once(rng, ["files", "file-1"])
            found = await asked(live, "GET", f"/v1/{odd}", FILES)
            if not names_no_path(found):
                assert found.status_code == 200, (odd, found.text)
                assert reached(up)[-1] == "/v1/files/file-1", odd


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_equal_idempotency_keys_of_two_users_arrive_apart(data, mode):
    async with Provider("One.") as up, live_at(up, data) as live:
        for path, sent in (
            ("/responses", {"model": "m", "input": "x"}),
            ("/embeddings", {"model": "m", "input": "x"}),
        ):
            arrived = []
            for name in ("ada", "bob", "ada"):
                headers = {"x-memory": mode, "idempotency-key": "same"}
                for named in ({**headers, "x-memory-user": name}, headers):
                    body = {**sent, "user": name}
                    await live.http.post(f"{live.url}{path}", json=body, headers=named)
                    arrived.append(up.requests[-1].header("idempotency-key"))
            assert None not in arrived
            assert arrived[0] == arrived[1] == arrived[4] == arrived[5], path
            assert arrived[2] == arrived[3] != arrived[0]
            assert "same" not in "".join(arrived)


async def test_the_management_api_trims_a_name_as_requests_do(data):
    async with Provider("One.") as up, live_at(up, data) as live:
        block = {"value": "Likes tea"}
        made = await live.memory("PUT", "/users/%20ada%20/blocks/human", json=block)
        assert made.status_code == 200, made.text
        await ask(live, "Hi", headers={"x-memory-user": "%20ada%20"})
        assert "Likes tea" in up.requests[-1].body.decode()
        found = (await live.memory("GET", "/users")).json()["data"]
        assert [u.get("name", u.get("id")) for u in found] == ["ada"], found


async def test_models_cover_what_a_built_in_tool_asks(data):
    async with Provider("One.") as up:
        key = {"name": "k", "key": "key-k-aaaaaaaaaaaaaaaaaa", "tenant": "t", "models": ["m"]}
        provider = {"base_url": up.url, "api_key": "sk-operator"}
        config = {"providers": {"main": provider}, "keys": [key]}
        async with running("", data, config, key=key["key"]) as live:
            for mode in ("full", "off"):
                for path in ("/responses", "/responses/compact"):
                    for model, status in (("m", 200), ("dear", 403)):
                        tool = {"type": "image_generation", "model": model}
                        body = {"model": "m", "input": "x", "tools": [tool]}
                        headers = {"x-memory": mode}
                        url = f"{live.url}{path}"
                        http = await live.http.post(url, json=body, headers=headers)
                        assert http.status_code == status, http.text


STORED = [
    ("GET", "/v1/responses/RESPONSE"),
    ("GET", "/v1/responses/RESPONSE?stream=true"),
    ("GET", "/u/ada/v1/responses/RESPONSE/input_items"),
    ("GET", "/v1/conversations/CONVERSATION"),
    ("GET", "/v1/conversations/CONVERSATION/items"),
    ("POST", "/v1/conversations/CONVERSATION/items"),
    ("GET", "/v1/conversations/CONVERSATION/items/msg_1"),
    ("POST", "/v1/conversations"),
    ("DELETE", "/v1/responses/RESPONSE"),
]


async def test_requests_on_stored_objects_are_limited_and_booked(data):
    async with Provider("One.") as up:
        key = {"name": "k", "key": "key-k-aaaaaaaaaaaaaaaaaa", "tenant": "t"}
        key["limits"] = {"rpm": len(STORED) + 2}
        provider = {"base_url": up.url, "api_key": "sk-operator"}
        config = {"providers": {"main": provider}, "keys": [key]}
        async with running("", data, config, key=key["key"]) as live:
            first, _ = await ask(live, "Say one", headers=ADA)
            made = await asked(live, "POST", "/v1/conversations", ADA, {})
            names = {"RESPONSE": first["id"], "CONVERSATION": made.json()["id"]}
            for method, route in STORED:
                path = route.replace("RESPONSE", names["RESPONSE"])
                path = path.replace("CONVERSATION", names["CONVERSATION"])
                body = {"items": [user("x")]} if method == "POST" else None
                http = await asked(live, method, path, ADA, body)
                assert http.status_code == 200, (method, path, http.text)
                assert "x-ratelimit-remaining-requests" in http.headers, path
                assert http.headers["x-memory-status"] == "off"
            for method, route in STORED:
                http = await asked(live, method, route, ADA, {} if method == "POST" else None)
                assert http.status_code == 429, (method, route, http.text)
            await live.gateway.memory.wait_until_ready()
            await live.gateway.usage.flush()
            rows = (await live.memory("GET", "/usage?group_by=request")).json()["data"]
            paths = [r.get("path") for r in rows]
            assert len(rows) >= len(STORED) + 2, paths


async def test_what_is_kept_here_has_a_quota(data):
    limits = {"memory.kept_mib": 0.05, "memory.kept_conversation_mib": 0.02}
    answer = {
        "id": "c",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "One."},
                "finish_reason": "stop",
            }
        ],
    }

    async def answers(seen, wire):
        await wire.json(answer)

    async with RawServer(answers) as up:
        key = {"name": "k", "key": "key-k-aaaaaaaaaaaaaaaaaa", "tenant": "t"}
        provider = {"base_url": up.url, "api_key": "sk-operator", "wires": ["chat"]}
        config = {"providers": {"main": provider}, "keys": [key], **limits}
        async with running("", data, config, key=key["key"]) as live:
            made = await asked(live, "POST", "/v1/conversations", ADA, {})
            path = f"/v1/conversations/{made.json()['id']}/items"
            items, codes = {"items": [user("x" * 5000)]}, []
            for _ in range(8):
                http = await asked(live, "POST", path, ADA, items)
                codes.append(http.status_code)
            assert codes == [200, 200, 200, 409, 409, 409, 409, 409], http.text
            error = http.json()["error"]
            assert error["code"] == "kept_space"
            assert "0.02 MiB (memory.kept_conversation_mib)" in error["message"]
            body = {"model": "m", "input": "x" * 8000}
            codes = []
            # Served, and from some time on not kept.
            for _ in range(8):
                http = await asked(live, "POST", "/v1/responses", ADA, body)
                codes.append(http.json()["store"])
                assert http.status_code == 200, http.text
            assert codes[0] is True
            assert codes[-1] is False
            http = await asked(live, "POST", "/v1/responses", ADA, {**body, "store": True})
            assert (http.status_code, http.json()["error"]["code"]) == (409, "kept_space")
            other = {"x-memory-user": "bob"}
            http = await asked(live, "POST", "/v1/responses", other, {**body, "store": True})
            assert (http.status_code, http.json()["store"]) == (200, True)
