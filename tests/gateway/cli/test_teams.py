"""`mnemogate teams`: list, show, put, delete, through the API of a database without a gateway."""

from __future__ import annotations

import json

from tests.gateway.cli.command import mnemogate


def test_teams_are_made_changed_listed_shown_and_deleted(tmp_path):
    assert "There are no teams" in mnemogate(tmp_path, "teams").stderr
    members = ("--user", "ann", "--user", "bob", "--write", "--description", "The platform")
    made = mnemogate(tmp_path, "teams", "put", "platform", *members).stdout
    assert made == "The team platform has 2 members.\n"
    assert mnemogate(tmp_path, "teams").stdout == "platform  2 members  The platform\n"
    changed = mnemogate(tmp_path, "teams", "put", "platform", "--remove", "bob", "--json").stdout
    assert json.loads(changed)["members"] == 1
    shown = mnemogate(tmp_path, "teams", "show", "platform").stdout
    assert shown == "platform  The platform\nann (writes)\n"
    made = mnemogate(tmp_path, "shared", "put", "family", "Dinner", "--team", "platform")
    assert made.returncode == 0, made.stderr
    assert mnemogate(tmp_path, "shared").stdout.endswith("  team platform\n")
    gone = mnemogate(tmp_path, "teams", "delete", "platform").stdout
    assert gone == "The team platform is deleted, with 1 memberships and 0 passages.\n"
    failed = mnemogate(tmp_path, "teams", "show", "platform")
    assert ("There is no team" in failed.stderr, failed.returncode) == (True, 1)
