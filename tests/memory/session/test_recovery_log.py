"""The spill file: what could be replayed is, what could not be is set aside and told, and a full
disk tears nothing.
"""

from __future__ import annotations

import errno

import msgspec
import pytest

from memory.conversation.matching import TurnNode
from memory.scope import Scope
from memory.session import recovery_log as spilling
from memory.session.recovery_log import RecoveryLog
from memory.stores.sql.scopes import ScopeOwner
from memory.stores.sql.turn_rows import TurnRecord

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
    for _ in range(2):  # told once, and read again as often as the store wants
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
    assert spill.load()[0].answers[0]["content"] == words


async def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    await spill.keep(record(ident=1))
    whole = path.read_bytes()
    real = spilling.os.write

    def full(fd, data):
        if len(data) > 10:
            return real(fd, bytes(data[:10]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(
            spilling.os,
            "write",
            lambda fd, data: real(fd, bytes(data[:100])) if len(data) > 200 else full(fd, data),
        )
        with pytest.raises(OSError):
            await spill.keep(record(ident=2))
    assert path.read_bytes() == whole


async def test_what_was_set_aside_is_erased_with_its_user(tmp_path):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    for user in ("ada", "bob"):
        await spill.keep(record(user))
    path.write_bytes(
        path.read_bytes().replace(b'"prove"', b'"proved"')
        + b'{"scope":["t","ada","default"],"nod\n'
    )
    assert spill.load() == []
    spill.forget("t", "ada")
    kept = (tmp_path / "spill.bad").read_bytes()
    assert b"bob" in kept
    assert b"ada" not in kept
