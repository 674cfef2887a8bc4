"""`mnemogate agents`: list, show, put, delete, through the API of a database without a gateway."""

from __future__ import annotations

import json

from tests.gateway.cli.command import mnemogate


def test_agents_are_made_listed_shown_and_deleted(tmp_path):
    file = tmp_path / "support.json"
    file.write_text(json.dumps({"model": "m", "title": "Support", "tags": ["a"]}))
    assert "There are no agents yet" in mnemogate(tmp_path, "agents").stderr
    made = mnemogate(tmp_path, "agents", "put", "support", str(file)).stdout
    assert "The agent support is at version 1" in made
    assert '"agent:support"' in made
    listed = mnemogate(tmp_path, "agents").stdout
    assert listed == "support  m, home user, tenant  Support\n"
    assert mnemogate(tmp_path, "agents", "list", "--tag", "b").stdout == ""
    shown = json.loads(mnemogate(tmp_path, "agents", "show", "support", "--json").stdout)
    assert (shown["title"], shown["updated_by"], shown["version"]) == ("Support", "cli", 1)
    assert "title: Support" in mnemogate(tmp_path, "agents", "show", shown["id"]).stdout
    file.write_text(json.dumps({**shown, "home": "agent"}))
    again = mnemogate(tmp_path, "agents", "put", "support", str(file), "--json").stdout
    assert json.loads(again)["version"] == 2
    gone = mnemogate(tmp_path, "agents", "delete", "support").stdout
    assert gone == "The agent support is deleted. Erased: nothing.\n"
    assert json.loads(mnemogate(tmp_path, "agents", "list", "--json").stdout) == []


def test_what_cannot_be_used_is_said_in_one_line(tmp_path):
    file = tmp_path / "support.json"
    for text, said in (
        ("{", "is not JSON"),
        ('{"colour": 1}', "colour: there is no such setting"),
    ):
        file.write_text(text)
        failed = mnemogate(tmp_path, "agents", "put", "support", str(file))
        assert (said in failed.stderr, failed.returncode) == (True, 1)
    for verb in ("show", "delete"):
        failed = mnemogate(tmp_path, "agents", verb, "nobody")
        assert "There is no agent 'nobody'" in failed.stderr
