"""A body whose beginning came before is read as if it had not: whatever it holds, however it is spelt, whatever came before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import prefixes
from gateway.errors import BadRequest
from gateway.intake import check_messages, check_model, parse
from gateway.prefixes import Prefixes
from gateway.upstream.base import joined
from gateway.wire import place
from gateway.wire.chat import decode, encode
from gateway.wire.place import pieces, written
from memory.history import Chain
from memory.messages import Seen
from memory.prefix import Messages, Text

KEY = b"k" * 32
words = st.text(max_size=12) | st.sampled_from(
    ["\ud83d", '"messages":[', "]}", '\\"', "😀", "\\u005d", prefixes.STANDIN]
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
        data = known.read("me", body)
    except BadRequest as e:
        return str(e)
    return {**data, "messages": data["messages"].all}


@pytest.fixture(autouse=True, scope="module")
def no_body_is_too_short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "SHORTEST", 2)
        patch.setattr(place, "LARGE", 8)
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
    known = Prefixes()
    for end in ends:
        body = spelt({**others, "messages": messages[:end]}, how, first)
        expected = as_ever(body)
        assert read(known, body) == expected
        if isinstance(expected, dict):
            fresh = Prefixes().read("me", body)["messages"]
            more = spelt({**others, "messages": messages[: end + 2]}, how, first)
            later = [known.read("me", more)["messages"]] if isinstance(as_ever(more), dict) else []
            for of in (fresh, *later):
                for found in (
                    pieces(of, of, ()),
                    pieces(of.new, of, pieces(of.all[: of.before.count], of, ())),
                ):
                    assert decode(joined(written({"model": "m"}, found, of))) == {
                        "model": "m",
                        "messages": of.all,
                    }
                assert all(
                    decode(of.text[a:b]) == {id(m): m for m in of}[i]
                    for i, (a, b) in of.spans().items()
                )
            data = known.read("me", body)  # the same again: nothing of it is new
            assert members_of(data["messages"]) == members_of(Messages.of(expected["messages"]))


@settings(max_examples=300)
@given(
    st.lists(message, min_size=1, max_size=6),
    st.binary(max_size=12) | words.map(lambda w: json.dumps(w).encode()),
    st.integers(0, 300),
    st.integers(0, 12),
)
def test_a_body_that_differs_anywhere_is_read_as_ever(messages, other, at, gone):
    known = Prefixes()
    body = spelt({"model": "m", "messages": messages}, {}, True)
    read(known, body)
    changed = body[:at] + other + body[at + gone :]
    assert read(known, changed) == as_ever(changed)


@pytest.mark.parametrize(
    "then",
    [
        b'{"model":"m","messages":[%b,{"role":"user","content":"new"}],"messages":[{"role":"user","content":"other"}]}',
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
    known = Prefixes()
    assert read(known, first) == as_ever(first)
    assert read(known, second) == as_ever(second)


@settings(max_examples=200)
@given(st.lists(message, min_size=1, max_size=10), st.integers(0, 9), st.booleans())
def test_the_chain_over_a_known_beginning_is_the_whole_chain(messages, cut, unnamed):
    """Links and digests, whichever is asked for first; a request that names nobody has its system text in all of them."""
    messages = parse(spelt({"messages": messages}, {}, True))[
        "messages"
    ]  # no half of a surrogate pair
    whole = Chain(KEY, messages, unnamed)
    before = Messages.of(messages[:cut])
    Chain(KEY, before, unnamed)
    text = encode(messages[:cut])[1:-1]
    later = Messages(before.after, messages[cut:], lambda: Text(text, 0, len(text)))
    late = Chain(KEY, later, unnamed, Seen())
    assert (late.end, late.start) == (whole.end, whole.start)
    assert [late.link(i) for i in reversed(range(len(messages)))] == whole.links[::-1]
    assert (late.links, late.digests) == (whole.links, whole.digests)


def test_others_find_nothing_of_it():
    """What is known belongs to a key and the user it names."""
    known = Prefixes()
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
    known.read("me", body)
    assert known.read("you", body)["messages"].before.count == 0
    assert known.read("me", body)["messages"].before.count == 2


def test_little_is_decoded_and_little_is_kept(monkeypatch):
    """The messages that came before are not decoded; of a thousand conversations a bounded number is known."""
    monkeypatch.setattr(prefixes, "BYTES", 128 * prefixes.EACH)
    known = Prefixes()
    for i in range(1000):
        talk = [{"role": "user", "content": f"{i} " + "x" * 600}]
        known.read("me", spelt({"messages": list(talk)}, {}, True))
        talk += [{"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]
        messages = known.read("me", spelt({"messages": talk}, {}, True))["messages"]
        assert (messages.before.count, messages.new) == (1, talk[1:])
        assert messages[-1] == talk[-1]
        assert messages._tail is messages.new
    assert 64 <= len(known.known) <= 128


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
    assert read(Prefixes(), body) == as_ever(body)
