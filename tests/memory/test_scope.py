"""Scopes never share a key, whatever their names hold."""

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.scope import Scope, owner_key
from memory.session import line_file
from memory.session.recovery_log import RecoveryLog

SECRET = b"s" * 32
name = st.text(max_size=4) | st.sampled_from(["", "a", "a\x00b", "\x00", "1:a"])
scopes = st.builds(Scope, name, st.none() | name, name, st.just(SECRET))


@given(scopes, scopes)
def test_different_scopes_have_different_keys_and_tags(a, b):
    assert (a.key == b.key) == (a == b) == (a.tag == b.tag)
    assert (a.owner == b.owner) == ((a.tenant, a.user) == (b.tenant, b.user))


def test_a_scope_of_nobody_is_not_the_scope_of_an_empty_name():
    assert Scope("t", None, "x", SECRET).key != Scope("t", "", "x", SECRET).key
    assert owner_key(SECRET, "t", None) != owner_key(SECRET, "t", "")


async def test_an_erased_users_spilled_turns_are_forgotten(tmp_path):
    from memory.conversation.matching import TurnNode
    from memory.stores.sql.rows.scopes import ScopeOwner
    from memory.stores.sql.turns.turn_rows import TurnRecord

    spill = RecoveryLog(tmp_path / "spill.ndjson", SECRET)
    for user in ("ada", "bob", None):
        node = TurnNode(1, 1, digest=b"d", chain=b"c", asked=b"a", trail=b"t")
        await spill.keep(
            TurnRecord(
                ScopeOwner(Scope("t", user, "default", SECRET), 0),
                1,
                [node],
                [{"role": "assistant", "content": f"of {user}"}],
                False,
            )
        )
    spill.forget("t", "ada")
    assert [r.owner.scope.user for r in spill.load()] == ["bob", None]
    assert next(spill.load()).nodes[0] == TurnNode(
        1, 1, digest=b"d", chain=b"c", asked=b"a", trail=b"t"
    )
    assert b"ada" not in (tmp_path / "spill.ndjson").read_bytes()


def record(conversation, said):
    from memory.conversation.matching import TurnNode
    from memory.stores.sql.rows.scopes import ScopeOwner
    from memory.stores.sql.turns.turn_rows import TurnRecord

    node = TurnNode(1, 1, digest=b"d", chain=b"c", asked=b"a", trail=b"t")
    return TurnRecord(
        ScopeOwner(Scope("t", "ada", "default", SECRET), 0),
        conversation,
        [node],
        [{"role": "assistant", "content": said}],
        False,
    )


async def test_a_deleted_conversations_spilled_turns_are_forgotten_and_no_others(tmp_path):
    path = tmp_path / "spill.ndjson"
    spill = RecoveryLog(path, SECRET)
    spill.forget_conversation(1)
    for key in (1, 2, 1):
        await spill.keep(record(key, f"of {key}"))
    before = path.read_bytes().split(b"\n")[1]
    spill.forget_conversation(1)
    assert path.read_bytes() == before + b"\n"
    assert path.stat().st_mode & 0o777 == 0o600
    spill.forget_conversation(2)
    assert list(tmp_path.iterdir()) == []


async def test_what_is_spilled_while_another_is_forgotten_is_kept(tmp_path, monkeypatch):
    """As is what was there before, should it be interrupted."""
    spill, finding = RecoveryLog(tmp_path / "spill.ndjson", SECRET), line_file.find_lines
    for key in (1, 2):
        await spill.keep(record(key, f"of {key}"))

    def slow(file):
        found = list(finding(file))
        time.sleep(0.1)
        return found

    monkeypatch.setattr(line_file, "find_lines", slow)
    forgetting = asyncio.create_task(asyncio.to_thread(spill.forget, "t", "nobody"))
    await asyncio.sleep(0.05)
    await spill.keep(record(3, "of 3"))
    await forgetting
    assert [r.conversation for r in spill.load()] == [1, 2, 3]

    def killed(self, target):
        raise OSError

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(OSError):
        spill.forget_conversation(1)
    assert [r.conversation for r in spill.load()] == [1, 2, 3]
    spill.clear()
    assert list(tmp_path.iterdir()) == []
