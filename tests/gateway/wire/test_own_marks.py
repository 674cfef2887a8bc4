"""The marks of this gateway in the reasoning that clients return."""

from __future__ import annotations

from gateway.wire.own_marks import (
    ORPHANED,
    OWN,
    SEALED,
    has_mark,
    has_seal,
    mark_orphan,
    without_marked,
)


def thinking(signature):
    return {"type": "thinking", "thinking": "Hm.", "signature": signature}


def reasoning(content):
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content}


def test_only_reasoning_of_ours_has_a_mark():
    assert has_mark(thinking(f"{SEALED}x"))
    assert has_mark(reasoning(f"{ORPHANED}x"), ORPHANED)
    assert not has_mark(reasoning(f"{SEALED}x"), ORPHANED)
    assert not has_mark({"type": "text", "signature": f"{SEALED}x"})
    assert not has_mark(thinking(None))
    assert not has_mark("x")


def test_what_has_no_mark_is_the_same():
    text = {"type": "text", "text": "Hi"}
    said = [{"role": "assistant", "content": [thinking("EqQ"), text]}]
    body = {"messages": [*said, {"role": "user", "content": "x"}, 5], "input": "x"}
    assert without_marked(body, OWN) is body


def test_marked_thinking_leaves_no_empty_message():
    text = {"type": "text", "text": "Hi"}
    alone = {"role": "assistant", "content": [thinking(f"{SEALED}x")]}
    mixed = {"role": "assistant", "content": [thinking(f"{SEALED}x"), text]}
    empty = {"role": "assistant", "content": []}
    cleaned = without_marked({"messages": [alone, mixed, empty]}, OWN)["messages"]
    assert cleaned == [{"role": "assistant", "content": [text]}, empty]


def test_what_followed_marked_reasoning_is_not_named_by_its_id():
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    user = {"type": "message", "role": "user", "id": "u_1", "content": "x"}
    said = {"type": "message", "role": "assistant", "id": "msg_1", "content": []}
    items = [reasoning(f"{ORPHANED}x"), call, user, said]
    cleaned = without_marked({"input": items}, ORPHANED)["input"]
    assert cleaned == [{k: v for k, v in call.items() if k != "id"}, user, said]
    items = [reasoning(f"{ORPHANED}x"), reasoning("own"), call]
    assert without_marked({"input": items}, ORPHANED)["input"] == items[1:]


def test_reasoning_before_marked_reasoning_goes_with_it():
    items = [reasoning("own"), reasoning(f"{ORPHANED}x"), reasoning("other"), {"role": "user"}]
    assert without_marked({"input": items}, ORPHANED)["input"] == items[2:]


def test_only_reasoning_with_an_opaque_member_is_marked():
    assert has_mark(mark_orphan(reasoning("own")), ORPHANED)
    assert mark_orphan(thinking("")) == thinking("")
    assert mark_orphan({"type": "text", "signature": "x"}) == {"type": "text", "signature": "x"}
    assert has_seal([thinking(f"{SEALED}x")])
    assert not has_seal([mark_orphan(thinking(f"{SEALED}x"))])
