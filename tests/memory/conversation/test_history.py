"""What is known of a history's beginning, and histories whose client sends only the end."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation.history import (
    STAYING,
    Messages,
    PrefixInfo,
    SourceText,
    TextRange,
    build_server_history,
    conversation_key,
    count_leading_system,
)
from memory.conversation.json_spans import LONG_BYTES, array_elements
from memory.conversation.messages import keyed_hash
from memory.conversation.steps import pausing_with

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
    known.links = b"ada", b"start", b"end"
    assert known.links_of(b"ada") == (b"start", b"end")
    assert known.links_of(b"bob") is None


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
    # Other system text.
    assert kept.continue_with(Messages.of([TEA])) is None
    # Nothing new.
    assert kept.continue_with(Messages.of([SYSTEM])) is None
    # A regeneration.
    assert kept.continue_with(Messages.of([SYSTEM, HELLO])) is None
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


ALL = [SYSTEM, HELLO, HI, TEA, HI, HELLO]
# The index of the first message after it.
CUT = 3


def cut(new=(RESULT,), stays=(0,), window=None):
    """A request that continues `ALL`, of which the first messages were cut but for `stays`."""
    text = json.dumps(ALL).encode()
    first = Messages(PrefixInfo(), list(ALL), source=SourceText(text, 1))
    first.mark(b"ada", CUT, b"link", stays)
    known = TextRange(text, 1, len(text) - 1)
    whole = json.dumps([*ALL, *new]).encode()
    spans = array_elements(whole, 1)[len(ALL) :]
    source = SourceText(whole, 1, spans)
    return Messages(first.after, list(new), lambda: known, source)


def test_what_follows_a_cut_is_read_and_what_stays_before_it():
    messages = cut()
    messages.enter()
    messages.enter()
    assert messages.first(len(messages)) == [0, 3, 4, 5, 6]
    assert (messages[0], messages[4], messages[-1]) == (SYSTEM, HI, RESULT)
    assert messages[4:] == [HI, HELLO, RESULT]
    kept = messages[0]
    assert messages[1] == HELLO
    assert messages[0] is kept
    assert list(messages) == [*ALL, RESULT]
    assert messages.first(2) == [0, 1]


def test_messages_after_a_cut_read_backwards_like_all():
    messages = cut()
    messages.enter()
    assert list(reversed(messages)) == [RESULT, *reversed(ALL)]
    assert cut()[1:4:2] == [ALL[1], ALL[3]]


def test_messages_are_found_in_the_text_that_they_came_in():
    messages = cut()
    assert [messages.text[a:b] for a, b in messages.spans().values()] == [
        json.dumps(RESULT).encode()
    ]
    messages.enter()
    spans = messages.spans()
    for message in (messages[0], messages[4], messages[-1]):
        a, b = spans[id(message)]
        assert json.loads(messages.text[a:b]) == message
    assert Messages.of(ALL).spans() == {}
    assert Messages.of(ALL).text == b""


def test_a_cut_can_follow_a_cut():
    messages = cut()
    messages.enter()
    messages.mark(b"ada", 5, b"next", [0, 3])
    assert messages.after.mark.index == 5
    assert sorted(messages.after.mark.stays) == [0, 3]


def test_where_too_many_stay_no_cut_is_marked():
    assert cut(stays=range(STAYING + 1)).before.mark is None


def test_only_a_long_history_is_long():
    assert not Messages.of(ALL).is_long
    assert not cut().is_long
    long = TextRange(b"", 0, LONG_BYTES + 1)
    assert Messages(PrefixInfo().extend(ALL), [], lambda: long).is_long


def test_a_history_without_a_source_is_marked_in_the_text_that_is_stored():
    text = json.dumps(ALL)[1:-1].encode()
    messages = Messages(PrefixInfo().extend(ALL), [RESULT], lambda: TextRange(text, 0, len(text)))
    messages.mark(b"ada", CUT, b"link", [0])
    at = messages.after.mark.at
    assert json.loads(b"[" + text[at:] + b"]") == ALL[CUT:]


def test_messages_equal_sequences_alone():
    assert Messages.of(ALL) != 3


def test_spans_are_looked_for_once():
    text = json.dumps(ALL).encode()
    messages = Messages(PrefixInfo(), json.loads(text), source=SourceText(text, 1))
    assert messages.spans() == messages.spans()
    assert [json.loads(text[a:b]) for a, b in messages.spans().values()] == ALL


@pytest.mark.parametrize(
    "named",
    [
        '{"content":"x","file_id":"f"},{"role":"user","role":"user","content":"y"}',
        '{"role":"user","content":{"file_id":"f"},"content":"x"}',
        '{"role":"user","content":{"file_id":"f"},"c\\u006fntent":"x"}',
        '{"role":"user","content":[{"file_id":"f"}]}',
        '{"role":"user","content":"x","file_id":"f"}',
    ],
)
def test_what_else_a_message_holds_is_never_left_out_of_what_is_looked_through(named):
    text = f'{{"messages":[{{"role":"user","content":"plain"}},{named}]}}'.encode()
    start, end = text.index(b"[") + 1, text.rindex(b"]")
    source = SourceText(text, start, (), end)
    assert (
        b"file_id" in Messages(PrefixInfo(), json.loads(text)["messages"], source=source).unchecked
    )


def test_a_role_and_a_text_need_not_be_looked_through():
    text = b'{"messages":[{"role":"user","content":"plain"}],"model":"m"}'
    source = SourceText(text, 13, (), text.rindex(b"]"))
    messages = Messages(PrefixInfo(), json.loads(text)["messages"], source=source)
    assert messages.unchecked == b'{"messages":[],"model":"m"}'


@pytest.mark.parametrize("text", ["a" * 70_000, '😀é"\\\n\x01' * 20_000, "\x7f\u2028/<" * 30_000])
def test_a_long_first_message_is_known_by_the_same_key_read_in_steps(text):
    steps = []
    with pausing_with(lambda: steps.append(1)):
        key = conversation_key({"role": "user", "content": text})
    assert key == keyed_hash(b"", msgspec.json.encode(text))
    assert len(steps) > 1


@pytest.mark.parametrize(("count", "heavy"), [(256, False), (257, True)])
def test_many_new_messages_are_looked_at_and_written_in_a_thread(count, heavy):
    assert Messages.of([HELLO] * count).heavy is heavy
    known = PrefixInfo().extend([HELLO] * 4_000)
    assert Messages(known, [HELLO] * count).heavy is heavy
