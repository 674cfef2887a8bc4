"""A body whose beginning came before is read as if it had not: whatever it holds, however it is
spelt, whatever came before.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.http import parse_cache
from gateway.http.parse_cache import RequestParseCache
from gateway.upstream.base import join_body
from gateway.wire import long_strings, placement
from gateway.wire.chat import decode
from gateway.wire.chat_request import check_messages, check_model, parse
from gateway.wire.lone_surrogates import encode_plain
from gateway.wire.placement import encode_request, message_spans
from memory.conversation import json_spans, json_strings
from memory.conversation.history import Messages, TextRange
from memory.conversation.matching import HashChain
from memory.conversation.messages import DigestCache

KEY = b"k" * 32
words = st.text(max_size=12) | st.sampled_from(
    ["\ud83d", '"messages":[', "]}", '\\"', "😀", "\\u005d", parse_cache.STANDIN]
)
parts = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": words}), max_size=2)
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]),
        "content": words | parts | st.none(),
    },
    optional={"name": words},
)
members = st.dictionaries(
    st.sampled_from(["tools", "metadata", "temperature", "user"]),
    st.recursive(
        st.none() | st.integers() | words,
        lambda x: st.lists(x, max_size=2) | st.dictionaries(words, x, max_size=2),
    ),
    max_size=3,
)
SPELLINGS = [{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}]


def spelt(body, how, first):
    """The body as JSON text, its messages before or after its other members."""
    messages = {"messages": body.pop("messages"), "model": body.pop("model", "m")}
    text = json.dumps({**messages, **body} if first else {**body, **messages}, **how)
    return text.encode("utf-8", "surrogatepass")


def as_ever(body):
    """What reading the whole gives: the members and messages, or the error."""
    try:
        data = parse(body)
        check_model(data)
        check_messages(data)
    except BadRequest as e:
        return str(e)
    return data


def read(known, body):
    try:
        data = known.parse("me", body)
    except BadRequest as e:
        return str(e)
    return {**data, "messages": data["messages"].all}


@pytest.fixture(autouse=True, scope="module")
def no_body_is_too_short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse_cache, "MIN_PREFIX_BYTES", 2)
        patch.setattr(placement, "LARGE_PIECE_BYTES", 8)
        yield


def members_of(messages):
    after = messages.after
    return after.count, after.newest, after.user, after.texts, after.system, after.first


@settings(max_examples=300)
@given(
    st.lists(message, min_size=1, max_size=12),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    members,
    st.sampled_from(SPELLINGS),
    st.booleans(),
)
def test_bodies_that_grow_are_read_as_ever(messages, ends, others, how, first):
    known = RequestParseCache()
    for end in ends:
        body = spelt({**others, "messages": messages[:end]}, how, first)
        expected = as_ever(body)
        assert read(known, body) == expected
        if isinstance(expected, dict):
            fresh = RequestParseCache().parse("me", body)["messages"]
            more = spelt({**others, "messages": messages[: end + 2]}, how, first)
            later = [known.parse("me", more)["messages"]] if isinstance(as_ever(more), dict) else []
            for of in (fresh, *later):
                for found in (
                    message_spans(of, of, ()),
                    message_spans(of.new, of, message_spans(of.all[: of.before.count], of, ())),
                ):
                    assert decode(join_body(encode_request({"model": "m"}, found, of))) == {
                        "model": "m",
                        "messages": of.all,
                    }
                assert all(
                    decode(of.text[a:b]) == {id(m): m for m in of}[i]
                    for i, (a, b) in of.spans().items()
                )
            # The same again: nothing of it is new.
            data = known.parse("me", body)
            assert members_of(data["messages"]) == members_of(Messages.of(expected["messages"]))


@settings(max_examples=300)
@given(
    st.lists(message, min_size=1, max_size=6),
    st.binary(max_size=12) | words.map(lambda w: json.dumps(w).encode()),
    st.integers(0, 300),
    st.integers(0, 12),
)
def test_a_body_that_differs_anywhere_is_read_as_ever(messages, other, at, gone):
    known = RequestParseCache()
    body = spelt({"model": "m", "messages": messages}, {}, True)
    read(known, body)
    changed = body[:at] + other + body[at + gone :]
    assert read(known, changed) == as_ever(changed)


@pytest.mark.parametrize(
    "then",
    [
        b'{"model":"m","messages":[%b,{"role":"user","content":"new"}],'
        b'"messages":[{"role":"user","content":"other"}]}',
        b'{"model":"m","messages":[%b],"messages":[%b,{"role":"user","content":"two"}]}',
        b'{"model":"m","x":{"messages":[%b]},"messages":[{"role":"user","content":"three"}]}',
        b'{"model":"m","messages":[%b,]}',
        b'{"model":"m","messages":[%b',
        b'{"model":"m","messages":[%b]',
        b'{"model":"m","messages":[%b{}]}',
        b'{"model":"m","messages":[%b],"x":{"messages":[%b, 3]}}',
        b'{"model":"m","messages":[%b,3]}',
        b'{"model":"m","messages":[%b,{"role":"user"}]}',
        b'{"model":"m","messages":[%b  ,\n {"role":"user"} ] }',
        b'{"model":"m","messages":[%b,{"content":"no role"}]}',
        b'{"model":"m","messages":[%b,{"role":"tool","tool_calls":3}]}',
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        b'{"model":"m","messages":[%b]}',
        b'{"model":"m","x":{"messages":[%b]},"messages":[%b]}',
        b'{"model":"m","messages":[%b],"messages":[%b]}',
        b'{ "model":"m","messages" : [ %b ] }',
    ],
)
def test_members_given_twice_and_broken_ends(before, then):
    said = b'{"role":"user","content":"%s"},{"role":"assistant","content":"b"}' % (b"long " * 80)
    first, second = before.replace(b"%b", said), then.replace(b"%b", said)
    known = RequestParseCache()
    assert read(known, first) == as_ever(first)
    assert read(known, second) == as_ever(second)


@settings(max_examples=200)
@given(st.lists(message, min_size=1, max_size=10), st.integers(0, 9), st.booleans())
def test_the_chain_over_a_known_beginning_is_the_whole_chain(messages, cut, unnamed):
    """Links and digests, whichever is asked for first; a request that names nobody has its system
    text in all of them.
    """
    # No half of a surrogate pair.
    messages = parse(spelt({"messages": messages}, {}, True))["messages"]
    whole = HashChain(KEY, messages, unnamed)
    before = Messages.of(messages[:cut])
    HashChain(KEY, before, unnamed)
    text = encode_plain(messages[:cut])[1:-1]
    later = Messages(before.after, messages[cut:], lambda: TextRange(text, 0, len(text)))
    late = HashChain(KEY, later, unnamed, DigestCache())
    assert (late.end, late.start) == (whole.end, whole.start)
    assert [late.link(i) for i in reversed(range(len(messages)))] == whole.links[::-1]
    assert (late.links, late.digests) == (whole.links, whole.digests)


def test_others_find_nothing_of_it():
    """What is known belongs to a key and the user it names."""
    known = RequestParseCache()
    body = spelt(
        {
            "messages": [
                {"role": "user", "content": "x" * 300},
                {"role": "assistant", "content": "y"},
            ]
        },
        {},
        True,
    )
    known.parse("me", body)
    assert known.parse("you", body)["messages"].before.count == 0
    assert known.parse("me", body)["messages"].before.count == 2


def test_little_is_decoded_and_little_is_kept(monkeypatch):
    """The messages that came before are not decoded; of a thousand conversations a bounded number
    is known.
    """
    monkeypatch.setattr(parse_cache, "BYTES", 128 * parse_cache.EACH)
    known = RequestParseCache()
    for i in range(1000):
        talk = [{"role": "user", "content": f"{i} " + "x" * 600}]
        known.parse("me", spelt({"messages": list(talk)}, {}, True))
        talk += [{"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]
        messages = known.parse("me", spelt({"messages": talk}, {}, True))["messages"]
        assert (messages.before.count, messages.new) == (1, talk[1:])
        assert messages[-1] == talk[-1]
        assert messages._tail is messages.new
    assert 64 <= len(known.prefixes) <= 128


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"{}",
        b"[]",
        b'"x"',
        b'{"model":"m","messages":[]}',
        b'{"model":"m"}',
        b'{"messages":{}}',
        b"\xef\xbb\xbf{}",
        b"\x00",
    ],
)
def test_what_is_no_request_is_refused_as_ever(body):
    assert isinstance(as_ever(body), str)
    assert read(RequestParseCache(), body) == as_ever(body)


JSON = st.recursive(
    st.text(max_size=30) | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@given(
    st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=5),
    st.integers(1, 40),
    st.booleans(),
)
def test_the_objects_of_an_array_are_found_whatever_the_window(found, window, ascii_only):
    texts = [json.dumps(x, ensure_ascii=ascii_only).encode() for x in found]
    text = b"[" + b" , ".join(texts) + b"] "
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_strings, "SCAN_WINDOW_BYTES", window)
        assert [text[a:b] for a, b in json_spans.array_elements(text, 1)] == texts


LONG = [{"role": "user", "content": "words " * (json_spans.LONG_BYTES // 4)}]
TOLD = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "and now?"}]


@pytest.mark.parametrize(
    ("before", "again", "is_heavy"),
    [
        # A repetition, or a regeneration.
        (LONG, LONG, True),
        # The newest message is decoded with all before it.
        (LONG + TOLD, LONG + TOLD, True),
        (TOLD + LONG, TOLD + LONG, True),
        (LONG, LONG + TOLD[1:], True),
        (LONG, LONG + TOLD, False),
        (LONG + TOLD, LONG + TOLD + TOLD, False),
    ],
)
async def test_a_long_request_that_is_sent_again_is_looked_at_in_a_thread(before, again, is_heavy):
    """All of it is looked at, although nothing in it is new: that holds others for long."""
    cache = RequestParseCache()
    for messages in (before, again):
        body = json.dumps({"model": "m", "messages": messages}).encode()
        found = (await cache.parse_async("who", body))["messages"]
    assert found.before.count == len(before)
    assert found.heavy == is_heavy
    since = found.after.newest + 1
    decoding = found.looks_back and found.is_long
    assert not decoding
    assert found[since:] == again[since:]
    if is_heavy:
        # Where its messages stand was found as well.
        assert len(found._spans) == len(again)


@given(st.lists(message, max_size=3), members, st.sampled_from(SPELLINGS), st.booleans())
@settings(max_examples=60)
def test_the_messages_of_a_long_body_are_found_where_they_are(messages, others, how, first):
    text = spelt({"messages": messages, **others}, how, first)
    with pytest.MonkeyPatch.context() as patch:
        usual = parse_cache._messages_span(text)
        patch.setattr(parse_cache, "takes_long", lambda _: True)
        patch.setattr(long_strings, "WINDOW_BYTES", 16)
        assert parse_cache._messages_span(text) == usual
