"""`mnemogate projects`, and `--project` where `--agent` is."""

from __future__ import annotations

import json

from tests.gateway.cli.command import mnemogate


def test_projects_are_declared_changed_listed_shown_and_deleted(tmp_path):
    assert "There are no declared projects" in mnemogate(tmp_path, "projects").stderr
    rules = ("--user", "ann", "--write", "--description", "To the moon")
    line = "apollo  ann  (they share)  To the moon\n"
    assert mnemogate(tmp_path, "projects", "put", "apollo", *rules).stdout == line
    assert mnemogate(tmp_path, "projects").stdout == line
    assert mnemogate(tmp_path, "projects", "show", "apollo").stdout == line
    changed = mnemogate(tmp_path, "projects", "put", "apollo", "--everyone", "--json").stdout
    assert json.loads(changed)["everyone"] is True
    gone = mnemogate(tmp_path, "projects", "delete", "apollo").stdout
    assert gone == "The project apollo is no longer declared; 0 passages went with it.\n"
    assert mnemogate(tmp_path, "projects", "show", "apollo").returncode == 1


def test_a_memory_in_a_project_is_its_own(tmp_path):
    there = ("--user", "ann", "--project", "apollo")
    mnemogate(tmp_path, "memory", "remember", "Uses port 9", *there)
    assert "Uses port 9" in mnemogate(tmp_path, "memory", "show", *there).stdout
    assert "Uses port 9" not in mnemogate(tmp_path, "memory", "show", "--user", "ann").stdout
