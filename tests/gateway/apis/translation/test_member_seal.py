"""What a server said beside the model's words, sealed for another format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.translation import member_seal
from gateway.apis.translation.member_seal import CallMembers, MemberSeal, SealedMembers
from gateway.wire.own_marks import BYTES, OWN

SECRET = b"s" * 32
SAID = SealedMembers({"reasoning_content": "Hm."}, [CallMembers(0, "call_1", {"extra": 1})])


def test_what_is_sealed_can_be_opened_after_a_restart():
    token = MemberSeal(SECRET, "t", "deepseek").close(SAID)
    assert MemberSeal(SECRET, "t", "deepseek").open(token) == SAID
    assert token.startswith(OWN)
    assert all(mark.encode().startswith(BYTES) for mark in OWN)


@pytest.mark.parametrize(
    "seal",
    [
        MemberSeal(SECRET, "other", "deepseek"),
        MemberSeal(SECRET, "t", "gemini"),
        MemberSeal(b"x" * 32, "t", "deepseek"),
        MemberSeal(SECRET, 't","d', "eepseek"),
    ],
)
def test_a_token_opens_for_no_other_tenant_provider_or_server(seal):
    assert seal.open(MemberSeal(SECRET, "t", "deepseek").close(SAID)) is None


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_token_opens(at, flip):
    seal = MemberSeal(SECRET, "t", "p")
    token = seal.close(SAID)
    at %= len(token)
    changed = token[:at] + chr(ord(token[at]) ^ flip) + token[at + 1 :]
    # The last letter has bits that say nothing.
    assert seal.open(changed) in (None, SAID)
    assert seal.open(token[:at]) is None


@pytest.mark.parametrize("token", [None, 5, "", "EqQBCg", "mnemogate-chat.", "mnemogate-chat.é"])
def test_what_is_no_token_is_not_opened(token):
    assert MemberSeal(SECRET, "t", "p").open(token) is None


def test_what_is_too_long_is_not_sealed(monkeypatch):
    monkeypatch.setattr(member_seal, "MOST_BYTES", 20)
    assert MemberSeal(SECRET, "t", "p").close(SAID) == ""
