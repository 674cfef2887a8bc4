"""A memory is brought along from other programs and taken away as pages, as a user does it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.client import connect, local_token
from gateway.cli.embedded import bind_socket, serve_in_thread
from gateway.cli.main import cli
from gateway.config.loader import load
from memory import RESERVED
from tests.memory.formats.shapes import chat_of, claude_chat, claude_message

KEY = "sk-" + "proj-abcDEF1234567890abcdef"


@pytest.fixture
def memory(tmp_path, request):
    """Runs a memory command for Ada beside a gateway, in this process; `both` gives its errors."""
    stored = {"storage.data": str(tmp_path / "data"), "storage.vectors": "none"}
    settings = load(None, {}, {**stored, **getattr(request, "param", {})})
    with serve_in_thread(settings, bind_socket("127.0.0.1", 0)) as url:
        where = ("--url", url, "--key", local_token(tmp_path / "data"), "--user", "ada")

        def run(*arguments, code=0, stdin=None, both=False):
            done = CliRunner().invoke(cli, ["memory", *arguments, *where], input=stdin)
            assert done.exit_code == code, done.output
            return done.output if both else done.stderr if code else done.stdout

        with connect(url, local_token(tmp_path / "data")) as api:
            run.api = api
            yield run


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Runs a memory command where no gateway runs and no folder is."""
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path / "none"))

    def run(*arguments, code=0, stdin=None):
        done = CliRunner().invoke(cli, ["memory", *arguments], input=stdin)
        assert done.exit_code == code, done.output
        assert not (tmp_path / "none").exists()
        return done.stderr if code else done.output

    return run


def archive(path, *chats):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("conversations.json", json.dumps(chats))
    return str(path)


def test_an_archive_is_imported_once_however_often_it_is_done(memory, tmp_path):
    file = archive(tmp_path / "a.zip", chat_of(1, 3), {"mapping": 7}, chat_of(2))
    told = memory("import", "--from", "chatgpt", file)
    assert told == "New: 2 conversations, 8 messages.\n"
    assert "user 1.2" in memory("search", "user 1.2")
    before = memory("export")
    again = json.loads(memory("import", "--from", "chatgpt", file, "--json"))
    assert again["imported"]["messages"] == 0
    assert (again["already_there"], again["left_out"]) == (2, 1)
    assert again["reasons"][0]["place"].startswith("conversations.json, item 2 (byte ")
    assert memory("export") == before


def test_what_enters_is_screened(memory, tmp_path):
    chat = claude_chat([claude_message(1, "human", f"My key is {KEY} and I like tea")])
    memory("import", "--from", "claude", archive(tmp_path / "a.zip", chat))
    assert KEY not in memory("export")
    assert "like tea" in memory("search", "tea")


def test_an_export_of_lines_is_read_back_and_goes_to_a_file_or_out(memory, tmp_path):
    assert "Nothing is stored" in memory("export", code=1)
    memory("remember", "Likes tea")
    file = tmp_path / "ada.ndjson"
    assert "records in" in memory("export", "-o", str(file))
    assert "cannot be written" in memory("export", "-o", "/nowhere/ada", code=1)
    assert "cannot be read" in memory("import", "/nowhere/ada", code=1)
    memory("erase", "--yes")
    assert json.loads(memory("import", str(file)))["imported"]["passages"] == 1
    assert "Line 1 cannot be imported" in memory("import", "-", "--dry-run", stdin="x", code=1)


def test_an_export_is_written_whole_or_not_at_all_and_for_its_owner_alone(
    memory, tmp_path, monkeypatch
):
    memory("remember", "Likes tea")
    file, link = tmp_path / "ada.ndjson", tmp_path / "link"
    file.write_text("older")
    file.chmod(0o644)
    link.symlink_to(file)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(5, "Broken disk")))
        assert "Broken disk" in memory("export", "-o", str(link), code=1)
    assert file.read_text() == "older"
    memory("export", "-o", str(link))
    assert "Likes tea" in file.read_text()
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o600)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["ada.ndjson", "link"]
    memory("export", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_names_in_an_archive_do_not_command_the_terminal(alone, tmp_path):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("\x1b]0;x\x07\x9b2J/conversations.json", json.dumps([chat_of(1), {}]))
    told = alone("import", "--from", "chatgpt", str(file), "--dry-run")
    assert "?]0;x??2J/conversations.json, item 2" in told
    assert set(told) - {"\n"} == {c for c in told if c.isprintable()}


def test_a_dry_run_tells_what_there_is_and_makes_nothing(alone, tmp_path):
    file = archive(tmp_path / "a.zip", chat_of(1), {})
    told = alone("import", "--from", "chatgpt", file, "--dry-run")
    assert "It holds 1 conversations, 2 messages, 0 passages, 0 blocks.\n" in told
    assert "item 2" in told
    lines = '{"object":"passage","content":"x"}\n'
    assert json.loads(alone("import", "-", "--dry-run", stdin=lines))["passages"] == 1


def test_what_several_people_said_stays_apart(memory, tmp_path):
    file = tmp_path / "m.jsonl"
    rows = [{"memory": f"{who} likes tea", "user_id": who} for who in ("ann", "bob")]
    file.write_text("\n".join(map(json.dumps, rows)))
    run = ("import", "--from", "mem0", str(file))
    assert "2 people said: ann, bob" in memory(*run, code=1)
    assert "nothing of the owner 'eve'" in memory(*run, "--owner", "eve", code=1)
    assert memory(*run, "--owner", "ann") == "New: 1 passages.\n"
    exported = memory("export")
    assert "ann likes tea" in exported
    assert "bob" not in exported


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "<html>", "does not begin with"),
        ("a.json", "[]", "holds nothing that can be imported"),
        ("a.json", "[{}]", "item 1 (byte 1): it has no `mapping`"),
        ("gone.json", None, "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_told(alone, tmp_path, name, text, why):
    if text is not None:
        (tmp_path / name).write_text(text)
    assert why in alone("import", "--from", "chatgpt", str(tmp_path / name), code=1)


def test_a_bundle_that_the_gateway_refuses_keeps_no_other_out(memory, tmp_path):
    pages = tmp_path / "pages"
    for name, label in (("a", sorted(RESERVED)[0]), ("b", "notes")):
        (pages / name / "blocks").mkdir(parents=True)
        head = {"object": "block", "agent": name, "label": label}
        page = f"<!-- {json.dumps(head)} -->\nfine"
        (pages / name / "blocks" / "page.md").write_text(page)
    (pages / "c.md").write_text('<!-- {"object": "passage"} -->\nLikes tea')
    report = json.loads(memory("import", str(pages), "--json"))
    assert (report["imported"]["blocks"], report["imported"]["passages"]) == (1, 1)
    assert report["left_out"] == 1
    assert "cannot be a block label" in report["reasons"][0]["reason"]
    assert "fine" in memory("show", "--agent", "b")


def normal(text):
    """An export's lines with the keys of rows numbered anew, as they come."""
    keys: dict[str, int] = {}
    out = []
    for line in map(json.loads, text.splitlines()):
        if line["object"] in ("node", "message", "conversation"):
            for name in ("parent", "first", "node", "head", *(["id"] * (line["object"] == "node"))):
                if line.get(name):
                    line[name] = keys.setdefault(line[name], len(keys))
        out.append(line)
    return out


def test_a_folder_of_pages_is_a_round_trip(memory, tmp_path):
    memory("edit", "human", "--value", "Name: Ada\n<!-- {not a record} -->")
    memory("edit", "human", "--value", "Name: Ada")
    memory("edit", "cook", "--value", "soup", "--agent", "cook")
    memory("remember", "The spare key is with Bob\n\n#### and Eve", "--tag", "home")
    memory("forget", memory("remember", "Likes tea").split()[-1])
    memory("import", "--from", "chatgpt", archive(tmp_path / "a.zip", chat_of(1, 2), chat_of(2)))
    memory.api.call("PUT", "/users/ada/policy", json={"memory": "off"})
    whole, folder = memory("export"), tmp_path / "ada"
    assert '"policy"' in whole
    assert f"pages in {folder}" in memory("export", "--format", "markdown", str(folder))
    assert "with Bob" in (folder / "passages" / "00001.md").read_text()
    assert "is not empty" in memory("export", "--format", "markdown", str(folder), code=1)
    memory("erase", "--yes")
    assert memory("import", str(folder)).startswith("New: 2 blocks, 3 versions, 2 passages, 2 conv")
    assert normal(memory("export")) == normal(whole)
    assert memory("undo", "human").splitlines()[-1] == "  <!-- {not a record} -->"
    again = json.loads(memory("import", str(folder), "--json"))
    assert again["imported"] | {"blocks": 0} == dict.fromkeys(again["imported"], 0)


def test_a_page_that_was_edited_is_read(memory, tmp_path):
    memory("remember", "The spare key is with Bob")
    memory("export", "--format", "markdown", str(tmp_path / "ada"))
    page = tmp_path / "ada" / "passages" / "00001.md"
    page.write_text(page.read_text() + '<!-- {"object":"passage"} -->\n\nWritten by hand\n')
    (tmp_path / "ada" / "mine.md").write_text("no record")
    report = json.loads(memory("import", str(tmp_path / "ada"), "--json"))
    assert (report["imported"]["passages"], report["reasons"][0]["place"]) == (1, "mine.md")
    assert "Written by hand" in memory("search", "written")


@pytest.mark.parametrize(
    "options", [("--format", "markdown"), ("folder",), ("--format", "markdown", "d", "-o", "f")]
)
def test_a_folder_goes_with_markdown_and_a_file_with_lines(memory, options):
    assert "--format markdown" in memory("export", *options, code=1)


def test_the_help_names_every_program():
    from memory.formats.files import FORMATS

    option = next(
        p for p in cli.commands["memory"].commands["import"].params if p.name == "program"
    )
    assert set(option.type.choices) == set(FORMATS)


FEW_BLOCKS = {"memory.blocks_per_user": 4, "memory.block_characters": 1000}


@pytest.mark.parametrize("memory", [FEW_BLOCKS], indirect=True)
def test_a_command_that_would_exceed_the_limits_of_blocks_is_refused_by_their_names(memory):
    """By hand and by an import; nothing of it is stored."""
    there = len(load(None, {}).memory.blocks)
    for number in range(4 - there):
        memory("edit", f"b{number}", "--value", "x" * 100)
    before = memory("show")
    many = [{"object": "block", "label": "c", "value": "x"}]
    long = [{"object": "block", "label": "b0", "value": "x" * 999}]
    for label, value, lines, limit in (
        ("c", "x", many, "memory.blocks_per_user"),
        ("b0", "x" * 999, long, "memory.block_characters"),
    ):
        assert limit in memory("edit", label, "--value", value, code=1)
        assert limit in memory("edit", label, stdin=value, code=1)
        sent = "\n".join(map(json.dumps, lines))
        assert limit in memory("import", "-", stdin=sent, code=1)
        assert memory("show") == before
    memory("edit", "b0", "--value", "x" * 99)
