"""What is known of a history's beginning, and histories whose client sends only the end."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from memory.conversation.history import (
    SCAN_WINDOW_BYTES,
    Messages,
    PrefixInfo,
    array_elements,
    build_server_history,
    conversation_key,
    count_leading_system,
    string_end,
)

SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "hello"}
HI = {"role": "assistant", "content": "hi"}
TEA = {"role": "user", "content": "I like tea"}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "4"}
CALLS = {"role": "assistant", "tool_calls": [{"id": "c"}]}


def test_a_prefix_knows_its_newest_messages_and_its_system_text():
    known = PrefixInfo().extend([SYSTEM, HELLO, HI, TEA])
    assert (known.count, known.newest, known.user, known.texts) == (4, 2, 3, True)
    assert known.first == conversation_key(HELLO)
    assert known.system == PrefixInfo().extend([SYSTEM]).system != b""


@given(st.lists(st.sampled_from([SYSTEM, HELLO, HI, TEA, RESULT]), max_size=8), st.integers(0, 8))
def test_a_prefix_is_the_same_however_it_came(messages, cut):
    whole = PrefixInfo().extend(messages)
    assert PrefixInfo().extend(messages[:cut]).extend(messages[cut:]) is not whole
    for name in ("count", "newest", "user", "texts", "system", "first"):
        parts = PrefixInfo().extend(messages[:cut]).extend(messages[cut:])
        assert getattr(parts, name) == getattr(whole, name)


def test_a_list_of_parts_is_no_plain_text():
    assert not PrefixInfo().extend([{"role": "user", "content": [{"type": "text"}]}]).texts


def test_links_are_known_in_their_own_scope_alone():
    known = PrefixInfo()
    assert known.links_of(b"ada") is None
    known.keep_links(b"ada", b"start", b"end")
    assert known.links_of(b"ada") == (b"start", b"end")
    assert known.links_of(b"bob") is None


@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.text(max_size=4), st.text(max_size=9), max_size=3),
            st.lists(st.text(max_size=5), max_size=3),
        ),
        max_size=5,
    )
)
def test_the_elements_of_an_array_are_found_in_any_json(values):
    text = json.dumps(values).encode()
    assert [json.loads(text[a:b]) for a, b in array_elements(text, 1)] == values


def test_strings_longer_than_the_window_are_passed():
    long = "\\" * SCAN_WINDOW_BYTES + '"' * 3
    text = json.dumps([{"a": long}, {"b": 1}]).encode()
    assert [json.loads(text[a:b]) for a, b in array_elements(text, 1)] == [{"a": long}, {"b": 1}]
    assert string_end(text, 8) == text.index(b"}, {")


def test_leading_system_messages_are_counted():
    assert count_leading_system([SYSTEM, SYSTEM, HELLO]) == 2
    assert count_leading_system([SYSTEM]) == 1


def stored(*messages, answer=HI):
    return build_server_history(Messages.of(messages), None, answer)


def test_new_messages_continue_a_stored_history():
    kept = stored(SYSTEM, HELLO)
    assert list(kept.continue_with(Messages.of([SYSTEM, TEA]))) == [SYSTEM, HELLO, HI, TEA]


def test_a_stored_history_grows_turn_by_turn():
    messages = stored(HELLO).continue_with(Messages.of([TEA]))
    kept = build_server_history(messages, stored(HELLO), HI)
    assert list(kept.continue_with(Messages.of([HELLO]))) == [HELLO, HI, TEA, HI, HELLO]


def test_what_does_not_simply_continue_a_stored_history_is_refused():
    kept = stored(SYSTEM, HELLO)
    assert kept.continue_with(Messages.of([TEA])) is None  # other system text
    assert kept.continue_with(Messages.of([SYSTEM])) is None  # nothing new
    assert kept.continue_with(Messages.of([SYSTEM, HELLO])) is None  # a regeneration
    assert kept.continue_with(Messages.of([SYSTEM, RESULT])) is None


def test_nothing_is_stored_while_the_client_owes_results():
    assert stored(HELLO, answer=CALLS) is None
    assert stored(SYSTEM) is None
    assert stored() is None


def test_messages_read_like_the_list_they_came_from():
    given_ = [SYSTEM, HELLO, HI]
    messages = Messages.of(given_)
    assert list(messages) == given_ == list(reversed(list(reversed(messages))))
    assert (messages[-1], messages[1:], len(messages)) == (HI, [HELLO, HI], 3)
    assert messages == given_
    assert Messages.of(messages) is messages
