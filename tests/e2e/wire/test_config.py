"""K.

The configuration: what cannot be used stops the start by name, and a reload is one swap or none.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from gateway.config.loader import load
from gateway.config.settings import ConfigError
from tests import stores
from tests.conftest import running, said
from tests.e2e.wire.child import child, settled
from tests.e2e.wire.rows import row
from tests.gateway.cli.command import mnemogate
from tests.models import Model, call, calls

SECRET = "sk-value-SENTINEL"
PROVIDER = '[providers.openai]\nbase_url = "http://127.0.0.1:9/v1"\n'
CANNOT = {
    "an unset variable": (
        PROVIDER + 'api_key = "${NOT_SET_ANYWHERE}"',
        ["providers.openai.api_key", "${NOT_SET_ANYWHERE}"],
    ),
    "an empty variable": (
        PROVIDER + 'api_key = "${EMPTY_ONE}"',
        ["providers.openai.api_key", "${EMPTY_ONE}"],
    ),
    "one of two variables": (
        PROVIDER + 'api_key = "${SET_ONE}-${NOT_SET_ANYWHERE}"',
        ["providers.openai.api_key", "${NOT_SET_ANYWHERE}"],
    ),
    "an unset variable in a list": (
        '[server]\ncors_origins = ["${NOT_SET_ANYWHERE}"]',
        ["server.cors_origins[0]", "${NOT_SET_ANYWHERE}"],
    ),
    "an unset key of a client": (
        '[[keys]]\nname = "a"\ntenant = "t"\nkey = "${NOT_SET_ANYWHERE}"',
        ["keys[0].key", "${NOT_SET_ANYWHERE}"],
    ),
    "no name for a variable": (
        PROVIDER + 'api_key = "${MY-KEY}"',
        ["providers.openai.api_key", "${MY-KEY}"],
    ),
    "an unknown table": ("[servers]\nport = 1", ["servers: there is no such setting"]),
    "an unknown member": ("[server]\nprot = 1", ["server.prot: there is no such setting"]),
    "an unknown member, deep": (
        PROVIDER + 'timeouts = { first_tokn = "${SET_ONE}" }',
        ["providers.openai.timeouts.first_tokn: there is no such setting"],
    ),
    "an unknown member of a key": (
        '[[keys]]\nname = "a"\ntenant = "t"\nkey = "${SET_ONE}"\nroles = []',
        ["keys.0.roles: there is no such setting"],
    ),
    "a secret where a number belongs": ('[server]\nport = "${SET_ONE}"', ["server.port"]),
    "a provider nobody knows": (
        PROVIDER + '[models."m"]\ntargets = [{ provider = "nobody" }]',
        ["'nobody'"],
    ),
    "a provider's key and none for clients": (
        PROVIDER + 'api_key = "${SET_ONE}"',
        ["providers.openai.api_key", "[[keys]]"],
    ),
    "a pattern that is none": ('[memory]\nignore = ["("]', ["memory.ignore", "regular expression"]),
    "a table that is a number": ("providers = 3", ["providers"]),
    "no TOML": ("[server\n", ["not valid TOML"]),
}


@row(162)
@pytest.mark.parametrize("what", CANNOT)
def test_what_cannot_be_used_is_named_with_its_path_and_never_a_value(tmp_path, what):
    path = tmp_path / "gateway.toml"
    path.write_text(CANNOT[what][0])
    with pytest.raises(ConfigError) as told:
        load(path, {"SET_ONE": SECRET, "EMPTY_ONE": ""})
    for word in CANNOT[what][1]:
        assert word in str(told.value)
    assert SECRET not in str(told.value)


@row(162)
def test_the_start_fails_naming_variable_member_and_file(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(CANNOT["one of two variables"][0])
    ended = mnemogate(
        tmp_path / "data", "serve", "--config", str(path), "--port", "0", SET_ONE=SECRET
    )
    assert ended.returncode == 2
    for word in ("providers.openai.api_key", "${NOT_SET_ANYWHERE}", str(path)):
        assert word in ended.stderr
    assert SECRET not in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_default_that_is_given_is_taken(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text('[server]\nhost = "${NOT_SET_ANYWHERE:-127.0.0.1}"\n')
    assert load(path, {}).server.host == "127.0.0.1"


def config(url, key="mg-one", model="m", extra=""):
    return f"""
[server]
{extra if extra.startswith("host") else ""}
[providers.openai]
base_url = "{url}"
api_key = "sk-provider"
[models."{model}"]
targets = [{{ provider = "openai", model = "real" }}]
[[keys]]
name = "app"
key = "{key}"
tenant = "acme"
{extra if not extra.startswith("host") else ""}
"""


async def status(client, key, model="m", **more):
    response = await client.post(
        "/v1/chat/completions",
        json={"model": model, "messages": [{"role": "user", "content": "hi"}], **more},
        headers={"authorization": f"Bearer {key}"},
    )
    return response.status_code


@row(163)
async def test_a_sighup_swaps_what_it_can_and_an_invalid_file_changes_nothing(tmp_path):
    file = tmp_path / "gateway.toml"
    async with (
        Model("one") as up,
        Model("two") as other,
        child(tmp_path, config(up.url)) as (gateway, client),
    ):
        await settled(client)
        assert [await status(client, k) for k in ("mg-one", "mg-two")] == [200, 401]
        for broken, fault in (
            (config(other.url, "mg-two") + "\n[routing]\nretrys = 3\n", r"routing\.retrys"),
            ("[server\n", "not valid TOML"),
            (config(other.url, "${NOT_SET_ANYWHERE}"), "NOT_SET_ANYWHERE"),
            (
                config(other.url, "mg-two").replace('provider = "openai"', 'provider = "nobody"'),
                "nobody",
            ),
        ):
            file.write_text(broken)
            await gateway.reloaded(f"keeps its running configuration.*{fault}")
            assert [await status(client, k) for k in ("mg-one", "mg-two")] == [200, 401]
        file.unlink()
        await gateway.reloaded("keeps its running configuration.*cannot read")
        file.write_text(config(other.url, "mg-two", "n"))
        await gateway.reloaded("Mnemogate reloaded")
        assert [
            await status(client, "mg-one"),
            await status(client, "mg-two", "m"),
            await status(client, "mg-two", "n"),
        ] == [401, 404, 200]
        assert len(other.bodies) == 1
        file.write_text(config(other.url, "mg-two", "n", 'host = "0.0.0.0"'))
        await gateway.reloaded(r"Mnemogate reloaded [^\n]*\n.*server\.host")
        assert await status(client, "mg-two", "n") == 200
        assert "Traceback" not in gateway.said
        assert not re.search("mg-one|mg-two|sk-provider", gateway.said)


@row(163)
async def test_a_request_on_its_way_keeps_the_settings_it_began_with(data):
    """A turn of two rounds, the configuration being swapped between them: its provider, key, alias
    and limits stay.
    """
    go, arrived = asyncio.Event(), asyncio.Event()

    async def first(seen, wire):
        arrived.set()
        await go.wait()
        await up._streamed(
            seen,
            wire,
            [calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))],
        )

    def settings(url, key, **memory):
        return {
            "providers": {"openai": {"base_url": url, "api_key": key}},
            "models": {"alias": {"targets": [{"provider": "openai", "model": f"real-{key}"}]}},
            "memory": memory,
            "keys": [{"name": "app", "key": "mg", "tenant": "acme"}],
            "storage.data": str(data),
            "storage.vectors": "none",
            **stores.settings(data),
        }

    async with (
        Model(first, "Old.") as up,
        Model("New.") as other,
        running(
            up.url,
            data,
            {**settings(up.url, "old", read_deadline_ms=2000), "upstream": None},
            key="mg",
        ) as live,
    ):
        task = asyncio.create_task(live.stream("hi", user="ada", model="alias"))
        # So that a failure ends.
        asyncio.get_running_loop().call_later(8, go.set)
        await asyncio.wait_for(arrived.wait(), 10)
        changed = {"max_rounds": 1, "blocks": [{"label": "other"}], "read_deadline_ms": 2000}
        # In a thread, as on SIGHUP: the database is asked for its keys.
        wanted = await asyncio.to_thread(load, None, {}, settings(other.url, "new", **changed))
        assert live.app.reload(wanted) == []
        assert (await live.chat("hi", user="bob", model="alias")).json()["choices"][0]["message"][
            "content"
        ] == "New."
        # The counters outlive the swap.
        assert live.gateway.process.busy >= 1
        go.set()
        _, found = await asyncio.wait_for(task, 10)
        assert said(found) == "Old."
        assert {r.header("authorization") for r in up.requests} == {"Bearer old"}
        assert {r.header("authorization") for r in other.requests} == {"Bearer new"}
        assert {b["model"] for b in up.bodies} == {"real-old"}
        assert "Saved" in up.bodies[1]["messages"][-1]["content"]
        assert "<other" in str(other.bodies[0]["messages"][0])
        async with asyncio.timeout(10):
            while live.gateway.process.busy:
                await asyncio.sleep(0.01)


@row(163)
async def test_a_failed_reload_in_the_middle_of_a_stream_is_not_noticed(data):
    async with Model("a b c d") as up, running(up.url, data) as live:
        before = live.gateway
        (data / "token").write_text("not one of ours")
        with pytest.raises(ConfigError, match="must hold a secret"):
            live.app.reload(
                load(None, {}, {"upstream": "http://127.0.0.1:9/v1", "storage.data": str(data)})
            )
        _, found = await live.stream("hi")
        assert said(found) == "a b c d"
        assert live.gateway is before


@row(163)
async def test_what_waits_for_a_restart_is_named_and_left_alone(data):
    async with Model("ok") as up, running(up.url, data) as live:
        names = live.app.reload(
            load(
                None,
                {},
                {
                    "upstream": up.url,
                    "storage.data": str(data / "other"),
                    "server.port": 1,
                    "memory.embedder": "upstream:e",
                    "memory.max_rounds": 2,
                    **stores.settings(data),
                },
            )
        )
        assert set(names) == {"storage.data", "storage.vectors", "server.port", "memory.embedder"}
        assert live.gateway.settings.storage.data == str(data)
        assert live.gateway.settings.memory.max_rounds == 2
        assert (await live.chat("hi")).status_code == 200
        assert not (data / "other").exists()
