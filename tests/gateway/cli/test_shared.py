"""`mnemogate shared`: list, show, put, delete, through the API of a database without a gateway."""

from __future__ import annotations

import json

from tests.gateway.cli.command import mnemogate


def test_shared_blocks_are_made_changed_listed_shown_and_deleted(tmp_path):
    assert "There are no shared blocks" in mnemogate(tmp_path, "shared").stderr
    members = ("--user", "ann", "--agent", "helper", "--everyone", "--write")
    made = mnemogate(tmp_path, "shared", "put", "family", "Dinner at seven", *members).stdout
    assert made.startswith("The shared block family is block_")
    ident = made.split()[5].rstrip(",")
    line = f"{ident}  family  15/4000 characters  agent helper (writes), everyone (writes), "
    assert mnemogate(tmp_path, "shared").stdout == f"{line}ann (writes)\n"
    for wanted, count in (("ann", 1), ("zoe", 1)):
        listed = mnemogate(tmp_path, "shared", "list", "--user", wanted, "--json").stdout
        assert len(json.loads(listed)) == count
    assert json.loads(mnemogate(tmp_path, "shared", "list", "--label", "x", "--json").stdout) == []
    changed = ("put", ident, "Dinner at eight", "--user", "bob")
    assert "version 2." in mnemogate(tmp_path, "shared", *changed).stdout
    shown = mnemogate(tmp_path, "shared", "show", ident).stdout
    assert "version 2, by cli\nDinner at eight\n" in shown
    assert "bob" in shown
    more = mnemogate(tmp_path, "shared", "put", ident, "--everyone", "--json").stdout
    assert json.loads(more)["version"] == 2
    gone = mnemogate(tmp_path, "shared", "delete", ident).stdout
    assert gone == f"The shared block {ident} is deleted.\n"
    failed = mnemogate(tmp_path, "shared", "show", ident)
    assert ("There is no shared block" in failed.stderr, failed.returncode) == (True, 1)


def test_a_value_may_come_from_stdin_and_a_label_must_be_one(tmp_path):
    made = mnemogate(tmp_path, "shared", "put", "notes", "-", "--json", stdin="One\nTwo\n").stdout
    assert json.loads(made)["value"] == "One\nTwo"
    failed = mnemogate(tmp_path, "shared", "put", "No label", "x")
    assert "cannot be a block label" in failed.stderr
