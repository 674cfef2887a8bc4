"""`mnemogate memory dropped` and `keep`, as a user runs them."""

from __future__ import annotations

import json
import sqlite3
import time

from tests.gateway.cli.command import mnemogate

INSERT = (
    "INSERT INTO dropped (id, scope_id, job, stage, reason, text, created_at) "
    "VALUES (?, (SELECT id FROM scopes WHERE user = 'ada'), 1, 'fact', ?, ?, ?)"
)


def test_what_was_dropped_is_listed_with_its_reason_and_kept_after_all(tmp_path):
    run = mnemogate(tmp_path, "memory", "remember", "The spare key is with Bob", "--user", "ada")
    assert run.returncode == 0, run.stderr
    with sqlite3.connect(tmp_path / "mnemogate.db") as db:
        db.execute(INSERT, (7, "no_quote", "The user hates tea", time.time()))
        db.execute(INSERT, (8, "secret", "", time.time()))
    db.close()
    listed = mnemogate(tmp_path, "memory", "dropped", "--user", "ada")
    assert "drop_7" in listed.stdout
    assert "no_quote" in listed.stdout
    assert "The user hates tea" in listed.stdout
    assert "(not shown)" in listed.stdout
    found = mnemogate(
        tmp_path, "memory", "dropped", "--user", "ada", "--reason", "secret", "--json"
    )
    assert [entry["id"] for entry in json.loads(found.stdout)] == ["drop_8"]
    wrong = mnemogate(tmp_path, "memory", "dropped", "--user", "ada", "--reason", "boredom")
    assert wrong.returncode == 1
    assert "use one of small_talk" in wrong.stderr
    kept = mnemogate(tmp_path, "memory", "keep", "drop_7", "--user", "ada")
    assert "kept as passage_" in kept.stdout
    again = mnemogate(tmp_path, "memory", "keep", "drop_7", "--user", "ada")
    assert again.returncode == 1
    assert "nothing here to keep" in again.stderr
    nothing = mnemogate(tmp_path, "memory", "dropped", "--user", "ada", "--reason", "no_quote")
    assert "Nothing was dropped" in nothing.stderr
