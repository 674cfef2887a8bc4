"""A thread pauses between the steps of long work if its owner says so, and nowhere else."""

import re
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json_weight import is_readable
from gateway.wire.long_strings import read_in_steps
from memory.conversation import steps
from memory.conversation.harness import Harness
from memory.conversation.json_spans import array_elements
from memory.conversation.json_strings import count_in_steps, find_string_end, holds
from memory.conversation.long_json import encode_in_parts
from memory.conversation.messages import condense_media
from memory.conversation.steps import (
    end_step,
    find_in_steps,
    holds_text,
    pausing_with,
    search_in_steps,
)
from memory.conversation.thoughts import without_thoughts
from memory.core.screen import Screen

MIB = 1 << 20
LONG = "x" * (16 * MIB)
TEXT = b'{"messages":[{"role":"user","content":"%b"}]}' % LONG.encode()
WORKS = {
    "count": lambda: count_in_steps(TEXT, b"{"),
    "search": lambda: holds(TEXT, b"nowhere"),
    "end of a string": lambda: find_string_end(TEXT, TEXT.index(b"x")),
    "weight": lambda: is_readable(TEXT.replace(b"x", b",")),
    "decode": lambda: read_in_steps(TEXT, msgspec.json.decode),
    "decode escapes": lambda: read_in_steps(TEXT.replace(b"xx", b"\\n"), msgspec.json.decode),
    "elements": lambda: array_elements(TEXT, len(b'{"messages":[')),
    "encode": lambda: encode_in_parts({"content": LONG}),
    "digest": lambda: condense_media(
        {"content": [{"type": "image_url", "image_url": {"url": LONG}}]}
    ),
    "thoughts": lambda: without_thoughts(LONG),
    "thoughts that begin": lambda: without_thoughts("<|" + LONG[: MIB // 4]),
    "a character of a tag": lambda: Harness().own_part("<" * (4 * MIB)),
    "elements of a program": lambda: Harness().own_part(
        "\n<" * (MIB // 4) + "</system-reminder> and"
    ),
    "secrets": lambda: Screen().mask(LONG[: 4 * MIB]),
}


@pytest.mark.parametrize("name", WORKS)
def test_long_work_pauses_between_short_steps(name):
    pauses = []
    with pausing_with(lambda: pauses.append(name)):
        WORKS[name]()
    assert len(pauses) >= 4, "a step covers at most a quarter of the text"


def test_only_the_thread_whose_owner_asked_pauses():
    pauses = []
    with pausing_with(lambda: pauses.append(threading.get_ident())):
        beside = threading.Thread(target=end_step)
        beside.start()
        beside.join()
        assert pauses == []
        end_step()
    end_step()
    assert pauses == [threading.get_ident()]


def test_what_was_asked_before_counts_again_afterwards():
    pauses = []
    with pausing_with(lambda: pauses.append("outer")):
        with pytest.raises(ZeroDivisionError), pausing_with(lambda: pauses.append("inner")):
            end_step()
            1 / 0  # noqa: B018
        end_step()
    assert pauses == ["inner", "outer"]


@given(st.text("ab<\n", max_size=60), st.integers(0, 60), st.sampled_from(["<", "a<", "b\n"]))
def test_a_text_is_searched_in_steps_as_in_one(text, start, fragment):
    pattern = re.compile("(?m)^a{0,3}<|b{2,3}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "SEARCHED_CHARACTERS", 5)
        patch.setattr(steps, "MATCHED_CHARACTERS", 5)
        match, whole = search_in_steps(pattern, text, start, 4), pattern.search(text, start)
        assert (match and match.span()) == (whole and whole.span())
        spans = [match.span() for match in find_in_steps(pattern, text, 4)]
        assert spans == [match.span() for match in pattern.finditer(text)]
        assert holds_text(text, fragment) == (fragment in text)
