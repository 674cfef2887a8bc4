"""What a server says beside the model's words."""

from __future__ import annotations

from types import SimpleNamespace

from gateway.apis.translation.carried_members import CarriedMembers
from gateway.apis.translation.member_seal import CallMembers, SealedMembers


def test_what_is_beside_the_words_is_gathered_as_it_grows():
    carried = CarriedMembers()
    assert carried.whole() is None
    carried.take({"role": "assistant", "content": "Hi", "refusal": None, "images": ["x"]})
    assert not carried.is_pending
    carried.take({"reasoning_content": "I ", "reasoning": None})
    carried.take({"reasoning_content": "think."})
    assert carried.is_pending
    assert carried.close([]) == SealedMembers({"reasoning_content": "I think."}, [])
    assert not carried.is_pending


def test_details_of_one_index_and_two_types_are_two():
    carried = CarriedMembers()
    for piece in ("I ", "think."):
        details = [{"type": "reasoning.summary", "summary": piece, "index": 0}]
        carried.take({"reasoning_details": details})
    sealed = {"type": "reasoning.encrypted", "data": "x", "index": 0}
    carried.take({"reasoning_details": [sealed]})
    carried.close([])
    whole = carried.whole()
    assert whole is not None
    summary = {"type": "reasoning.summary", "summary": "I think.", "index": 0}
    assert whole.members["reasoning_details"] == [summary, sealed]


def test_places_of_calls_are_counted_from_the_next():
    carried = CarriedMembers()
    first, second, third = (SimpleNamespace(ident=i) for i in "abc")
    carried.take_call(first, {"index": 0, "id": "a", "function": {"name": "f"}})
    assert not carried.is_pending
    carried.take_call(first, {"extra_content": {"x": 1}})
    carried.take_call(second, {"function": {"name": "f", "thought_signature": "s"}})
    carried.take_call(third, {"extra": "1"})
    carried.take_call(third, {"extra": "2"})
    sealed = carried.close([first])
    assert sealed.calls == [
        CallMembers(-1, "a", {"extra_content": {"x": 1}}),
        CallMembers(0, "b", {"function": {"thought_signature": "s"}}),
        CallMembers(1, "c", {"extra": "12"}),
    ]
    whole = carried.whole()
    assert whole is not None
    assert [c.place for c in whole.calls] == [0, 1, 2]
