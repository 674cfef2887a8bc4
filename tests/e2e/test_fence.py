"""No key escapes what it was given: its models, its budget, its tenant's part of the provider's
account.
"""

from __future__ import annotations

import json
import time

import pytest

from gateway.relay.path_policy import STATELESS
from tests.conftest import running
from tests.e2e.wire.ways import PROVIDER_KEY
from tests.models import USAGE, Model
from tests.sockets import RawServer

TARGETS = {"targets": [{"provider": "openai"}]}
KEYS = {
    name: f"mg-{name}-key-of-enough-letters"
    for name in ("limited", "budget", "free", "other", "files")
}
CONFIG = {
    "providers": {"openai": {"base_url": "x", "api_key": PROVIDER_KEY}},
    "models": {
        "cheap": {**TARGETS, "price": {"input": 1, "output": 1}},
        "forbidden": {**TARGETS, "price": {"input": 1000, "output": 1000}},
        "renamed": {"targets": [{"provider": "openai", "model": "its-name-there"}]},
    },
    "keys": [
        {
            "name": "limited",
            "key": KEYS["limited"],
            "tenant": "a",
            "models": ["cheap"],
            "paths": ["/v1/deployments/*", "/v1/models/*", "/v1/files*"],
        },
        {
            "name": "budget",
            "key": KEYS["budget"],
            "tenant": "a",
            "budget": {"usd": 5},
            "paths": ["/v1/threads*"],
        },
        {"name": "free", "key": KEYS["free"], "tenant": "a", "admin": True},
        {"name": "other", "key": KEYS["other"], "tenant": "b"},
        {"name": "files", "key": KEYS["files"], "tenant": "a", "paths": ["/v1/files*"]},
    ],
}


async def answers(seen, wire):
    await wire.json(
        {"id": "1", "object": "text_completion", "model": "cheap", "choices": [], "usage": USAGE}
    )


@pytest.fixture(scope="module")
def module_data(tmp_path_factory):
    return tmp_path_factory.mktemp("fence")


@pytest.fixture
async def line(module_data):
    async with (
        RawServer(answers) as up,
        running(up.url, module_data / str(time.monotonic_ns()), CONFIG, key="") as live,
    ):
        yield up, live


def by(key, **more):
    return {"authorization": f"Bearer {KEYS[key]}", **more}


def part(name, value, head='content-disposition: form-data; name="{}"'):
    return f"{head.format(name)}\r\n\r\n{value}".encode()


def form(*parts):
    return b"".join(b"--b\r\n" + p + b"\r\n" for p in parts) + b"--b--\r\n"


FILE = part(
    "file",
    "sound",
    'content-disposition: form-data; name="{}"; filename="a\\"b.mp3"\r\ncontent-type: audio/mpeg',
)
JSON, FORM = "application/json", "multipart/form-data; boundary=b"
FORBIDDEN = '{"model":"forbidden","prompt":"x"}'
UNREADABLE = {
    "NaN": (JSON, '{"model":"forbidden","temperature":NaN}'),
    "UTF-16": (JSON, FORBIDDEN.encode("utf-16")),
    "byte order mark": (JSON, FORBIDDEN.encode("utf-8-sig")),
    "too deep": (JSON, '{"model":"forbidden","metadata":' + "[" * 2000 + "]" * 2000 + "}"),
    "raw control character": (JSON, '{"model":"forbidden","prompt":"a\nb"}'),
    "text behind": (JSON, FORBIDDEN + " {}"),
    "no object": (JSON, '["forbidden"]'),
    "no string": (JSON, '{"model":["forbidden"]}'),
    "twice": (JSON, '{"model":"forbidden","model":"cheap"}'),
    "twice, with escapes": (JSON, '{"mod\\u0065l":"forbidden","model":"cheap"}'),
    "as Go reads it": (JSON, '{"model":"cheap","Model":"forbidden"}'),
    "as C reads it": (JSON, '{"model":"cheap","model\\u0000":"forbidden"}'),
    "a blank behind": (JSON, '{"model":"cheap","model ":"forbidden"}'),
    "more models": (JSON, '{"model":"cheap","models":["forbidden"]}'),
    "models to fall back on": (JSON, '{"model":"cheap","fallbacks":[{"model":"forbidden"}]}'),
    "JSON that is a form as well": (
        "application/x-www-form-urlencoded",
        '{"model":"cheap","a":"&model=forbidden&"}',
    ),
    "another type": ("text/plain", '{"model":"forbidden","t":NaN}'),
    "not a form, as it says": (
        f"{JSON}; x=multipart/form-data; boundary=b",
        form(part("model", "cheap")),
    ),
    "urlencoded": ("application/x-www-form-urlencoded", "model=forbidden&prompt=x"),
    "two models": (FORM, form(part("model", "cheap"), part("model", "forbidden"), FILE)),
    "extended name": (
        FORM,
        form(part("model", "forbidden", "content-disposition: form-data; name*=utf-8''{}"), FILE),
    ),
    "a plain and an extended name": (
        FORM,
        form(part("model", "forbidden", "content-disposition: form-data; name=x; name*=utf-8''{}")),
    ),
    "blank before the colon": (
        FORM,
        form(
            part("model", "forbidden", 'content-disposition : form-data; name="{}"'),
            part("model", "cheap"),
        ),
    ),
    "another case": (FORM, form(part("Model", "forbidden"), part("model", "cheap"))),
    "an array": (FORM, form(part("model[]", "forbidden"), part("model", "cheap"))),
    "a name in escapes": (FORM, form(part("%6dodel", "forbidden"), part("model", "cheap"))),
    "two names": (
        FORM,
        form(part("model", "forbidden", 'content-disposition: form-data; name="x"; name="{}"')),
    ),
    "a folded line": (
        FORM,
        form(part("model", "forbidden", 'content-disposition: form-data;\r\n name="{}"')),
    ),
    "a bare line feed": (
        FORM,
        form(part("model", "forbidden", 'x: y\ncontent-disposition: form-data; name="{}"')),
    ),
    "a boundary of line feeds": (
        FORM,
        form(
            part("prompt", "x\n--b\ncontent-disposition: form-data; name=model\n\nforbidden\n--b"),
            part("model", "cheap"),
        ),
    ),
    "behind the end": (FORM, form(part("model", "cheap")) + form(part("model", "forbidden"))),
    "before the beginning": (FORM, b"x\r\n" + form(part("model", "forbidden"))),
    "base64": (
        FORM,
        form(
            part(
                "model",
                "Y2hlYXA=",
                'content-transfer-encoding: base64\r\ncontent-disposition: form-data; name="{}"',
            )
        ),
    ),
    "two boundaries": (f"{FORM}; boundary=c", form(part("model", "cheap"))),
    "a model that is a file": (
        FORM,
        form(part("model", "cheap", 'content-disposition: form-data; name="{}"; filename="m"')),
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_limited_key_sends_nothing_that_servers_could_read_otherwise(line, name):
    up, live = line
    kind, body = UNREADABLE[name]
    path = "/audio/transcriptions" if "form" in kind else "/completions"
    for key in ("limited", "budget"):
        refused = await live.http.post(
            live.url + path, content=body, headers=by(key, **{"content-type": kind})
        )
        assert refused.status_code == 400, refused.text
        assert "limited" in refused.json()["error"]["message"]
    assert not up.requests
    # The bytes of a key without limits are nobody's to judge.
    assert (
        await live.http.post(
            live.url + path, content=body, headers=by("free", **{"content-type": kind})
        )
    ).status_code == 200
    sent = body if isinstance(body, bytes) else body.encode()
    assert (up.requests[0].body, up.requests[0].header("content-type")) == (sent, kind)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"prompt": {"id": "pmpt_1"}, "input": "x"}),
        ("/completions", {"prompt": "x", "model": None}),
        ("/completions", {"a": {"model": "cheap"}}),
    ],
)
async def test_a_limited_key_sends_nothing_without_a_model(line, path, body):
    up, live = line
    for key in ("limited", "budget"):
        refused = await live.http.post(live.url + path, json=body, headers=by(key))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
        # Which servers need not look at.
        asked = await live.http.post(f"{live.url}{path}?model=cheap", json=body, headers=by(key))
        assert (asked.status_code, asked.json()["error"]["code"]) == (403, "model_not_allowed")
    refused = await live.http.post(
        f"{live.url}/threads/t/runs", json={"assistant_id": "a"}, headers=by("budget")
    )
    assert refused.status_code == 403
    empty = await live.http.post(live.url + path, headers=by("limited"))
    assert empty.status_code in (400, 403)
    assert not up.requests


async def test_what_a_limited_key_may_send_arrives_as_it_was(line):
    up, live = line
    bodies = [
        (JSON, b' {"model" : "cheap",\n "prompt":"\\ud83d \\u00e9 \xc3\xa9", "n": 1.0}'),
        (FORM, form(part("model", "cheap"), FILE)),
        (
            'Multipart/Form-Data; boundary="b"; charset=utf-8',
            form(FILE, part("model", "cheap", "Content-Disposition: form-data; name={}")),
        ),
    ]
    for kind, body in bodies:
        for key in ("limited", "budget"):
            assert (
                await live.http.post(
                    f"{live.url}/completions",
                    content=body,
                    headers=by(key, **{"content-type": kind}),
                )
            ).status_code == 200
            assert (up.requests[-1].body, up.requests[-1].header("content-type")) == (body, kind)
    for kind, body in bodies:
        changed = body.replace(b"cheap", b"forbidden")
        refused = await live.http.post(
            f"{live.url}/completions",
            content=changed,
            headers=by("limited", **{"content-type": kind}),
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    sent = await live.http.post(
        f"{live.url}/audio/translations",
        content=form(part("model", "renamed"), FILE),
        headers=by("free", **{"content-type": FORM}),
    )
    assert (sent.status_code, up.requests[-1].body) == (
        200,
        form(part("model", "its-name-there"), FILE),
    )


@pytest.mark.parametrize("mode", ["off", "full"])
async def test_a_chat_of_a_limited_key_names_its_model_once(line, mode):
    up, live = line
    messages = '"messages":[{"role":"user","content":"hi"}]'
    for body in (
        f'{{"model":"forbidden",{messages},"model":"cheap"}}',
        f'{{"model":"cheap",{messages},"MODEL":"forbidden"}}',
    ):
        refused = await live.http.post(
            f"{live.url}/chat/completions",
            content=body,
            headers=by("limited", **{"x-memory": mode}),
        )
        assert refused.status_code == 400, refused.text
    assert not up.requests


async def test_a_model_in_the_path_or_the_query_counts(line):
    up, live = line
    body = {"model": "cheap", "prompt": "x"}
    for path in (
        "/deployments/forbidden/completions",
        "/models/forbidden:generateContent",
        "/models/for%62idden",
        "/completions?model=forbidden",
    ):
        told = await live.http.post(live.url + path, json=body, headers=by("limited"))
        assert told.status_code == 400, (path, told.text)
        assert (
            await live.http.post(
                live.url + path, json={"model": "forbidden"}, headers=by("limited")
            )
        ).status_code == 403
    assert (
        await live.http.delete(f"{live.url}/models/forbidden", headers=by("limited"))
    ).status_code == 403
    assert not up.requests
    assert (
        await live.http.post(
            f"{live.url}/deployments/cheap/completions?model=cheap",
            json=body,
            headers=by("limited"),
        )
    ).status_code == 200
    assert (await live.http.get(f"{live.url}/files", headers=by("limited"))).status_code == 200


async def test_what_names_no_model_has_no_price(line):
    _, live = line
    await live.http.post(f"{live.url}/responses", json={"input": "x"}, headers=by("free"))
    await live.gateway.memory.wait_until_ready()
    await live.gateway.usage.flush()
    found = (await live.memory("GET", "/usage?group_by=request", headers=by("free"))).json()["data"]
    assert [(r["model"], r["input_tokens"], r["cost_usd"]) for r in found] == [("", 100, None)]


STORED = [
    ("GET", "/files"),
    ("POST", "/files"),
    ("DELETE", "/models/ft:gpt-4o:acme"),
    ("GET", "/batches/b"),
    ("POST", "/fine_tuning/jobs"),
    ("GET", "/vector_stores"),
    ("GET", "/assistants"),
    ("POST", "/threads/t/runs"),
    ("GET", "/responses/resp_1"),
    ("DELETE", "/responses/resp_1"),
    ("POST", "/responses/resp_1/cancel"),
    ("GET", "/conversations/c"),
    ("POST", "/evals"),
    ("GET", "/containers"),
    ("GET", "/chat/completions/c1"),
    ("GET", "/responses"),
    ("GET", "/completions/../files"),
    ("POST", "/completions/..%2ffiles"),
    ("POST", "/completions/..%5c..%5cfiles"),
    ("POST", "/audio/..;/files"),
    ("POST", "/completions/%252e%252e/files"),
    ("POST", "/messages/batches"),
    ("POST", "/realtime/client_secrets"),
]


async def test_what_the_account_keeps_is_for_keys_whose_paths_list_it(line):
    up, live = line
    for method, path in STORED:
        for root in (live.url, f"{live.root}/u/ada/v1"):
            refused = await live.http.request(
                method,
                root + path,
                headers=by("other"),
                json={"model": "cheap"} if method == "POST" else None,
            )
            assert refused.status_code in (403, 404), (method, path, refused.text)
            assert refused.status_code == 404 or "`paths`" in refused.json()["error"]["message"]
    assert not up.requests
    for path in ("/files", "/files/f1/content", "/files?after=1", "//files/f1"):
        assert (await live.http.get(live.url + path, headers=by("files"))).status_code == 200, path
    assert (await live.http.get(f"{live.url}/batches", headers=by("files"))).status_code == 403


async def test_what_keeps_nothing_needs_no_leave(line):
    up, live = line
    for path in sorted(STATELESS - {"/responses", "/responses/input_tokens"}):
        body = {"model": "cheap", "safety_identifier": "x"}
        asked = by("other", **{"x-memory": "off"})
        found = await live.http.post(live.url + path, json=body, headers=asked)
        assert found.status_code == 200, path
        assert up.requests[-1].json == body
        # Which may be another tenant's.
        for chain in (
            {"previous_response_id": "resp_1"},
            {"conversation": "conv_1"},
            {"conversation": {"id": "conv_1"}},
        ):
            # Which is not read whole.
            for long in ({}, {"metadata": {"x": "y" * (1 << 19)}}):
                sent = body | long | chain
                found = await live.http.post(live.url + path, json=sent, headers=asked)
                assert found.status_code == 404, path
                assert up.requests[-1].json == body, "it went on"


async def test_own_keys_reach_what_their_account_keeps(data):
    async with RawServer(answers) as up, running(up.url, data) as live:
        for method, path in STORED[:12]:
            found = await live.http.request(method, live.url + path, headers={"x-memory": "off"})
            assert found.status_code == 200
        told = {"openai-organization": "org-1", "openai-project": "p", "idempotency-key": "k"}
        await live.http.post(f"{live.url}/completions", json={"model": "m"}, headers=told)
        assert {name: up.requests[-1].header(name) for name in told} == told


async def test_the_operators_account_is_charged_as_the_operator_says(line):
    up, live = line
    told = {
        "openai-organization": "org-1",
        "openai-project": "p",
        "openai-beta": "b",
        "idempotency-key": "the-same",
    }
    keys = []
    for key in ("free", "files", "other", "free"):
        await live.http.post(
            f"{live.url}/completions", json={"model": "cheap"}, headers=by(key, **told)
        )
        sent = up.requests[-1]
        assert [
            sent.header(name) for name in ("openai-organization", "openai-project", "openai-beta")
        ] == [None, None, "b"]
        keys.append(sent.header("idempotency-key"))
    first, colleague, other, again = keys
    assert first == colleague == again != other
    assert "the-same" not in (first, other)


async def test_a_form_costs_linear_time_in_every_dimension(line):
    _, live = line
    for content in (b"--b\r\n", b"--b\r\nx: y\r\n", b"x: y\r\n", b"--b", form(part("x", ""))[:-7]):
        body = b"--b\r\n" + content * (8 * 2**20 // len(content))
        for key, status in (("limited", 400), ("free", 200)):
            begun = time.process_time()
            told = await live.http.post(
                f"{live.url}/audio/transcriptions",
                content=body,
                headers=by(key, **{"content-type": FORM}),
            )
            assert told.status_code == status
            # The old one took minutes for 200 KB.
            assert time.process_time() - begun < 5
    assert json.loads(told.content)["usage"] == USAGE


FILE_PART = {"type": "file", "file": {"file_id": "file-of-another"}}
PLAIN = [{"role": "user", "content": "Tell me about tea. " * 30}]


async def test_a_name_is_found_in_every_turn_of_a_conversation_wherever_it_stands(tmp_path):
    """Text that was looked through in an earlier turn, and not again, holds none."""
    keys = [{**key, "trusted": key["name"] == "other"} for key in CONFIG["keys"]]
    config = {**CONFIG, "keys": keys}
    async with Model("Of course. " * 30) as up:
        config["providers"] = {"openai": {"base_url": up.url, "api_key": PROVIDER_KEY}}
        async with running("", tmp_path, config, key="") as live:

            async def turn(messages, **body):
                sent = by("other", **{"x-memory-user": "ann"})
                answer = await live.chat(messages, sent, **{"model": "cheap", **body})
                if answer.status_code == 200:
                    messages.append(answer.json()["choices"][0]["message"])
                return answer.status_code

            history = list(PLAIN)
            assert await turn(history) == 200
            for naming in (
                {"role": "user", "content": [FILE_PART]},
                {"role": "user", "content": "x", "file_id": "file-of-another"},
                {"role": "user", "content": "x", "f\u0069le_id": "file-of-another"},
            ):
                assert await turn([*history, naming]) == 404
                # A refused turn leaves nothing behind that lets the next one pass.
                assert await turn([*history, naming, *PLAIN]) == 404
            tool = {"type": "file_search", "vector_store_ids": ["vs_of_another"]}
            assert await turn([*history, *PLAIN], tools=[tool]) == 404
            history += PLAIN
            assert await turn(history) == 200
            assert await turn([{"role": "user", "content": [FILE_PART]}, *history, *PLAIN]) == 404
            history += PLAIN
            assert await turn(history) == 200
    assert "of-another" not in json.dumps(up.bodies)
