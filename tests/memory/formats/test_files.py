"""Files as vendors send them: plain, zipped, in a folder, broken, or made to harm."""

from __future__ import annotations

import json
import zipfile

import pytest

from memory.formats import files
from memory.formats.files import BadSource, Broken, read_source
from tests.memory.formats.shapes import chat_of


def names(found):
    return [b.lines[0].id[-40:] if not isinstance(b, Broken) else b for b in found]


def zipped(path, members, **how):
    with zipfile.ZipFile(path, "w", **{"compression": zipfile.ZIP_DEFLATED, **how}) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def test_a_file_an_archive_and_a_folder_hold_the_same(tmp_path):
    chats = [chat_of(i) for i in range(3)]
    plain = tmp_path / "conversations.json"
    plain.write_text(json.dumps(chats))
    archive = zipped(
        tmp_path / "export.zip",
        {
            "x/conversations-000.json": json.dumps(chats[:1]),
            "x/conversations-001.json": json.dumps(chats[1:]),
            "x/user.json": "{}",
            "__MACOSX/x/conversations.json": "junk",
        },
    )
    for path in (plain, archive, tmp_path):
        found = list(read_source(path, "chatgpt"))
        assert [b.lines[0].id for b in found] == [f"chatgpt:{c['conversation_id']}" for c in chats]


def test_a_broken_item_is_told_with_its_place_and_the_others_are_read(tmp_path):
    path = tmp_path / "a.json"
    good = json.dumps(chat_of(1))
    path.write_text(f'[{good}, {{"mapping": 1}}, {{"a": tru}}, {good}, {{"cut": "o')
    first, shape, syntax, last, cut = read_source(path, "chatgpt")
    assert not isinstance(first, Broken)
    assert not isinstance(last, Broken)
    assert "mapping" in shape.reason
    assert "a.json, item 3 (byte" in syntax.place
    assert "no valid JSON" in syntax.reason
    assert "cut short" in cut.reason


def test_memories_are_read_one_by_one(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"results": [{"memory": "a"}, {}, {"memory": "b"}]}))
    one, broken, two = read_source(path, "mem0")
    assert (one.lines[0].content, two.lines[0].content) == ("a", "b")
    assert isinstance(broken, Broken)


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path):
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("conversations.json", "w", force_zip64=True) as member:
            for _ in range(80):
                member.write(b" " * (1 << 20))
    with pytest.raises(BadSource, match="unpacks to 83886080 bytes"):
        list(read_source(bomb, "chatgpt"))


def test_the_whole_of_an_archive_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 100)
    path = zipped(tmp_path / "a.zip", {"conversations.json": json.dumps([chat_of(1)])})
    with pytest.raises(BadSource, match="at most 100 are read"):
        list(read_source(path, "chatgpt"))


def test_another_way_of_packing_is_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", {"conversations.json": "[]"}, compression=zipfile.ZIP_LZMA)
    with pytest.raises(BadSource, match="Unpack it yourself"):
        list(read_source(path, "chatgpt"))


def test_a_damaged_archive_is_told(tmp_path):
    path = zipped(tmp_path / "a.zip", {"conversations.json": json.dumps([chat_of(1)] * 50)})
    raw = bytearray(path.read_bytes())
    raw[80:120] = bytes(40)
    path.write_bytes(raw)
    with pytest.raises(BadSource, match="cannot be unpacked"):
        list(read_source(path, "chatgpt"))


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("a.json", b"<html>", "does not begin"),
        ("a.json", b"", "does not begin"),
        ("gone.json", None, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_name(tmp_path, name, raw, why):
    if raw is not None:
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(BadSource, match=why) as told:
        list(read_source(tmp_path / name, "claude"))
    assert str(tmp_path / name) in str(told.value)


def test_an_archive_or_folder_of_something_else_is_told_what_is_needed(tmp_path):
    path = zipped(tmp_path / "a.zip", {"photo.jpg": "x"})
    for source in (path, tmp_path):
        with pytest.raises(
            BadSource, match=r"holds no file of this kind\. Needed is an agent file"
        ):
            list(read_source(source, "letta"))


@pytest.mark.parametrize(
    "hostile",
    [
        '[{"mapping":' + "[" * 200_000 + "]" * 200_000 + "}]",
        '[{"mapping":{"a":' * 5000 + "1" + "}}]" * 5000,
        '[{"mapping":[' + "[]," * 2_500_000 + "[]]}]",
        '[{"mapping":{"a":"\\ud800"}}]',
        '[{"mapping":{}, "x": 1e999999}]',
    ],
)
def test_a_hostile_item_is_broken_or_empty_and_nothing_worse(tmp_path, hostile):
    path = tmp_path / "a.json"
    path.write_text(hostile)
    assert all(isinstance(b, Broken) for b in read_source(path, "chatgpt"))


@pytest.mark.parametrize("program", files.FORMATS)
@pytest.mark.parametrize("value", [{}, {"a": [1]}, {"messages": None, "chat": 3}])
def test_every_reader_takes_any_object(tmp_path, program, value):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([value, {}]))
    assert all(isinstance(b, Broken) for b in read_source(path, program))
