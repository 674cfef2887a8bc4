"""Keys made at run time, over processes: the command, two gateways on one database, restarts,
reloads, and nothing left lying about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time

import httpx
import pytest
from click.testing import CliRunner

from gateway.cli.doctor import checks
from gateway.cli.main import cli
from gateway.cli.options import Serving
from gateway.cli.serve import startup_lines
from gateway.config.loader import load
from gateway.config.settings import ConfigError
from gateway.storage.key_probe import KeyCounts, read_key_counts
from memory.stores.sql.engine.database import Database
from tests.conftest import running
from tests.e2e.wire.child import DEBUG, child, settled
from tests.e2e.wire.rows import row
from tests.e2e.wire.test_secrets import lies
from tests.gateway.cli.command import mnemogate, started
from tests.models import Model
from tests.sockets import within as comes_within

ROOT = {"name": "root", "key": "sk-root", "tenant": "ops", "admin": True}


def bearer(key):
    return {"headers": {"authorization": f"Bearer {key}"}}


async def made(up, data, **members):
    """A key from a gateway that ran on this data folder when there were none."""
    async with running(up.url, data) as live:
        answer = await live.memory(
            "POST",
            "/keys",
            json={"name": "first", "tenant": "acme", **members},
            **bearer((data / "token").read_text().strip()),
        )
        assert answer.status_code == 200, answer.text
        return answer.json()


async def status(live, key, **body):
    return (await live.chat("hi", {"authorization": f"Bearer {key}"}, **body)).status_code


async def within(seconds, asked, wanted):
    """Waits until the answer is as wanted; returns the last one."""
    until = time.monotonic() + seconds
    while (found := await asked()) != wanted and time.monotonic() < until:
        await asyncio.sleep(0.05)
    return found


async def test_two_gateways_on_one_database_know_each_others_keys(data):
    async with (
        Model("ok") as up,
        running(up.url, data, {"keys": [ROOT]}) as one,
        running(up.url, data, {"keys": [ROOT]}) as two,
    ):
        key = (
            await one.memory(
                "POST", "/keys", json={"name": "a", "tenant": "t"}, **bearer("sk-root")
            )
        ).json()["key"]
        assert await status(one, key) == 200
        assert await within(3, lambda: status(two, key), 200) == 200
        assert (await two.memory("DELETE", "/keys/a", **bearer("sk-root"))).status_code == 200
        assert await status(two, key) == 401
        assert await within(3, lambda: status(one, key), 401) == 401


async def test_a_restart_keeps_the_keys_and_the_last_one_revoked_opens_nothing(data):
    async with Model("ok") as up:
        first = await made(up, data, admin=True)
        async with running(up.url, data, key=first["key"]) as live:
            assert live.gateway.settings.mode == "managed"
            assert await within(5, lambda: status(live, first["key"]), 200) == 200
            assert await status(live, "sk-own") == 401
            ended = (await live.memory("DELETE", "/keys/first")).json()
            assert "No admin key is left" in ended["note"]
            assert await status(live, first["key"]) == 401
        async with running(up.url, data) as live:
            for key in (first["key"], "sk-own"):
                assert await within(5, lambda key=key: status(live, key), 401) == 401
        assert [r.header("authorization") for r in up.requests] == [None]


async def test_a_providers_key_needs_only_a_key_that_was_made(data):
    config = {"providers": {"openai": {"base_url": "http://x/v1", "api_key": "sk-provider"}}}
    async with Model("ok") as up:
        with pytest.raises(ConfigError, match=r"there is no managed key.*mnemogate keys create"):
            load(None, {}, {"storage.data": str(data), **config})
        first = await made(up, data)
        async with running(up.url, data, config) as live:
            assert await within(5, lambda: status(live, first["key"]), 200) == 200
            assert up.requests[-1].header("authorization") == "Bearer sk-provider"
            assert await status(live, "sk-own") == 401


async def test_a_reload_keeps_the_keys_that_were_made(data):
    base = {"storage.data": str(data), "storage.vectors": "none", "memory.read_deadline_ms": 2000}
    async with Model("ok") as up, running(up.url, data, {"keys": [ROOT]}) as live:
        key = (
            await live.memory(
                "POST", "/keys", json={"name": "a", "tenant": "t"}, **bearer("sk-root")
            )
        ).json()["key"]
        live.app.reload(
            load(None, {}, {**base, "upstream": up.url, "keys": [{**ROOT, "key": "sk-root2"}]})
        )
        assert [await status(live, k) for k in (key, "sk-root", "sk-root2")] == [200, 401, 200]
        # Without [[keys]] it is those made that count.
        live.app.reload(load(None, {}, {**base, "upstream": up.url}))
        assert [await status(live, k) for k in (key, "sk-root2")] == [200, 401]
        assert (await live.memory("GET", "/keys", **bearer(key))).status_code == 403


async def test_on_one_persons_machine_a_reload_is_a_start_that_asks_for_keys(data):
    async with Model("ok") as up, running(up.url, data) as live:
        token = (data / "token").read_text().strip()
        key = (
            await live.memory("POST", "/keys", json={"name": "a", "tenant": "t"}, **bearer(token))
        ).json()["key"]
        assert await status(live, "sk-own") == 200
        live.app.reload(
            load(
                None, {}, {"upstream": up.url, "storage.data": str(data), "storage.vectors": "none"}
            )
        )
        assert [await status(live, k) for k in (key, "sk-own", token)] == [200, 401, 401]


@row(89)
async def test_a_key_made_before_the_gateway_asks_for_keys_is_not_taken_for_the_providers(data):
    """The first key is made through a gateway that runs in own-key mode until it starts anew."""
    async with Model("ok") as up, running(up.url, data) as live:
        token = (data / "token").read_text().strip()
        key = (
            await live.memory("POST", "/keys", json={"name": "a", "tenant": "t"}, **bearer(token))
        ).json()["key"]
        for headers in (
            {"authorization": f"Bearer {key}"},
            {"authorization": key},
            {"authorization": f"Bearer {key}", "x-memory": "off"},
        ):
            response = await live.chat("hi", headers)
            assert (response.status_code, response.json()["error"]["code"]) == (
                401,
                "invalid_api_key",
            )
            assert "not active yet" in response.json()["error"]["message"]
        assert (
            await live.http.post(
                f"{live.url}/embeddings",
                json={"model": "m", "input": "hi"},
                headers={"authorization": "", "x-api-key": key},
            )
        ).status_code == 401
        assert not up.requests
        # Which may be the upstream.
        assert await status(live, "mg-of-another-gateway") == 200


@row(89)
@pytest.mark.parametrize("headers", [{}, {"x-memory": "off"}])
async def test_the_local_token_is_not_taken_for_the_providers_key(data, headers):
    async with Model("ok") as up, running(up.url, data) as live:
        token = (data / "token").read_text().strip()
        response = await live.chat("hi", {"authorization": f"Bearer {token}", **headers})
        assert (response.status_code, "local token" in response.json()["error"]["message"]) == (
            401,
            True,
        )
        assert (
            await live.http.post(
                f"{live.url}/embeddings",
                json={"model": "m", "input": "hi"},
                headers={"authorization": "", "x-api-key": token},
            )
        ).status_code == 401
        assert not up.requests


@row(89)
async def test_a_credential_that_was_brought_pays_for_nothing_once_keys_are_asked_for(data):
    """After a reload that begins to ask for keys: neither texts to embed nor background work go out
    with what a client sent before.
    """
    config = {"memory": {"embedder": "upstream:e"}}
    async with Model("ok") as up, running(up.url, data, config) as live:
        token = (data / "token").read_text().strip()
        assert await status(live, "sk-own") == 200
        # Else its job fails after the reload, and the next waits.
        assert await comes_within(10, lambda: any("embeddings" in r.path for r in up.requests))
        key = (
            await live.memory(
                "POST",
                "/keys",
                json={"name": "a", "tenant": "local", "default_user": "me"},
                **bearer(token),
            )
        ).json()["key"]
        live.app.reload(
            load(
                None,
                {},
                {
                    "upstream": up.url,
                    "storage.data": str(data),
                    "storage.vectors": "none",
                    "memory.embedder": "upstream:e",
                },
            )
        )
        before = len(up.requests)
        assert await status(live, key) == 200
        await live.memory("GET", "/users/me/search?query=hi", **bearer(key))

        def embeds():
            # Its job comes once the turn is filed.
            live.gateway.worker.wake()
            return any(r.path.endswith("/embeddings") for r in up.requests[before:])

        assert await comes_within(10, embeds)
        await asyncio.sleep(0.3)
        sent = up.requests[before:]
        assert not any("sk-own" in value for r in sent for _, value in r.headers)


@row(89)
@pytest.mark.parametrize("headers", [{}, {"x-memory": "off"}])
async def test_a_provider_without_a_key_gets_no_key_of_ours_and_its_refusal_tells_what_is_missing(
    data, headers
):
    async with (
        Model(
            (401, {"error": {"message": "no key given"}}),
            (401, {"error": {"message": "no key given"}}),
        ) as up,
        running(up.url, data, {"keys": [ROOT]}) as live,
    ):
        for body in ({}, {"stream": True}):
            response = await live.chat(
                "hi",
                {
                    "authorization": "Bearer sk-root",
                    "x-api-key": "sk-root",
                    "api-key": "sk-root",
                    **headers,
                },
                **body,
            )
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (502, "upstream_auth_error")
            assert (
                error["message"]
                == "The provider 'openai' has no api_key here, and wants one. The gateway's "
                "operator must set providers.openai.api_key."
            )
        assert len(up.requests) == 2
        assert "sk-root" not in str([r.headers for r in up.requests])


@row(87)
async def test_before_the_store_was_read_a_key_that_may_be_one_is_not_refused_but_asked_again(
    data, monkeypatch
):
    async with Model("ok") as up:
        first = await made(up, data)
        go, opened = asyncio.Event(), Database.open

        async def late(self):
            await go.wait()
            await opened(self)

        monkeypatch.setattr(Database, "open", late)
        async with running(up.url, data, {"keys": [ROOT]}) as live:
            for key in (first["key"], "wrong"):
                response = await live.chat("hi", {"authorization": f"Bearer {key}"})
                assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert (
                await live.chat("hi", {"authorization": "", "x-memory": "off"})
            ).status_code == 401
            assert (
                await live.chat("hi", {"authorization": "Bearer sk-root", "x-memory": "off"})
            ).status_code == 200
            go.set()
            assert await within(5, lambda: status(live, first["key"]), 200) == 200
            assert await status(live, "wrong") == 401


def test_what_a_file_tells_of_its_keys_before_it_is_opened(tmp_path):
    file = tmp_path / "a b%?#.db"
    url = f"sqlite+aiosqlite:///{file}"
    assert read_key_counts(url) == KeyCounts()
    file.write_bytes(b"no database at all" * 100)
    assert read_key_counts(url) is None
    file.unlink()
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE other (x)")
        db.commit()
        assert read_key_counts(url) == KeyCounts()
        db.execute("CREATE TABLE keys (spec, revoked_at)")
        db.executemany(
            "INSERT INTO keys VALUES (?, ?)",
            [('{"admin": true}', None), ('{"admin": true}', 1.0), ("{}", None), ("[", None)],
        )
        db.commit()
        assert read_key_counts(url) == KeyCounts(4, 3, 1)


@pytest.mark.parametrize(("host", "starts"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_a_database_that_cannot_be_read_closes_what_strangers_could_reach(tmp_path, host, starts):
    (tmp_path / "mnemogate.db").write_bytes(b"no database at all" * 100)
    with (
        contextlib.nullcontext()
        if starts
        else pytest.raises(ConfigError, match="whether keys were made, and so who may call")
    ):
        assert (
            load(None, {}, {"storage.data": str(tmp_path), "server.host": host}).mode == "own-key"
        )
    assert (
        load(None, {}, {"storage.data": str(tmp_path), "server.host": host, "keys": [ROOT]}).mode
        == "managed"
    )


async def test_the_start_and_the_doctor_tell_how_many_keys_there_are_and_what_they_lack(
    data, monkeypatch
):
    monkeypatch.setenv("MNEMOGATE_DATA", str(data))
    # It is asked elsewhere.
    monkeypatch.setattr("gateway.cli.doctor.check_upstream", lambda name, provider: iter(()))
    monkeypatch.setattr("gateway.cli.doctor.check_windows", lambda settings: iter(()))

    def lines():
        settings = load(None, {}, {"storage.data": str(data)})
        finding = next(
            (
                f
                for f in checks(Serving(None, None, None, None, 1, "text", "info"))
                if getattr(f, "what", "") == "keys"
            ),
            None,
        )
        return "\n".join(startup_lines(settings, "http://x")), finding

    async with Model("ok") as up:
        assert (lines()[1], "keys   " in lines()[0]) == (None, False)
        await made(up, data)
        start, finding = lines()
        assert "keys       0 in the configuration, 1 created" in start
        assert "there is no admin key" in start
        assert (finding.state, "there is no admin key" in finding.told) == ("note", True)
        async with running(up.url, data, {"keys": [ROOT]}) as live:
            await live.memory(
                "POST",
                "/keys",
                json={"name": "ops", "tenant": "t", "admin": True},
                **bearer("sk-root"),
            )
            start, finding = lines()
            assert (
                "0 in the configuration, 2 created" in start,
                "admin's" in start,
                finding.state,
            ) == (True, False, "ok")
            for name in ("first", "ops"):
                await live.memory("DELETE", f"/keys/{name}", **bearer("sk-root"))
        start, finding = lines()
        assert "every key is revoked" in start
        assert finding.state == "note"


async def test_the_command_makes_the_first_key_and_steers_the_gateway_that_then_runs(
    tmp_path,
):
    """With a provider's key in the configuration, which alone would not start."""
    config = tmp_path / "gateway.toml"
    async with Model("ok") as up:
        config.write_text(
            f'[providers.openai]\nbase_url = "{up.url}"\napi_key = "sk-provider"\n'
            '[models.m]\ntargets = [{ provider = "openai" }]\nprice = { input = 1, output = 1 }\n'
        )
        data, env = tmp_path / "data", {"MNEMOGATE_CONFIG": str(config)}

        def run(*arguments, **more):
            return asyncio.to_thread(mnemogate, data, *arguments, **env, **more)

        refused = await run("serve", "--port", "0")
        assert (refused.returncode, "mnemogate keys create" in refused.stderr) == (2, True)
        done = await run("keys", "create", "--name", "ops", "--tenant", "acme", "--admin")
        assert done.returncode == 0, done.stderr
        admin = done.stdout.removesuffix("\n")
        assert "from now on every request needs a managed key" in done.stderr
        not_a_number = await run(
            "keys", "create", "--name", "x", "--tenant", "acme", "--usd", "nan"
        )
        assert (
            admin.startswith("mnemogate-"),
            "\n" in admin,
            admin in done.stderr,
            "shown only once" in done.stderr,
        ) == (True, False, False, True)
        with started(data, "serve", "--port", "0", **env) as process:
            process.waited("keys +0 in the configuration, 1 created")
            async with httpx.AsyncClient(base_url=process.url) as client:

                async def asked(key, user="ada"):
                    return (
                        await client.post(
                            "/v1/chat/completions",
                            json={
                                "model": "m",
                                "user": user,
                                "messages": [{"role": "user", "content": "hi"}],
                            },
                            **bearer(key),
                        )
                    ).status_code

                # From the very first request.
                assert await asked(admin) == 200
                assert not_a_number.returncode == 2
                keyless = await run("keys", "list")
                assert (keyless.returncode, "MNEMOGATE_KEY" in keyless.stderr) == (1, True)
                made = await run(
                    "keys",
                    "create",
                    "--name",
                    "phone",
                    "--tenant",
                    "acme",
                    "--no-trusted",
                    "--user",
                    "ada",
                    "--model",
                    "m",
                    "--rpm",
                    "60",
                    "--tpm",
                    "1",
                    "--concurrent",
                    "2",
                    "--usd",
                    "5",
                    "--period",
                    "day",
                    "--json",
                    MNEMOGATE_KEY=admin,
                )
                phone = json.loads(made.stdout)
                assert "the first key" not in made.stderr
                assert (phone["limits"], phone["budget"]) == (
                    {"rpm": 60, "tpm": 1, "concurrent": 2},
                    {"usd": 5, "period": "day"},
                )
                assert [await asked(phone["key"], user) for user in ("ada", "eve")] == [200, 403]
                ended = await run("keys", "revoke", "phone", MNEMOGATE_KEY=admin)
                assert ended.stdout == f"phone ({phone['id']}) is revoked\n"
                assert await asked(phone["key"]) == 401


def test_with_no_gateway_running_the_command_needs_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path))
    monkeypatch.setenv("MNEMOGATE_STORAGE__VECTORS", "none")
    monkeypatch.setenv("MNEMOGATE_KEYS", json.dumps([ROOT]))

    def run(*arguments, code=0):
        done = CliRunner().invoke(cli, ["keys", *arguments])
        assert done.exit_code == code, done.output
        return done

    # One is part of the configuration.
    assert (
        "the first key" not in run("create", "--name", "ops", "--tenant", "acme", "--admin").stderr
    )
    run(
        "create",
        "--name",
        "phone",
        "--tenant",
        "acme",
        "--no-trusted",
        "--default-user",
        "ada",
        "--model",
        "gpt-*",
        "--rpm",
        "60",
        "--usd",
        "2.5",
    )
    shown = run("list").stdout
    for line in (
        "root  of ops, in the configuration",
        "ops  of acme, created ",
        "admin; any user",
        "phone  of acme, created ",
        "users ada; models gpt-*; rpm 60; 2.5 USD a month",
    ):
        assert line in shown
    run("revoke", "ops")
    assert "ops  of" not in run("list").stdout
    assert [
        (k["name"], bool(k["revoked_at"]))
        for k in json.loads(run("list", "--all", "--json").stdout)
    ] == [("root", False), ("ops", True), ("phone", False)]
    for arguments, fault in (
        (("revoke", "nobody"), "no key with the id or name 'nobody'"),
        (("revoke", "root"), "is part of the configuration"),
        (("create", "--name", "phone", "--tenant", "t"), "'phone' exists already"),
        (("create", "--name", "", "--tenant", "t"), "name: "),
    ):
        refused = run(*arguments, code=1)
        assert (fault in refused.stderr, refused.stdout) == (True, "")


def test_on_a_database_of_another_version_the_command_says_so_at_once(tmp_path):
    data = tmp_path / "data"
    assert mnemogate(data, "keys", "list").returncode == 0
    with contextlib.closing(sqlite3.connect(data / "mnemogate.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    # The store's own patience is longer.
    refused = mnemogate(data, "keys", "list", timeout=15)
    assert refused.returncode == 1
    assert "run `mnemogate db upgrade`" in refused.stderr.splitlines()[-1]


@row(114)
async def test_no_made_key_is_logged_or_kept_with_every_logger_at_debug(tmp_path):
    async with Model("ok") as up:
        folder, rejected = tmp_path / "g", "mg-REJECTED-" + "x" * 31
        config = (
            f'[providers.openai]\nbase_url = "{up.url}"\n[[keys]]\nname = "root"\nkey = '
            '"sk-root-SENTINEL"\ntenant = "ops"\nadmin = true\n'
        )
        async with child(folder, config, code=DEBUG) as (gateway, client):
            await settled(client)
            answer = await client.post(
                "/memory/v1/keys",
                json={"name": "a", "tenant": "acme"},
                **bearer("sk-root-SENTINEL"),
            )
            key = answer.json()["key"]
            answers = []
            for credential in (key, rejected, rejected + "é", f"{key}x"):
                for header in (
                    {"authorization": f"Bearer {credential}".encode()},
                    {"authorization": credential.encode()},
                    {"x-api-key": credential.encode()},
                ):
                    answers.append(await client.get("/memory/v1/keys", headers=header))
                    answers.append(
                        await client.post(
                            "/v1/chat/completions",
                            json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
                            headers=header,
                        )
                    )
            answers.append(
                await client.post(
                    "/memory/v1/keys",
                    json={"name": "b", "tenant": "t", "key": key},
                    **bearer("sk-root-SENTINEL"),
                )
            )
            answers.append(await client.delete("/memory/v1/keys/a", **bearer("sk-root-SENTINEL")))
            answers.append(await client.get("/memory/v1/keys", **bearer("sk-root-SENTINEL")))
            assert {a.status_code for a in answers} == {200, 400, 401, 403}
            for secret in (key, rejected, "sk-root-SENTINEL"):
                assert not [a for a in answers if secret in f"{a.headers} {a.text}"]
            assert (folder / "data" / "mnemogate.db-wal").exists()
            # While the log and the journal are still there.
            assert lies(folder, [key, rejected, "sk-root-SENTINEL"]) == set()
        assert "DEBUG" in gateway.said
        assert lies(folder, [key, rejected, "sk-root-SENTINEL"]) == set()
        # The files that were looked through are those.
        assert lies(folder / "data", ["acme"])
