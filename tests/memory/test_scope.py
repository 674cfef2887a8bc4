"""Scopes never share a key, whatever their names hold."""
from hypothesis import given
from hypothesis import strategies as st

from memory.scope import Scope, owner_key

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
    from memory.history import Node
    from memory.spill import Spill
    from memory.stores.sql.owners import Owner
    from memory.stores.sql.turns import Record

    spill = Spill(tmp_path / "spill.ndjson", SECRET)
    for user in ("ada", "bob", None):
        node = Node(1, 1, digest=b"d", chain=b"c", asked=b"a", trail=b"t")
        await spill.keep(Record(Owner(Scope("t", user, "default", SECRET), 0), 1, [node], [{"role": "assistant", "content": f"of {user}"}], False))
    spill.forget("t", "ada")
    assert [r.owner.scope.user for r in spill.load()] == ["bob", None]
    assert spill.load()[0].nodes[0] == Node(1, 1, digest=b"d", chain=b"c", asked=b"a", trail=b"t")
    assert b"ada" not in (tmp_path / "spill.ndjson").read_bytes()
