"""`mnemogate db copy`: a memory made through the API on SQLite answers the same from Postgres."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import stores
from tests.conftest import running
from tests.e2e.test_fit import CONFIG, long_chat
from tests.gateway.cli.command import mnemogate
from tests.models import Model, call, calls

ADMIN = {"name": "root", "key": "sk-root-0123456789abcdef", "tenant": "acme", "admin": True}
USERS = ("ada", "Zoë/1", "anonymous")
QUERIES = ("lasagna", "what did I cook?", "東京", "Café", "answer question nothing", "Friday")
PLACES = (
    "blocks", "blocks/human/versions", "passages", "conversations", "policy",
    *(f"{kind}/search?q={quote(q)}" for kind in ("passages", "messages") for q in QUERIES),
)  # fmt: skip
LISTS = ("users", "keys", "usage?group_by=key,model,user", "turns?limit=50")


def answer(seen, wire):
    messages = seen.json["messages"]
    if "You compress" in str(messages[0]["content"]):
        return "SUMMARY of what was said"
    if messages[-1]["role"] == "user" and "remember" in str(messages[-1]["content"]):
        words = messages[-1]["content"].partition("\n")[0]
        return calls(
            call("core_memory_append", {"label": "human", "content": words}, "call_0"),
            call("archival_memory_insert", {"content": f"{words}, on Friday"}, "call_1"),
        )
    return f"answer {len(messages)} about 東京 and the Café"


async def talk(live, user):
    """A conversation with tools, and a fork of it."""
    head, history = {"x-memory-user": quote(user, safe="")}, []
    for words in ("I cooked lasagna", "remember the tea please\x00", "und in 東京?"):
        history.append({"role": "user", "content": words})
        found = await live.chat(history, head)
        assert (found.status_code, found.headers["x-memory-status"]) == (200, "ok"), found.text
        history.append(found.json()["choices"][0]["message"])
    other = [*history[:2], {"role": "user", "content": "no, something else"}]
    assert (await live.chat(other, head)).status_code == 200
    return history


async def fill(live):
    """Several users' memory; returns a history of each."""
    histories = {user: await talk(live, user) for user in USERS}
    long = await live.chat(long_chat(30), {"x-memory-user": "ada"}, max_tokens=200)
    assert long.status_code == 200
    for path, body in (
        ("blocks/human", {"value": "Name: Ada"}),
        ("blocks/plans", {"value": "tea at five"}),
        ("policy", {"memory": "read"}),
    ):
        user = "anonymous" if path == "policy" else "ada"
        assert (await live.memory("PUT", f"/users/{user}/{path}", json=body)).status_code < 300
    kept = {"content": "The key lies with Bob at the Café", "tags": ["home"], "importance": 0.9}
    assert (await live.memory("POST", "/users/ada/passages", json=kept)).status_code < 300
    assert (await live.memory("POST", "/users/ada/blocks/human/undo")).status_code == 200
    made = await live.memory("POST", "/keys", json={"name": "app", "tenant": "acme"})
    assert made.status_code == 200
    return histories, made.json()["key"]


async def told(live):
    """All that the memory answers."""
    out = {}
    for user in USERS:
        for place in PLACES:
            path = f"/users/{quote(user, safe='')}/{place}"
            out[path] = (await live.memory("GET", path)).text
    for path in LISTS:
        out[path] = (await live.memory("GET", f"/{path}")).text
    for user in USERS:
        path = f"/users/{quote(user, safe='')}/export"
        lines = (await live.memory("GET", path)).text.splitlines()
        out[path] = sorted(line for line in lines if '"exported_at"' not in line)
    return out


def without_nul(answer):
    """As Postgres stores it, which has no character NUL."""
    if isinstance(answer, list):
        return sorted(map(without_nul, answer))
    return answer.replace(r"\u0000", "\ufffd")


@pytest.fixture
def empty():
    """A database without tables."""
    stores.server()
    url = stores._thread.submit(stores.server().empty).result()
    yield url
    stores._thread.submit(stores.server().drop, url).result()


def gateway(up, data, **more):
    return running(up.url, data, {**CONFIG, "keys": [ADMIN], **more}, ADMIN["key"])


async def test_a_copied_memory_answers_as_before_and_goes_on(tmp_path, empty):
    data = tmp_path / "data"
    file = {"storage.database": f"sqlite+aiosqlite:///{data}/m.db", "storage.secret": ""}
    async with Model(answer) as up:
        async with gateway(up, data, **file) as live:
            (histories, key) = await fill(live)
            before = await told(live)
        config = write_config(tmp_path, data)
        copied = await asyncio.to_thread(
            mnemogate, data, "db", "copy", "--to", empty, "--json", "--config", str(config)
        )
        assert copied.returncode == 0, copied.stderr
        rows = json.loads(copied.stdout)["rows"]
        assert all(rows[n] for n in ("messages", "passages", "block_versions", "usage", "keys"))
        assert all(rows[n] for n in ("summaries", "user_policies", "explains", "epochs"))
        secret = (data / "secret").read_text().strip()
        moved = {"storage.database": empty, "storage.secret": secret}
        async with gateway(up, data, **moved) as live:
            after = await told(live)
            for path, was in before.items():
                assert without_nul(after[path]) == without_nul(was), path
            await goes_on(live, up, histories["ada"], key)
        again = await asyncio.to_thread(
            mnemogate, data, "db", "copy", "--to", empty, "--config", str(config)
        )
    assert again.returncode == 1
    assert "holds a memory already" in again.stderr


async def goes_on(live, up, history, key):
    """The next turn continues its conversation, with the blocks; new rows get new numbers."""
    found = await live.chat(
        [*history, {"role": "user", "content": "and now remember the soup"}],
        {"x-memory-user": "ada", "authorization": f"Bearer {key}"},
    )
    assert (found.status_code, found.headers["x-memory-status"]) == (200, "ok")
    assert "tea at five" in str(up.bodies[-1]["messages"])
    listed = (await live.memory("GET", "/users/ada/conversations")).json()["data"]
    assert len(listed) == 3
    assert found.headers["x-memory-conversation"] in [c["id"] for c in listed]
    hits = (await live.memory("GET", "/users/ada/passages/search?q=soup")).json()["data"]
    assert "soup" in hits[0]["content"]


def write_config(tmp_path: Path, data: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(f'[storage]\ndata = "{data}"\ndatabase = "sqlite+aiosqlite:///m.db"\n')
    return path


async def test_what_cannot_be_copied_is_refused_and_leaves_nothing(tmp_path, empty):
    data = tmp_path / "data"
    data.mkdir()
    config = write_config(tmp_path, data)

    def copy(url):
        found = mnemogate(data, "db", "copy", "--to", url, "--config", str(config))
        assert found.returncode == 1
        return found.stderr

    assert "There is no database" in await asyncio.to_thread(copy, empty)
    file = {"storage.database": f"sqlite+aiosqlite:///{data}/m.db", "storage.secret": ""}
    async with Model(answer) as up, gateway(up, data, **file) as live:
        assert (await live.chat("hello")).status_code == 200
    assert "use postgresql+asyncpg://" in await asyncio.to_thread(copy, "postgresql://h/d")
    # A memory made with another secret, and a row that the server does not take.
    other = stores.server_url()
    assert "storage.secret is not the secret" in await asyncio.to_thread(copy, other)
    (data / "secret").write_text(stores.SECRET.hex())
    stores.on_server(
        other,
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'full'; END $$",
        "CREATE TRIGGER t BEFORE INSERT ON usage FOR EACH ROW EXECUTE FUNCTION no()",
    )
    assert "nothing was copied" in await asyncio.to_thread(copy, other)
    assert stores.on_server(other, "SELECT count(*) FROM scopes")[0][0] == 0
    stores.on_server(other, "DROP TRIGGER t ON usage")
    found = await asyncio.to_thread(
        mnemogate, data, "db", "copy", "--to", other, "--config", str(config)
    )
    assert found.returncode == 0, found.stderr
    assert "Set storage.database to that URL" in found.stdout
