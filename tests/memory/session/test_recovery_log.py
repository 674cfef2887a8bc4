"""The spill file: what could be replayed is, what could not be is set aside and told, and a full
disk tears nothing.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation.matching import TurnNode
from memory.core.screen import Screen
from memory.scope import Scope
from memory.session import line_file
from memory.session import recovery_log as spilling
from memory.session.recovery_log import RecoveryLog
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns.turn_rows import TurnRecord

SECRET = b"s" * 32


def record(user="ada", ident=1, words="fine"):
    node = TurnNode(ident, 1, digest=b"d", chain=b"c", asked=b"a", trail=b"t")
    owner = ScopeOwner(Scope("t", user, "default", SECRET), 0)
    return TurnRecord(owner, 1, [node], [{"role": "assistant", "content": words}], False)


def edited(line, how):
    data = msgspec.json.decode(line)
    how(data)
    return msgspec.json.encode(data)


@pytest.mark.parametrize(
    "how",
    [
        lambda d: d.pop("answers"),
        lambda d: d.pop("scope"),
        lambda d: d["nodes"][0].pop("digest"),
        lambda d: d["nodes"][0].update(colour="red"),
        lambda d: d.update(colour="red"),
        lambda d: d.update(nodes=7),
        lambda d: d.update(scope=["t"]),
        lambda d: d.update(jobs=[{"knd": "x"}]),
    ],
)
async def test_a_line_that_is_no_record_is_set_aside_and_the_rest_is_read(tmp_path, caplog, how):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    for ident in (1, 2, 3):
        await spill.keep(record(ident=ident))
    lines = path.read_bytes().split(b"\n")
    lines[1] = edited(lines[1], how)
    path.write_bytes(b"\n".join(lines))
    # Told once, and read again as often as the store wants.
    for _ in range(2):
        assert [r.nodes[0].id for r in spill.load()] == [1, 3]
    assert (tmp_path / "spill.bad").read_bytes() == lines[1] + b"\n"
    assert sum("spill.bad" in r.message for r in caplog.records) == 1
    assert "fine" not in caplog.text


async def test_a_torn_line_is_set_aside_and_tears_no_other(tmp_path):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    await spill.keep(record(ident=1))
    with path.open("ab") as file:
        file.write(b'{"scope": ["t", "a')
    await spill.keep(record(ident=2))
    assert [r.nodes[0].id for r in spill.load()] == [1, 2]
    assert (tmp_path / "spill.bad").read_bytes() == b'{"scope": ["t", "a\n'


async def test_text_with_any_line_separator_comes_back(tmp_path):
    spill = RecoveryLog(tmp_path / "spill.ndjson", SECRET)
    words = "a\u2028b\u2029c\x85d\x0be\x1cf\ng"
    await spill.keep(record(words=words))
    assert next(spill.load()).answers[0]["content"] == words


async def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    await spill.keep(record(ident=1))
    whole = path.read_bytes()
    real = line_file.os.write

    def full(fd, data):
        if len(data) > 10:
            return real(fd, bytes(data[:10]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(
            line_file.os,
            "write",
            lambda fd, data: real(fd, bytes(data[:100])) if len(data) > 200 else full(fd, data),
        )
        assert await spill.keep(record(ident=2))
    assert path.read_bytes() == whole
    assert [r.nodes[0].id for r in spill.load()] == [1, 2]


async def test_what_was_set_aside_is_erased_with_its_user(tmp_path):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    for user in ("ada", "bob"):
        await spill.keep(record(user))
    path.write_bytes(
        path.read_bytes().replace(b'"prove"', b'"proved"')
        + b'{"scope":["t","ada","default"],"nod\n'
    )
    assert list(spill.load()) == []
    spill.forget("t", "ada")
    kept = (tmp_path / "spill.bad").read_bytes()
    assert b"bob" in kept
    assert b"ada" not in kept


def refuse(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@given(st.lists(st.sampled_from(["keep", "break", "mend", "replay", "flush"]), max_size=30))
async def test_records_come_back_once_and_in_order_whatever_the_disk_does(steps):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        spill, append = RecoveryLog(Path(folder) / "spill.ndjson", SECRET), spilling.append_lines
        kept, replayed = 0, []
        for step in [*steps, "mend", "replay"]:
            if step == "keep":
                kept += 1
                await spill.keep(record(ident=kept))
            elif step == "break":
                patch.setattr(spilling, "append_lines", refuse)
                patch.setattr(spilling, "rewrite_lines", refuse)
            elif step == "mend":
                patch.undo()
            elif step == "replay":
                replayed += [r.nodes[0].id for r in spill.load()]
                spill.clear()
                assert spill.is_empty
            else:
                with contextlib.suppress(OSError):
                    spill.flush()
        assert spilling.append_lines is append
        assert replayed == list(range(1, kept + 1))
        assert (spill.held_records, spill.held_bytes) == (0, 0)


async def test_what_is_held_is_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(spilling, "append_lines", refuse)
    size = len(msgspec.json.encode(spilling.pack_record(record())))
    monkeypatch.setattr(spilling, "HELD_BYTES", size)
    monkeypatch.setattr(spilling, "HELD_BYTES_AT_MOST", 2 * size)
    spill = RecoveryLog(tmp_path / "spill.ndjson", SECRET)
    for number, is_full in ((1, True), (2, True)):
        assert await spill.keep(record())
        assert (spill.held_records, spill.held_bytes, spill.is_full) == (
            number,
            number * size,
            is_full,
        )
    with pytest.raises(OSError):
        await spill.keep(record())
    assert (spill.held_records, spill.lost_records) == (2, 1)


async def test_what_is_held_is_erased_with_its_user(tmp_path, monkeypatch):
    spill = RecoveryLog(tmp_path / "spill.ndjson", SECRET)
    with monkeypatch.context() as patch:
        patch.setattr(spilling, "append_lines", refuse)
        for user in ("ada", "bob"):
            await spill.keep(record(user))
    spill.forget("t", "ada")
    assert [r.owner.scope.user for r in spill.load()] == ["bob"]


async def test_what_is_held_goes_to_the_file_when_the_process_ends(tmp_path, monkeypatch):
    spill = RecoveryLog(tmp_path / "spill.ndjson", SECRET)
    with monkeypatch.context() as patch:
        patch.setattr(spilling, "append_lines", refuse)
        await spill.keep(record(ident=1))
    spill.flush()
    again = RecoveryLog(tmp_path / "spill.ndjson", SECRET)
    assert [r.nodes[0].id for r in again.load()] == [1]


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_is_indexed_of_a_late_answer_has_no_secret(is_kept):
    """A kept history needs what the screen found; what is indexed is without it."""
    before = record(words="The key is sk-proj-abcdefghij0123456789abcdefghij0123456789.")
    before.kept = is_kept
    line = msgspec.json.encode(spilling.pack_record(before))
    after = spilling.unpack_record(msgspec.json.decode(line), SECRET, Screen())
    assert after.answers == before.answers
    [[row]] = after.contents
    assert "sk-proj" not in row["content"]
    assert ("sk-proj" in str(row["body"])) is is_kept
