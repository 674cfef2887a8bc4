"""What servers want back of answers, kept in this process."""

from __future__ import annotations

from gateway.apis.translation.member_seal import CallMembers, SealedMembers
from gateway.upstream.carried_answers import EACH_BYTES, CarriedAnswers

SAID = SealedMembers({"reasoning_content": "Hm."}, [CallMembers(1, "", {"extra_content": 1})])
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def call(ident, city):
    return {"id": ident, "type": "function", "function": {"name": "f", "arguments": city}}


def answer(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


TWO = answer(call("a", "A"), call("b", "B"))


def test_an_answer_is_known_again_by_its_place_and_its_words():
    kept = CarriedAnswers()
    assert kept.restore(b"t", [*ASKED, TWO]) == [*ASKED, TWO]
    kept.keep(b"t", ASKED, TWO, SAID)
    *_, found = kept.restore(b"t", [*ASKED, TWO])
    assert found["reasoning_content"] == "Hm."
    assert [c.get("extra_content") for c in found["tool_calls"]] == [None, 1]
    other = [{**ASKED[0], "content": "Of another day."}, ASKED[1]]
    assert kept.restore(b"t", [*other, TWO])[-1] == found
    assert kept.restore(b"t", [*ASKED, found])[-1] == found


def test_nothing_else_is_given_it():
    kept = CarriedAnswers()
    kept.keep(b"t" * 70 + b"1", ASKED, TWO, SAID)
    elsewhere = [{"role": "user", "content": "Other"}]
    for whose, before, said in (
        (b"t" * 70 + b"2", ASKED, TWO),
        (b"t" * 70 + b"1", elsewhere, TWO),
        (b"t" * 70 + b"1", ASKED, answer(call("a", "A"), call("b", "C"))),
        (b"t" * 70 + b"1", ASKED, answer(call("a", "A"), call("x", "B"))),
    ):
        assert kept.restore(whose, [*before, said])[-1] == said


def test_its_size_has_a_bound():
    kept = CarriedAnswers(max_bytes=10 * EACH_BYTES)
    for number in range(100):
        kept.keep(b"t", ASKED, answer(call(str(number), "A" * number)), SAID)
    assert kept._answers.byte_count <= 10 * EACH_BYTES
