"""`mnemogate memory`: the same commands through a running gateway and with none, which then opens
the database itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys

import httpx
import pytest

from gateway.demo_model.server import start as start_bundled
from tests.gateway.cli.command import ROOT, environment, mnemogate, started


@pytest.fixture(params=["running", "none"])
def memory(request, tmp_path):
    """Runs a memory command for Ada; beside a running gateway, or alone."""

    def run(*arguments, code=0, stdin=None, user="ada", **env):
        done = mnemogate(tmp_path, "memory", *arguments, "--user", user, stdin=stdin, **env)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    with contextlib.ExitStack() as stack:
        if request.param == "running":
            upstream = stack.enter_context(start_bundled())
            process = stack.enter_context(
                started(tmp_path, "serve", "--port", "0", "--upstream", upstream.url)
            )
            assert process.url
        yield run


def test_a_block_is_edited_shown_and_taken_back(memory):
    assert "human is now at version" in memory("edit", "human", "--value", "Name: Ada")
    assert "scratchpad  (0/4000 characters" in memory("show")
    assert "human is now at version" in memory("edit", "human", stdin="Name: Ada\nLikes tea\n")
    assert memory("edit", "human", "--value", "Name: Ada\nLikes tea") == "unchanged\n"
    shown = memory("show")
    assert "  Name: Ada\n  Likes tea\n" in shown
    assert "human  (19/4000 characters" in shown
    assert "  Name: Ada\n" in memory("undo", "human")
    assert "Likes tea" not in memory("show")
    versions = memory("history", "human")
    assert "by cli" in versions
    assert "  + Likes tea" in versions
    assert {v["actor"] for v in json.loads(memory("history", "human", "--json"))} == {"cli"}


def test_what_a_command_came_to_is_json_for_scripts(memory):
    (made,) = json.loads(memory("remember", "The key is with Bob", "--json"))
    saved = json.loads(memory("edit", "human", "--value", "Name: Ada", "--json"))
    assert (saved["label"], saved["version"]) == ("human", 1)
    gone = json.loads(memory("forget", "The key is with Bob", "--json"))
    assert gone == {"passages": [made["id"]], "blocks": []}
    assert json.loads(memory("undo", made["id"], "--json"))["content"] == "The key is with Bob"
    assert json.loads(memory("forget", "Name: Ada", "--json"))["blocks"] == ["human"]
    assert json.loads(memory("undo", "human", "--json"))["value"] == "Name: Ada"


def test_an_empty_input_is_refused_and_an_empty_value_empties_a_block(memory):
    memory("edit", "scratchpad", stdin="x")
    assert 'empty the block with --value ""' in memory("edit", "scratchpad", stdin=" \n", code=1)
    assert json.loads(memory("show", "--json"))["blocks"][-1]["value"] == "x"
    memory("edit", "scratchpad", "--value", "")
    assert json.loads(memory("show", "--json"))["blocks"][-1]["value"] == ""


def test_show_of_nobody_says_who_is_known_and_makes_nobody(memory):
    memory("edit", "human", "--value", "Name: Ada")
    assert "Nothing is stored about the user 'grace'. Known users: ada." in memory(
        "show", user="grace", code=1
    )
    assert "Known users: ada." in memory("show", "--json", user="grace", code=1)
    # Of somebody who is known.
    assert "human  (0/4000 characters" in memory("show", "--agent", "cook")


def test_erasing_nobody_says_who_is_known(memory):
    memory("edit", "human", "--value", "Name: Ada")
    told = memory("erase", "--yes", user="grace", code=1)
    assert "Nothing is stored about the user 'grace'. Known users: ada." in told
    assert json.loads(memory("erase", "--yes"))["erased"]["blocks"] == 1
    assert "There are no users yet" in memory("erase", "--yes", code=1)


@pytest.mark.parametrize(
    "command", [("show",), ("search", "x"), ("export",), ("forget", "x"), ("undo", "human")]
)
def test_what_only_looks_makes_no_database(tmp_path, command):
    done = mnemogate(tmp_path / "new", "memory", *command)
    assert done.returncode == 1
    assert "There is no database at" in done.stderr
    assert "--url http://127.0.0.1:8080" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_passage_is_forgotten_by_its_id_or_its_text_and_comes_back(memory):
    ident = memory("remember", "The spare key is with Bob").split()[-1]
    memory("remember", "Likes tea")
    assert ident in memory("forget", ident)
    assert memory("search", "spare key") == "nothing found\n"
    assert "The spare key is with Bob" in memory("undo", ident)
    assert ident in memory("forget", " The spare  key is with Bob")
    assert "spare key" not in memory("show")
    assert "Likes tea" in memory("show")
    assert "exactly that text" in memory("forget", "The spare key", code=1)
    assert memory("forget", "passage_" + "0" * 32, code=1).startswith("Error: There is no passage")


def test_a_line_of_a_block_is_forgotten_and_comes_back(memory):
    memory("edit", "human", "--value", "Name: Ada\nLikes tea\nLives in Paris")
    assert "a line of human is forgotten" in memory("forget", "Likes tea")
    assert json.loads(memory("show", "--json"))["blocks"][0]["value"] == "Name: Ada\nLives in Paris"
    assert "Likes tea" in memory("undo", "human")


def test_on_a_terminal_a_block_is_edited_in_the_editor(tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "From the editor" > "$1"\n')
    editor.chmod(0o755)
    try:
        ours, theirs = pty.openpty()
    except OSError as e:
        pytest.skip(f"this machine has no pseudo-terminals: {e}")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "memory", "edit", "human"],
            cwd=ROOT,
            env=environment(tmp_path, EDITOR=str(editor)),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "  From the editor" in mnemogate(tmp_path, "memory", "show").stdout


def test_a_passage_is_remembered_and_found(memory):
    assert memory("remember", "The spare key is with Bob", "--tag", "home").startswith(
        "remembered as "
    )
    found = memory("search", "spare key")
    assert "The spare key is with Bob" in found
    assert found.startswith("passage")
    assert (
        json.loads(memory("search", "key", "--json"))["passages"][0]["content"]
        == "The spare key is with Bob"
    )
    assert memory("search", "elephants") == "nothing found\n"
    assert memory("search", "key", user="grace") == "nothing found\n"
    assert "The spare key is with Bob" in memory("show")


def test_an_export_is_taken_back_after_an_erasure(memory, tmp_path):
    memory("edit", "human", "--value", "Name: Ada")
    memory("remember", "The spare key is with Bob")
    file = tmp_path / "ada.ndjson"
    assert f"records in {file}" in memory("export", "-o", str(file))
    assert "3 records in" in memory("export", "-o", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert memory("export").splitlines()[0][:1] == "{"
    assert len(lines) >= 2
    assert "cannot be undone" in memory("erase", stdin="n\n", code=1)
    receipt = json.loads(memory("erase", "--yes"))
    assert (receipt["erased"]["blocks"], receipt["erased"]["passages"]) == (1, 1)
    assert "Nothing is stored" in memory("show", code=1)
    memory("import", str(file))
    assert "Name: Ada" in memory("show")
    assert "The spare key is with Bob" in memory("search", "key")


def test_agents_of_a_user_are_apart(memory):
    memory("edit", "human", "--value", "For the cook", "--agent", "cook")
    assert "For the cook" in memory("show", "--agent", "cook")
    assert "For the cook" not in memory("show")
    # All agents would go, not that one.
    assert "--agent" in memory("erase", "--yes", "--agent", "waiter", code=1)
    assert "For the cook" in memory("show", "--agent", "cook")


@pytest.mark.parametrize("user", ["a/b", "ä ö", "100%", "%2F", "?x=1#y"])
def test_any_name_is_a_user(memory, user):
    memory("edit", "human", "--value", f"I am {user}", user=user)
    assert f"I am {user}" in memory("show", user=user)
    assert "Nothing is stored" in memory("show", code=1)


def test_refusals_are_told_without_a_traceback(memory):
    assert "4000" in memory("edit", "human", "--value", "x" * 5000, code=1)
    assert memory("undo", "nothing_here", code=1).startswith("Error: ")
    assert "Nothing is stored about the user 'nobody_here'" in memory(
        "export", user="nobody_here", code=1
    )
    assert "--user is empty" in memory("show", user="", code=1)
    memory("edit", "human", "--value", "Name: Ada")
    assert "/nowhere/ada.ndjson cannot be written" in memory(
        "export", "-o", "/nowhere/ada.ndjson", code=1
    )
    assert memory("import", "-", stdin="not json\n", code=1).startswith("Error: ")


def test_a_key_is_asked_for_where_keys_are_managed(tmp_path):
    keys = json.dumps([{"name": "a", "key": "secret-a", "tenant": "t"}])
    alone = mnemogate(tmp_path, "memory", "edit", "human", "--value", "x", MNEMOGATE_KEYS=keys)
    assert alone.returncode == 1
    assert "MNEMOGATE_KEY" in alone.stderr
    assert (
        mnemogate(
            tmp_path,
            "memory",
            "edit",
            "human",
            "--value",
            "of t",
            MNEMOGATE_KEYS=keys,
            MNEMOGATE_KEY="secret-a",
        ).returncode
        == 0
    )
    with started(tmp_path, "serve", "--port", "0", MNEMOGATE_KEYS=keys) as process:
        done = mnemogate(
            tmp_path, "memory", "show", "--key", "secret-a", "--url", f"{process.url}/v1"
        )
        assert "of t" in done.stdout, done.stderr
        assert (
            mnemogate(tmp_path, "memory", "show", "--key", "wrong", "--url", process.url).returncode
            == 1
        )


def test_the_local_token_goes_only_to_the_gateway_of_its_folder(tmp_path):
    with started(tmp_path / "one", "serve", "--port", "0") as process:
        assert (
            mnemogate(
                tmp_path / "one", "memory", "edit", "human", "--value", "x", "--url", process.url
            ).returncode
            == 0
        )
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "token").write_text("00" * 24)
        done = mnemogate(tmp_path / "two", "memory", "show", "--url", process.url)
        assert done.returncode == 1
        assert "token" in done.stderr
        assert httpx.get(f"{process.url}/memory/v1/users").status_code == 401


def test_the_demos_memory_is_shown_through_its_url(tmp_path):
    with started(tmp_path, "demo", "--port", "0") as process:
        process.waited("until Ctrl-C")
        hint = process.waited(r"mnemogate (memory show --url \S+ --user \S+)")[1]
        done = mnemogate(tmp_path, *hint.split())
    assert done.returncode == 0, done.stderr
    assert "Ada" in done.stdout
    assert "green tea" in done.stdout
    assert "Ada" not in mnemogate(tmp_path, *hint.split()[:2], *hint.split()[4:]).stdout


def test_a_gateway_that_does_not_answer_is_told(tmp_path):
    done = mnemogate(tmp_path, "memory", "show", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "does not answer" in done.stderr


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_gateways_address_without_its_scheme_is_corrected(tmp_path, way):
    option, env = (
        (["--url", "127.0.0.1:9"], {})
        if way == "option"
        else ([], {"MNEMOGATE_URL": "127.0.0.1:9"})
    )
    done = mnemogate(tmp_path, "memory", "show", *option, **env)
    assert done.returncode == 2
    assert "write http://127.0.0.1:9" in " ".join(done.stderr.split())


def test_what_is_forgotten_is_named_by_a_word_that_only_it_has(memory):
    memory("remember", "The spare key is with Bob")
    ident = memory("remember", "Likes green tea").split()[-1]
    memory("edit", "human", "--value", "Name: Ada\nDrinks black coffee")
    told = memory("forget", "tea")
    assert ident in told
    assert "Likes green tea" in told
    assert "a line of human is forgotten" in memory("forget", "COFFEE")
    assert "Ada" in memory("show")
    memory("remember", "Bob has a dog")
    several = memory("forget", "bob", code=1)
    assert several.count("passage_") == 2
    assert "Bob has a dog" in several
    assert "spare key" in memory("show")


def test_a_passage_is_edited_and_the_edit_undone(memory):
    ident = memory("remember", "Likes green tea").split()[-1]
    assert "now reads: Likes coffee" in memory("edit", ident, "--value", "Likes coffee")
    assert f"{ident}  Likes coffee" in memory("show")
    assert "Likes green tea" in memory("undo", ident)
    assert f"{ident}  Likes green tea" in memory("show")


def test_undo_without_a_name_takes_back_the_newest_change_and_says_which(memory):
    memory("edit", "human", "--value", "Ada")
    memory("remember", "Likes tea")
    memory("forget", "tea")
    assert "is remembered again:\n  Likes tea" in memory("undo")
    assert "is forgotten again" in memory("undo")
    assert "the edit of the block human is undone" in memory("undo")


def test_history_prints_only_what_changed(memory):
    memory("edit", "human", "--value", "Ada\nLikes tea\nHas a cat")
    memory("edit", "human", "--value", "Ada\nLikes coffee\nHas a cat")
    newest = memory("history", "human").split("version 1")[0]
    lines = [line.strip() for line in newest.splitlines() if line.startswith("  ")]
    assert lines == ["- Likes tea", "+ Likes coffee"]
