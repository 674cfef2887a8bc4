"""F. Headers: what crosses the gateway in either direction, and what stays."""

from __future__ import annotations

import json

import pytest

from gateway.config.settings import ConfigError
from tests.conftest import SENTINEL_KEY, running
from tests.e2e.wire.rows import row
from tests.e2e.wire.ways import GATEWAY_KEY, PROVIDER_KEY, WAYS, ask, each_mode, each_way, managed
from tests.models import Model
from tests.sockets import RawServer

WANTED = {
    "OpenAI-Organization": "org-1",
    "OpenAI-Project": "proj-1",
    "OpenAI-Beta": "assistants=v2",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "b-1",
    "Idempotency-Key": "idem-1",
    "X-Client-Request-Id": "mine",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=b",
    "baggage": "k=v",
}
PLAIN = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    ],
}


def answers(*lines, status=200):
    async def behave(seen, wire):
        if seen.body and json.loads(seen.body).get("stream"):
            await wire.start_stream(*lines)
            await wire.event(
                {
                    **PLAIN,
                    "object": "chat.completion.chunk",
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"role": "assistant", "content": "a"},
                            "finish_reason": "stop",
                        }
                    ],
                }
            )
            await wire.event(
                {"type": "response.completed", "choices": []}
                if "responses" in seen.path
                else b"[DONE]"
            )
            await wire.end()
        else:
            await wire.json(PLAIN, status, *lines)

    return behave


def sent(up):
    return {k.lower(): v for k, v in up.requests[-1].headers}


@row(92)
@each_way
@each_mode
async def test_the_headers_that_mean_something_upstream_get_there(data, way, stream):
    async with (
        RawServer(answers()) as up,
        running(up.url, data, {"server.forward_headers": ["X-Custom"]}) as live,
    ):
        assert (
            await ask(live, way, stream, {**WANTED, "X-Custom": "c", "X-Other": "o"})
        ).status_code == 200
        assert {k: sent(up).get(k.lower()) for k in WANTED} == WANTED
        assert sent(up)["x-custom"] == "c"
        assert "x-other" not in sent(up)


@row(92)
@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Cookie",
        "x-api-key",
        "connection",
        "X-Memory-User",
        "x-mnemogate-actor",
        "Proxy-Authorization",
        "host",
    ],
)
async def test_a_header_that_must_stay_cannot_be_configured_to_go(data, name):
    with pytest.raises(ConfigError, match="never sent upstream"):
        async with running("http://127.0.0.1:9/v1", data, {"server.forward_headers": [name]}):
            pass


@row(88)
@each_way
@each_mode
async def test_hop_by_hop_headers_stay_on_their_hop(data, way, stream):
    back = [
        "connection: keep-alive, x-secret-hop",
        "x-secret-hop: 1",
        "keep-alive: timeout=5",
        "proxy-authenticate: Basic",
        "x-kept: yes",
    ]
    async with RawServer(answers(*back)) as up, running(up.url, data) as live:
        asked = {
            "Connection": "keep-alive, OpenAI-Beta",
            "OpenAI-Beta": "x",
            "Keep-Alive": "timeout=3",
            "TE": "trailers",
            "Proxy-Authorization": "Basic eA==",
            "Upgrade": "h2c",
        }
        response = await ask(live, way, stream, asked)
        assert not {
            "openai-beta",
            "keep-alive",
            "te",
            "proxy-authorization",
            "upgrade",
            "transfer-encoding",
        } & set(sent(up))
        assert "keep-alive" in sent(up).get("connection", "keep-alive")
        assert sent(up)["host"] == f"127.0.0.1:{up.port}"
        assert int(sent(up)["content-length"]) == len(up.requests[-1].body)
        assert not {"x-secret-hop", "keep-alive", "proxy-authenticate"} & set(response.headers)
        assert response.headers["x-kept"] == "yes"


@row(89)
@each_way
@each_mode
async def test_the_clients_credentials_go_upstream_in_own_key_mode_alone(data, way, stream):
    creds = {"Cookie": "session=1", "x-api-key": "xk-client"}
    async with RawServer(answers()) as up:
        async with running(up.url, data) as live:
            await ask(live, way, stream, creds)
            assert sent(up)["authorization"] == f"Bearer {SENTINEL_KEY}"
            assert not {"cookie", "x-api-key"} & set(sent(up))
        async with running(up.url, data / "2", managed(), GATEWAY_KEY) as live:
            await ask(live, way, stream, creds)
            assert sent(up)["authorization"] == f"Bearer {PROVIDER_KEY}"
            assert GATEWAY_KEY not in str(up.requests[-1].headers)


@row(89)
@each_way
async def test_a_missing_provider_key_lends_nobody_elses_and_is_the_operators_fault(data, way):
    async def wants_one(seen, wire):
        await wire.json({"error": {"message": "You didn't provide an API key."}}, 401)

    config = {"keys": [{"name": "app", "key": GATEWAY_KEY, "tenant": "acme"}]}
    async with RawServer(wants_one) as up, running(up.url, data, config, GATEWAY_KEY) as live:
        response = await ask(live, way)
        assert "authorization" not in sent(up)
        assert response.status_code == 502
        assert "api_key" in response.json()["error"]["message"]


@row(90)
@each_way
async def test_a_client_cannot_choose_the_upstream(data, way):
    async with (
        RawServer(answers()) as up,
        RawServer(answers()) as evil,
        running(up.url, data) as live,
    ):
        host = f"127.0.0.1:{evil.port}"
        names = (
            "X-Upstream",
            "X-Base-Url",
            "X-Mnemogate-Upstream",
            "X-Mnemogate-Base-Url",
            "X-Portkey-Custom-Host",
            "X-LiteLLM-Api-Base",
        )
        response = await ask(
            live,
            way,
            headers=dict.fromkeys(names, f"http://{host}/v1"),
            api_base=f"http://{host}/v1",
            base_url=f"http://{host}/v1",
        )
        assert response.status_code == 200
        for path in (
            f"//{host}/x",
            f"/v1/@{host}/x",
            f"/v1/http://{host}/x",
            f"/v1/..%2f..%2f/{host}",
            f"/v1/x?url=http://{host}",
        ):
            await live.http.get(live.root + path)
        assert not evil.requests
        assert all(r.path.startswith("/v1/") for r in up.requests)


@row(91)
@each_way
@each_mode
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_an_upstreams_redirect_is_not_followed(data, way, stream, status):
    async with RawServer(answers()) as other:

        async def redirect(seen, wire):
            await wire.answer(status, b"", f"location: {other.url}/chat/completions")

        async with RawServer(redirect) as up, running(up.url, data) as live:
            response = await ask(live, way, stream)
            assert response.status_code == 502
            assert f":{other.port}" not in response.text + str(response.headers.raw)
            assert len(up.requests) == 1
        assert not other.requests


@row(93)
@each_way
@each_mode
async def test_every_answer_can_be_traced(data, way, stream, caplog):
    async with RawServer(answers("x-request-id: req_up")) as up, running(up.url, data) as live:
        first, second = await ask(live, way, stream), await ask(live, way, stream)
        assert first.headers["x-request-id"] == "req_up"
        assert first.headers["x-mnemogate-request-id"] != second.headers["x-mnemogate-request-id"]
        assert first.headers["x-mnemogate-request-id"].startswith("req_")
        up.behave = answers()
        silent = await ask(live, way, stream)
        assert silent.headers["x-request-id"] == silent.headers["x-mnemogate-request-id"]
        refused = await live.http.post(f"{live.url}/chat/completions", content=b"{")
        assert refused.headers["x-mnemogate-request-id"].startswith("req_")
        for path in (
            "/nothing",
            "/health",
            "/ready",
            "/schema",
            "/v1/models",
            "/v1/models/m",
            "/memory/v1/users",
        ):
            assert (
                (await live.http.get(live.root + path))
                .headers["x-mnemogate-request-id"]
                .startswith("req_")
            ), path
        # The upstream breaks.
        up.behave = None
        broken = await ask(live, way, stream)
        assert (broken.status_code, broken.headers["x-mnemogate-request-id"][:4]) == (502, "req_")


@row(94)
@each_way
@each_mode
async def test_an_upstreams_cookies_and_browser_rules_stay_there(data, way, stream):
    lines = [
        "set-cookie: a=b; Path=/",
        "set-cookie: c=d",
        "access-control-allow-origin: *",
        "strict-transport-security: max-age=1",
        "server: cloudflare",
        "alt-svc: h3",
        "x-kept: yes",
    ]
    async with RawServer(answers(*lines)) as up, running(up.url, data) as live:
        response = await ask(live, way, stream)
        assert response.headers["x-kept"] == "yes"
        assert not {
            "set-cookie",
            "access-control-allow-origin",
            "strict-transport-security",
            "server",
            "alt-svc",
        } & set(response.headers)
        await ask(live, way, stream)
        assert "cookie" not in sent(up)
        assert (
            len(
                response.headers.get_list("content-length")
                + response.headers.get_list("transfer-encoding")
            )
            == 1
        )


@row(94)
async def test_a_listed_origin_gets_its_own_cors_headers_and_no_other_does(data):
    async with (
        Model("hi") as up,
        running(up.url, data, {"server.cors_origins": ["https://app.example"]}) as live,
    ):
        asked = {
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,x-memory-user,x-stainless-os",
        }
        preflight = await live.http.options(f"{live.url}/chat/completions", headers=asked)
        assert preflight.status_code in (200, 204)
        assert (
            preflight.headers["access-control-allow-headers"]
            == asked["access-control-request-headers"]
        )
        for way in WAYS:
            response = await ask(live, way, headers={"origin": "https://app.example"})
            assert response.headers["access-control-allow-origin"] == "https://app.example"
        refused = await ask(live, "full", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers


@row(96)
@each_way
@each_mode
async def test_headers_of_ours_cannot_be_forged_from_either_side(data, way, stream):
    forged = {
        "x-memory-status": "off",
        "x-memory-explain": "exp_1",
        "x-mnemogate-upstream": "evil",
        "x-mnemogate-request-id": "req_forged",
        "x-mnemogate-attempts": "99",
    }
    async with (
        RawServer(answers(*(f"{k}: {v}" for k, v in forged.items()))) as up,
        running(up.url, data) as live,
    ):
        response = await ask(
            live, way, stream, {**forged, "x-memory-user": "ada", "x-memory-whatever": "1"}
        )
        assert response.status_code == 200
        assert not [k for k in sent(up) if k.startswith(("x-memory", "x-mnemogate"))]
        for name, value in forged.items():
            # Else it is off.
            if name != "x-memory-status" or way == "full":
                assert response.headers.get_list(name) != [value]
            assert len(response.headers.get_list(name)) <= 1


@row(97)
@each_way
@each_mode
async def test_the_overhead_is_told_in_both_modes(data, way, stream):
    async with RawServer(answers()) as up, running(up.url, data) as live:
        assert 0 <= float((await ask(live, way, stream)).headers["x-mnemogate-overhead-ms"]) < 5000
