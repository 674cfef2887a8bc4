"""What is left out of items that are named by their ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.item_references import (
    is_reference,
    is_said,
    references,
    without_refused,
)


def ref(name):
    return {"type": "item_reference", "id": name}


USER = {"role": "user", "content": "Hi"}
THOUGHT = {"type": "reasoning", "id": "rs_2"}
TEXT = {"type": "message", "role": "assistant", "id": "msg_1"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}


def test_references_are_known_by_their_type():
    assert references([USER, ref("a"), TEXT, ref("b"), "odd"]) == ["a", "b"]
    assert not is_reference("odd")
    assert [is_said(i) for i in (TEXT, CALL, USER, OUTPUT, "odd")] == [True, True, *[False] * 3]


def test_a_refusal_leaves_out_what_it_names():
    body = {"input": [USER, ref("rs_1"), ref("rs_12"), TEXT]}
    cut = without_refused(body, "Item 'rs_1' was provided without its follower.", every=False)
    assert cut == {"input": [USER, ref("rs_12"), TEXT]}
    every = without_refused(body, "Item 'rs_1' not found", every=True)
    assert every == {"input": [USER, TEXT]}
    needs = without_refused(body, "Item 'msg_1' without its 'reasoning' 'rs_9'", every=False)
    assert needs["input"][-1] == {"type": "message", "role": "assistant"}
    written = {"input": [USER, THOUGHT, TEXT]}
    left = without_refused(written, "rs_2 without its follower", every=False)
    assert left == {"input": [USER, {"type": "message", "role": "assistant"}]}


def test_an_output_goes_with_its_call_unless_the_server_may_have_that():
    body = {"input": [USER, ref("fc_1"), OUTPUT]}
    assert without_refused(body, "fc_1", every=False) == {"input": [USER]}
    chained = {**body, "previous_response_id": "resp_1"}
    assert without_refused(chained, "fc_1", every=False)["input"] == [USER, OUTPUT]
    doubtful = {"input": [USER, ref("fc_1"), ref("fc_2"), OUTPUT]}
    assert without_refused(doubtful, "fc_1", every=False)["input"] == [USER, ref("fc_2"), OUTPUT]


def test_a_refusal_of_something_else_changes_nothing():
    assert without_refused({"input": [USER, ref("rs_1")]}, "no voice", every=True) is None
    assert without_refused({"input": "Hi"}, "rs_1", every=True) is None
    assert without_refused({"input": [ref("rs_1")]}, "rs_1", every=True) is None
    odd = {"input": [{"type": "message", "role": "user", "id": "u1"}]}
    assert without_refused(odd, "u1", every=False) is None


ITEMS = st.lists(
    st.sampled_from([USER, ref("rs_1"), ref("fc_1"), ref("msg_1"), THOUGHT, TEXT, CALL, OUTPUT])
)


@given(ITEMS, st.sampled_from(["rs_1", "rs_2", "fc_1", "msg_1"]))
def test_what_is_left_is_the_clients_own_in_its_order(items, name):
    body = without_refused({"input": items}, f"'{name}' is refused", every=True)
    if body is not None:
        assert not references(body["input"])
        rest = iter(items)
        for item in body["input"]:
            assert any(item == {k: v for k, v in i.items() if k in item} for i in rest)
        again = without_refused(body, f"'{name}' is refused", every=True)
        assert again is None
