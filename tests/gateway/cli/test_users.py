"""`mnemogate users`, `config` and `db backup`: who is known, a memory under another name, a copy
beside a live log.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import tomllib

import httpx
import pytest

from gateway.config.loader import load
from gateway.demo_model.server import start as start_bundled
from tests.gateway.cli.command import ROOT, mnemogate, started

KEYS = json.dumps([{"name": "app", "key": "k-app", "tenant": "acme"}])
MANAGED = {"MNEMOGATE_KEYS": KEYS}


@pytest.fixture(scope="module")
def upstream():
    with start_bundled() as server:
        yield server.url


def said(url, messages, key="k", **body):
    answer = httpx.post(
        f"{url}/v1/chat/completions",
        json={"model": "mnemogate-demo", "messages": messages, **body},
        headers={"authorization": f"Bearer {key}"},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"], answer.headers["x-memory-conversation"]


def grown(url):
    """A memory of a block, a passage, and a conversation of two turns.

    Returns its history and its name.
    """
    history = [{"role": "user", "content": "My name is Ada."}]
    answer, name = said(url, history)
    history += [
        answer,
        {"role": "user", "content": "Please remember that my sister Grace arrives on Friday."},
    ]
    answer, again = said(url, history)
    assert again == name
    return [*history, answer], name


def test_a_memory_of_another_mode_is_told_of_and_moves_whole(tmp_path, upstream):
    with started(tmp_path, "serve", "--port", "0", "--upstream", upstream) as process:
        history, name = grown(process.url)
        mnemogate(tmp_path, "memory", "remember", "The spare key is with Bob", "--agent", "cook")
    with started(tmp_path, "serve", "--port", "0", "--upstream", upstream, **MANAGED) as process:
        process.waited(
            r"warning +the memory of 'me' lies here under the tenant 'local', single-user "
            r"mode's, "
            r"and no request reaches it in this mode: "
            r"`mnemogate users move me me --from-tenant local --to-tenant acme`"
        )
        assert (
            "Ada"
            not in said(
                process.url, [{"role": "user", "content": "What is my name?"}], "k-app", user="eve"
            )[0]["content"]
        )
        # Beside the running gateway; the tenants are the only ones there are.
        moved = mnemogate(tmp_path, "users", "move", "me", "ada", **MANAGED)
        assert moved.returncode == 0, moved.stderr
        assert "the memory of me (local) now belongs to ada (acme)" in moved.stdout
        assert (
            "Ada"
            in said(
                process.url, [{"role": "user", "content": "What is my name?"}], "k-app", user="ada"
            )[0]["content"]
        )
        # Recognised by what is resent.
        assert (
            said(
                process.url,
                [*history, {"role": "user", "content": "And now?"}],
                "k-app",
                user="ada",
            )[1]
            == name
        )
        found = mnemogate(
            tmp_path,
            "memory",
            "search",
            "spare key",
            "--user",
            "ada",
            "--agent",
            "cook",
            MNEMOGATE_KEY="k-app",
            **MANAGED,
        )
        assert "The spare key is with Bob" in found.stdout
        # Its versions came along.
        assert (
            mnemogate(
                tmp_path,
                "memory",
                "undo",
                "human",
                "--user",
                "ada",
                MNEMOGATE_KEY="k-app",
                **MANAGED,
            ).returncode
            == 0
        )
    with started(tmp_path, "serve", "--port", "0", "--upstream", upstream, **MANAGED) as process:
        assert process.url
        assert process.stopped() == 0
    assert "no request reaches it" not in "\n".join(process.lines)


def test_a_history_that_moved_is_known_to_its_last_fork(tmp_path, upstream):
    """Equal answers are told apart by the chain before them, so the chain has to be right too."""
    with started(tmp_path, "serve", "--port", "0", "--upstream", upstream) as process:
        one, first = grown(process.url)
        fork = [
            *one[:2],
            {"role": "user", "content": "Please remember that my brother Bob arrives on Monday."},
        ]
        answer, second = said(process.url, fork)
        assert second != first
    assert mnemogate(tmp_path, "users", "move", "me", "ada").returncode == 0
    with started(tmp_path, "serve", "--port", "0", "--upstream", upstream) as process:
        more = {"role": "user", "content": "Thanks."}
        assert said(process.url, [*fork, answer, more], user="ada")[1] == second
        assert said(process.url, [*one, more], user="ada")[1] == first


def test_a_move_that_cannot_be_is_refused_in_words(tmp_path):
    for user in ("ada", "eve"):
        mnemogate(tmp_path, "memory", "edit", "human", "--value", f"Name: {user}", "--user", user)

    def refused(*arguments, **env):
        done = mnemogate(tmp_path, "users", "move", *arguments, **env)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "has a memory already" in refused("ada", "eve")
    assert "Nothing is stored about the user 'bob'" in refused("bob", "carol")
    assert "Nothing is stored about the user 'ada' of the tenant 'acme'" in refused(
        "ada", "bob", "--from-tenant", "acme"
    )
    assert "is that user already" in refused("ada", "ada")
    assert "white space" in refused("ada", " bob")
    two = json.dumps([{"name": n, "key": n, "tenant": n} for n in ("acme", "globex")])
    assert "acme, globex. Name one with --to-tenant" in refused("ada", "bob", MNEMOGATE_KEYS=two)
    (tmp_path / "spill.ndjson").write_text("{}\n")
    assert "Start the gateway once" in refused("ada", "bob")


def test_users_are_listed(tmp_path):
    assert "There is no database" in mnemogate(tmp_path, "users").stderr
    assert not list(tmp_path.iterdir())
    mnemogate(tmp_path, "memory", "remember", "Likes tea", "--user", "ada")
    for arguments in ((), ("list",), ("--config", str(ROOT / "config" / "gateway.toml"))):
        assert mnemogate(tmp_path, "users", *arguments).stdout.startswith(
            "ada  0 blocks, 1 passages, 0 messages, 0 conversations, last seen 20"
        )
    for arguments in (("--json",), ("list", "--json")):
        assert json.loads(mnemogate(tmp_path, "users", *arguments).stdout)[0]["id"] == "ada"
    with started(tmp_path, "serve", "--port", "0") as process:
        assert (
            "ada  0 blocks, 1 passages" in mnemogate(tmp_path, "users", "--url", process.url).stdout
        )
    assert "Move a user's memory to another name" in mnemogate(tmp_path, "users", "--help").stdout


def test_the_default_configuration_is_printed_as_it_can_be_used(tmp_path):
    done = mnemogate(tmp_path, "config")
    assert done.stdout == (ROOT / "config" / "gateway.toml").read_text()
    assert tomllib.loads(done.stdout)
    (tmp_path / "gateway.toml").write_text(done.stdout)
    assert load(tmp_path / "gateway.toml", {}).server.port == 8080


def test_a_backup_is_whole_beside_a_log_that_is_written(tmp_path, upstream):
    with started(tmp_path, "serve", "--port", "0", "--upstream", upstream) as process:
        url, stop = process.url, threading.Event()

        def chats():
            while not stop.is_set():
                said(url, [{"role": "user", "content": f"It is {time.time()}"}], user="eve")

        said(url, [{"role": "user", "content": "My name is Ada."}], user="ada")
        busy = threading.Thread(target=chats)
        busy.start()
        try:
            done = mnemogate(tmp_path, "db", "backup", str(tmp_path / "copy.db"))
        finally:
            stop.set()
            busy.join()
        assert done.returncode == 0, done.stderr
        assert str(tmp_path / "secret") in done.stdout
    copy = tmp_path / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(copy) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert (
            db.execute(
                "SELECT count(*) FROM messages JOIN scopes ON scopes.id = scope_id WHERE user "
                "= 'ada'"
            ).fetchone()[0]
            >= 1
        )
    db.close()
    before = copy.read_bytes()
    again = mnemogate(tmp_path, "db", "backup", str(copy))
    assert again.returncode == 1
    assert "exists already and is not overwritten" in again.stderr
    assert copy.read_bytes() == before
    assert (
        "cannot be written"
        in mnemogate(tmp_path, "db", "backup", str(tmp_path / "no" / "copy.db")).stderr
    )
    assert not list(tmp_path.glob(".*part*"))


def test_two_memories_become_one_after_a_yes(tmp_path):
    for user in ("me", "ada"):
        mnemogate(tmp_path, "memory", "remember", f"A fact of {user}", "--user", user)
    refused = mnemogate(tmp_path, "users", "merge", "me", "ada", stdin="n\n")
    assert refused.returncode == 1
    assert "It moves 0 blocks, 1 passage," in refused.stderr
    done = mnemogate(tmp_path, "users", "merge", "me", "ada", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["merged"]["passages"] == 1
    listed = mnemogate(tmp_path, "users", "list", "--json")
    assert [(u["id"], u["passages"]) for u in json.loads(listed.stdout)] == [("ada", 2)]


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_a_merge_without_room_for_the_blocks_is_refused_before_the_question(tmp_path, options):
    few = {"MNEMOGATE_MEMORY__BLOCKS_PER_USER": "4"}
    for user in ("me", "ada"):
        for label in ("a", "b"):
            edit = ("memory", "edit", f"{user}_{label}", "--value", "Words", "--user", user)
            done = mnemogate(tmp_path, *edit)
            assert done.returncode == 0, done.stderr
        mnemogate(tmp_path, "memory", "remember", f"A fact of {user}", "--user", user)
    listed = mnemogate(tmp_path, "users", "list", "--json").stdout
    refused = mnemogate(tmp_path, "users", "merge", "me", "ada", *options, stdin="y\n", **few)
    assert refused.returncode == 1
    assert "It moves" not in refused.stderr
    assert "memory.blocks_per_user" in refused.stderr
    assert mnemogate(tmp_path, "users", "list", "--json").stdout == listed
