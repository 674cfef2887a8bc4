"""The chain: messages that say the same are the same; any other difference makes another
history.
"""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import messages
from memory.conversation import messages as conversation_messages
from memory.conversation.long_json import LONG_CHARACTERS
from memory.conversation.matching import HashChain
from memory.conversation.messages import (
    DigestCache,
    canonical,
    collapse_whitespace,
    condense_media,
    digest_of,
    keyed_hash,
    text_of,
    with_image_addresses,
)

KEY = b"k" * 32
json_bytes = msgspec.json.encode
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": st.text(max_size=8)}
)


SPOKEN = st.text(st.sampled_from("ab \n\xe9"), max_size=30)
CALLED = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.none() | SPOKEN,
        "tool_calls": st.lists(
            st.builds(
                lambda text: {"id": "c", "function": {"name": "f", "arguments": text}}, SPOKEN
            )
            | st.sampled_from([None, {}, {"function": {"arguments": {}}}]),
            max_size=3,
        ),
    }
)
ANY_MESSAGES = st.lists(
    CALLED | st.builds(lambda text: {"role": "user", "content": text}, SPOKEN), max_size=4
)


@given(ANY_MESSAGES, st.sampled_from([1, 4, 64]))
def test_long_messages_are_recognised_as_short_ones_are(messages, size):
    alone = [digest_of(KEY, m) for m in messages]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation_messages, "HASHED_AT_ONCE", size)
        cache = DigestCache()
        for _ in range(2):
            assert [cache.extend_chain(KEY, b"", m)[0] for m in messages] == alone


def test_long_arguments_are_hashed_in_steps_and_not_encoded(monkeypatch):
    monkeypatch.setattr(conversation_messages, "LONG_ARGUMENTS", 20)
    encoded = []
    monkeypatch.setattr(
        conversation_messages, "_encode", lambda value: encoded.append(value) or json_bytes(value)
    )
    calls = [{"id": "c", "function": {"name": "f", "arguments": "a" * 21}}]
    called = {"role": "assistant", "content": None, "tool_calls": calls}
    assert DigestCache().extend_chain(KEY, b"", called)[0] == digest_of(KEY, called)
    assert called not in encoded


def user(content, **more):
    return {"role": "user", "content": content, **more}


@given(st.lists(message, max_size=6), st.lists(message, max_size=6))
def test_equal_links_mean_equal_histories(a, b):
    same = [canonical(m) for m in a] == [canonical(m) for m in b]
    assert (HashChain(KEY, a).end == HashChain(KEY, b).end) == same


@given(st.lists(message, max_size=6))
def test_a_longer_history_keeps_the_links_of_the_shorter(messages):
    whole = HashChain(KEY, messages)
    for i in range(len(messages)):
        assert HashChain(KEY, messages[: i + 1]).links == whole.links[: i + 1]


def test_system_text_is_left_out_unless_it_seeds_the_chain():
    a, b = (
        [{"role": "system", "content": "x"}, user("hi")],
        [{"role": "developer", "content": "y"}, user("hi")],
    )
    assert HashChain(KEY, a).end == HashChain(KEY, b).end
    assert HashChain(KEY, a, True).end != HashChain(KEY, b, True).end
    assert HashChain(b"o" * 32, a).end != HashChain(KEY, a).end


def test_a_message_is_not_taken_for_one_whose_text_it_quotes():
    named = user("hi", name="Ada")
    quoting = user(json.dumps(named, separators=(",", ":")))
    for pair in ((named, quoting), (quoting, named)):
        seen = DigestCache()
        assert [HashChain(KEY, [m], digests=seen).end for m in pair] == [
            HashChain(KEY, [m]).end for m in pair
        ]


SAME = [
    (user("hello  world\n"), user([{"type": "text", "text": "hello world"}])),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a":1, "b":2}'},
                }
            ],
        },
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "z",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"b": 2,"a": 1}'},
                }
            ],
        },
    ),
    (
        {"role": "assistant", "content": "<think>hm</think>\n\nYes"},
        {"role": "assistant", "content": "Yes", "reasoning_content": "hm"},
    ),
    (
        user([{"type": "image_url", "image_url": {"url": "https://x/a.png?sig=1"}}]),
        user([{"type": "image_url", "image_url": {"url": "https://x/a.png?sig=2"}}]),
    ),
    (
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "tool", "tool_call_id": "b", "content": "3"},
    ),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_messages_that_say_the_same(a, b):
    assert canonical(a) == canonical(b)


OTHER = [
    (user("a"), {"role": "assistant", "content": "a"}),
    (user("a"), user("a", name="bob")),
    (
        user([{"type": "image_url", "image_url": {"url": "data:1"}}]),
        user([{"type": "image_url", "image_url": {"url": "data:2"}}]),
    ),
    (user("a"), user(["a", {"type": "file", "file": {"file_id": "1"}}])),
]


@pytest.mark.parametrize(("a", "b"), OTHER)
def test_messages_that_differ(a, b):
    assert canonical(a) != canonical(b)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
        max_leaves=8,
    )
)
def test_any_json_as_content_has_a_canonical_form(content):
    hash(canonical({"role": "user", "content": content}))
    assert isinstance(text_of({"content": content}), str)
    json.dumps(content)


@given(st.text(st.sampled_from("ab \n\u2003"), max_size=40), st.integers(1, 7))
def test_a_long_text_is_squeezed_as_a_short_one(text, slice_size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory.conversation.messages.SLICE_CHARACTERS", slice_size)
        assert collapse_whitespace(text) == " ".join(text.split())


@given(st.lists(st.sampled_from(["a", " b ", "", "\n", "c d"])))
def test_a_run_of_text_parts_says_what_one_text_says(texts):
    parts = [{"type": "text", "text": t} for t in texts]
    one = canonical({"role": "user", "content": "\n".join(texts)})
    assert canonical({"role": "user", "content": parts}) == one


def test_a_part_between_texts_keeps_them_apart():
    image = {"type": "image_url", "image_url": {"url": "https://h/i"}}
    a, b = ({"type": "text", "text": t} for t in "ab")
    apart, together = ({"role": "user", "content": c} for c in ([a, image, b], [a, b, image]))
    assert canonical(apart) != canonical(together)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"function_call": {"name": "f", "arguments": '{"a": 1}'}},
            {"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": '{ "a":1 }'}}]},
        ),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": "{  broken"}}]},
            {"tool_calls": [{"function": {"name": "f", "arguments": "{ broken"}}]},
        ),
        (
            {"tool_calls": [{"id": "x", "index": 1, "type": "odd", "a": 1}]},
            {"tool_calls": [{"type": "odd", "a": 1}]},
        ),
        ({"refusal": "no"}, {"content": "no"}),
    ],
)
def test_calls_and_refusals_are_the_same_in_any_form(one, other):
    assert canonical({"role": "assistant", **one}) == canonical({"role": "assistant", **other})


def test_calls_without_arguments_and_parts_of_odd_kinds_are_told_apart():
    calls = [{"function": {"name": "f", "arguments": a}} for a in (None, {}, "x")]
    assert len({canonical({"role": "assistant", "tool_calls": [c]}) for c in calls}) == 3
    assert canonical(user([3])) != canonical(user([4]))


def test_a_very_long_image_is_known_by_its_digest():
    def image(text):
        return user(
            [
                {"type": "image_url", "image_url": {"url": f"data:{text}"}},
                {"type": "text", "text": "x"},
            ]
        )

    long = "a" * (LONG_CHARACTERS + 1)
    condensed = condense_media(image(long))
    assert len(str(condensed)) < 1000
    assert canonical(image(long)) == canonical(condensed)
    assert canonical(image(long)) != canonical(image(long + "b"))
    short = image("a")
    assert condense_media(short) is short


def test_reasoning_is_no_part_of_what_was_said():
    thought = {"type": "thinking", "thinking": "hm"}
    assert canonical(user([thought, {"type": "text", "text": "x"}])) == canonical(user("x"))


@given(
    st.text(st.sampled_from([*map(chr, range(33)), "a", "b", "é", "\x85", "\u3000"])),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_white_space_is_collapsed_the_same_whatever_the_text_and_its_length(text, size, short):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "SLICE_CHARACTERS", size)
        patch.setattr(messages, "SHORT_CHARACTERS", short)
        assert messages.collapse_whitespace(text) == " ".join(text.split())


WHITE_SPACE = [c for c in map(chr, range(0x110000)) if c.isspace()]
FRAMES = ("a" * 250, "é" * 250, "中" * 250, "“x” – " * 50, "\u20ac\u2013\u2019" * 90)


@pytest.mark.parametrize("frame", FRAMES)
def test_white_space_of_every_kind_is_one_space_wherever_it_stands(frame):
    for space in WHITE_SPACE:
        for text in (space + frame, frame + space, f"{frame}{space}b", f"{frame} {space}b"):
            assert collapse_whitespace(text) == " ".join(text.split()), hex(ord(space))


@given(st.lists(st.sampled_from([*WHITE_SPACE, *"abé中“€", "\U0001f600"]), min_size=201))
def test_long_texts_are_normalised_as_short_ones_are(characters):
    text = "".join(characters)
    assert collapse_whitespace(text) == " ".join(text.split())


@given(
    st.lists(st.sampled_from([" ", "\n", "a", "é", '"', "\\", "\u2028", "😀", "word "])).map(
        "".join
    ),
    st.sampled_from(["user", "assistant", "system", "developer"]),
)
def test_a_long_text_has_the_digest_of_its_normalised_bytes(text, role):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "SLICE_CHARACTERS", 5)
        message = {"role": role, "content": text}
        assert digest_of(b"k", message) == keyed_hash(b"k", canonical(message))


@pytest.mark.parametrize("more", [{}, {"cache_control": {"type": "ephemeral"}}])
@pytest.mark.parametrize("shift", [0, 1, 65_536])
def test_a_long_image_is_the_same_in_the_forms_of_both_apis(more, shift):
    data = "iVBOR\n" * ((LONG_CHARACTERS + shift) // 6 + 1)
    source = {"type": "base64", "media_type": "image/png", "data": data}
    url = f"data:image/png;base64,{data}"
    chat = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    native = {"role": "user", "content": [{"type": "image", "source": source, **more}]}
    assert digest_of(b"k", native) == digest_of(b"k", chat)
    cached = [DigestCache().extend_chain(b"k", b"", m) for m in (native, chat)]
    assert cached[0] == cached[1]
    assert with_image_addresses(native) == chat
    assert with_image_addresses(chat) == chat
    source["data"] += "A"
    assert digest_of(b"k", native) != digest_of(b"k", chat)
