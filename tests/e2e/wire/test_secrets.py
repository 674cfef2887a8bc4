"""H and K.

No key and no prompt where it does not belong: not in a log at any level, not at rest, not in an
answer.
"""

from __future__ import annotations

import contextlib

import httpx

from tests.e2e.wire.child import DEBUG, child, settled
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls, text

PROVIDER, CLIENT, REJECTED, OWN, QUERY, COOKIE = (
    f"sk-{n}-SENTINEL-{n * 7919:x}" for n in range(11, 17)
)
SECRETS = (PROVIDER, CLIENT, REJECTED, OWN, QUERY, COOKIE)
PROMPT, SYSTEM, SAID, KEPT = (
    "prompt-SENTINEL-1",
    "system-SENTINEL-2",
    "answer-SENTINEL-3",
    "memory-SENTINEL-4",
)
CONTENT = (PROMPT, SYSTEM, SAID, KEPT)

MANAGED = """
[providers.openai]
base_url = "{url}"
api_key = "${{PROVIDER_KEY}}"
timeouts = {{ connect = 1, first_token = 0.2, idle = 0.2, total = 5 }}
[models."gone"]
targets = [{{ provider = "openai" }}]
[models."*"]
targets = [{{ provider = "openai" }}]
[routing]
retries = 0
[[keys]]
name = "app"
key = "${{APP_KEY}}"
tenant = "acme"
"""
OWN_KEY = """
[server]
single_user = false
[providers.openai]
base_url = "{url}"
timeouts = {{ connect = 1, first_token = 0.2, idle = 0.2, total = 5 }}
[routing]
retries = 0
"""


def error(message, code="x"):
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    }


async def model(seen, wire):
    """Does what the request's `x` says; every refusal quotes the key it was given."""
    if seen.method != "POST":
        await wire.json({"object": "list", "data": []})
        return
    how, key = seen.json.get("x"), seen.header("authorization")
    say = up._streamed if seen.json.get("stream") else up._plain
    if how in ("400", "401", "403", "429", "500"):
        await wire.json(error(f"Incorrect API key provided: {key}"), int(how))
    elif how == "html":
        await wire.answer(502, f"<h1>{key}</h1>".encode(), content_type="text/html")
    elif how == "junk":
        await wire.answer(200, b"not json")
    elif how == "reset":
        wire.reset()
    elif how == "silent":
        await seen.gone.wait()
    elif how == "cut":
        await wire.start_stream()
        await wire.event(
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": SAID}}]}
        )
        await wire.end()
    elif seen.json["messages"][-1]["role"] == "tool":
        await say(seen, wire, [text(SAID)])
    else:
        await say(
            seen,
            wire,
            [
                calls(
                    call("core_memory_append", {"label": "human", "content": KEPT}),
                    call("core_memory_append", f"{{{KEPT}", "call_bad"),
                    call("conversation_search", {"query": PROMPT}),
                )
            ],
        )


up = Model(lambda seen, wire: model(seen, wire))


async def everything(client: httpx.AsyncClient, key: str) -> list[str]:
    """A mixed set of requests: good ones, refused ones, failing ones. Returns what was answered."""
    seen = []

    async def tell(method, path, **options):
        options["headers"] = {
            "authorization": f"Bearer {key}",
            "cookie": f"session={COOKIE}",
            **options.get("headers", {}),
        }
        with contextlib.suppress(httpx.TransportError):
            response = await client.request(method, path, **options)
            seen.append(f"{response.status_code} {response.headers} {response.text}")

    def body(**more):
        return {
            "model": "m",
            "messages": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": PROMPT},
            ],
            "user": "ada",
            **more,
        }

    for how in ("", "400", "401", "403", "429", "500", "html", "junk", "reset", "silent", "cut"):
        for stream in (False, True):
            await tell("POST", "/v1/chat/completions", json=body(x=how, stream=stream))
        await tell("POST", "/v1/chat/completions", json=body(x=how), headers={"x-memory": "off"})
    for headers in (
        {"authorization": f"Bearer {REJECTED}"},
        {"authorization": REJECTED},
        {"authorization": f"Basic {REJECTED}"},
        {"authorization": "", "x-api-key": REJECTED},
    ):
        await tell("POST", "/v1/chat/completions", json=body(x="401"), headers=headers)
        await tell("GET", "/v1/models", headers=headers)
        await tell("GET", "/memory/v1/users", headers=headers)
    await tell("POST", f"/v1/chat/completions?key={QUERY}&api_key={QUERY}", json=body())
    await tell("GET", f"/v1/files?key={QUERY}")
    await tell("POST", "/v1/chat/completions", content=b'{"model": ' + PROMPT.encode())
    await tell("POST", "/v1/chat/completions", json=body(messages=[PROMPT]))
    await tell(
        "POST", "/v1/embeddings", json={"model": "e", "input": PROMPT, "x": "500", "messages": []}
    )
    await tell("PUT", "/memory/v1/users/ada/blocks/human", json={"value": KEPT})
    await tell("PUT", "/memory/v1/users/ada/blocks/human", json={"value": 3, KEPT: KEPT})
    for path in (
        "/users",
        "/users/ada/blocks",
        f"/users/ada/messages/search?q={PROMPT}",
        "/users/ada/export",
        "/explain/none",
        "/users/ada/passages/none",
    ):
        await tell("GET", f"/memory/v1{path}")
    await tell("GET", "/nowhere")
    await tell("GET", "/health")
    return seen


def lies(folder, words):
    """Which of the words lie in a file of the folder."""
    return {
        (w, p.name)
        for p in folder.rglob("*")
        if p.is_file() and p.name != "gateway.toml"
        for w in words
        if w.encode() in p.read_bytes()
    }


@row(114, 155, 156)
async def test_no_secret_and_no_prompt_is_logged_and_no_key_is_kept_with_every_logger_at_debug(
    tmp_path,
):
    async with up:
        for name, config, key in (("managed", MANAGED, CLIENT), ("own-key", OWN_KEY, OWN)):
            folder = tmp_path / name
            async with child(
                folder, config.format(url=up.url), code=DEBUG, PROVIDER_KEY=PROVIDER, APP_KEY=CLIENT
            ) as (gateway, client):
                await settled(client)
                answers = await everything(client, key)
                assert sum(a.startswith("200") for a in answers) > 8, answers
                # a client may be told its own key by the provider that it brought it to; never
                # another's, never ours
                for secret in set(SECRETS) - ({OWN, REJECTED} if name == "own-key" else set()):
                    assert not [a for a in answers if secret in a], (name, secret)
            assert "DEBUG" in gateway.said
            # The requests did what they were meant to.
            assert lies(folder / "data", [KEPT])
            assert lies(folder, SECRETS) == set(), name
            assert lies(folder, CONTENT) & {(w, "log") for w in CONTENT} == set(), name
            assert "Traceback" not in gateway.said, gateway.said
