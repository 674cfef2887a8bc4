"""`mnemogate skills`: through the API of a database without a gateway."""

from __future__ import annotations

import json
from functools import partial

from tests.gateway.cli.command import mnemogate

DOCUMENT = "---\nname: deploy-app\ndescription: Deploys the app\n---\n\n1. Build\n2. Ship\n"


def test_a_skill_is_imported_listed_shown_set_and_deleted(tmp_path):
    run = partial(mnemogate, tmp_path, "skills", MNEMOGATE_MEMORY__SKILLS__MODE="review")
    ann = ("--user", "ann")
    (tmp_path / "SKILL.md").write_text(DOCUMENT)
    made = run("import", str(tmp_path / "SKILL.md"), *ann)
    assert made.stdout == "deploy-app is candidate.\n", made.stderr
    assert "deploy-app  candidate  0 uses, 0 failed  Deploys the app" in run("list", *ann).stdout
    changed = run("set", "deploy-app", "active", *ann)
    assert changed.stdout == "deploy-app is active, at version 2.\n"
    assert "1. Build\n2. Ship" in run("show", "deploy-app", *ann).stdout
    history = run("show", "deploy-app", "--versions", *ann).stdout
    assert "  + 1. Build\n  + 2. Ship" in history
    listed = json.loads(run("list", "--json", *ann).stdout)
    assert [s["status"] for s in listed] == ["active"]
    assert run("delete", "deploy-app", *ann).stdout == "deploy-app is deleted.\n"
    assert "There are no skills." in run("list", *ann).stderr
    gone = run("show", "deploy-app", *ann)
    assert (gone.returncode, "deploy-app" in gone.stderr) == (1, True)


def test_where_skills_are_off_and_nothing_is_proposed_the_commands_say_so(tmp_path):
    (tmp_path / "SKILL.md").write_text(DOCUMENT)
    run = partial(mnemogate, tmp_path, "skills")
    refused = run("import", str(tmp_path / "SKILL.md"), "--user", "ann")
    assert (refused.returncode, "Skills are off here" in refused.stderr) == (1, True)
    assert "No proposals." in run("proposals", "--user", "ann").stderr
    missing = run("decide", "refl_0123", "apply", "--user", "ann")
    assert missing.returncode == 1
    assert "refl_0123" in missing.stderr
