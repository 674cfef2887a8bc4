"""A tree of messages becomes steps with parents: each message once, whatever the links say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.export_format import ConversationLine, MessageLine, NodeLine
from memory.formats.threads import ForeignMessage, Thread, conversation_lines


def lines_of(*messages, current=None):
    told = [ForeignMessage(*m) for m in messages]
    return conversation_lines(Thread("c", told, current, created=100.0))


def steps(lines):
    """The steps in order: (parent, first, state, what was said)."""
    out = {}
    for line in lines:
        if isinstance(line, NodeLine):
            out[line.id] = (line.parent, line.first, line.state, [])
        elif isinstance(line, MessageLine):
            out[line.node][3].append(line.message["content"])
    return out


def test_a_plain_chat_is_a_row_of_steps():
    lines = lines_of(
        ("a", None, "user", "1"),
        ("b", "a", "assistant", "2"),
        ("c", "b", "user", "3"),
        ("d", "c", "assistant", "4"),
        current="d",
    )
    assert steps(lines) == {
        "1": (None, None, "done", ["1", "2"]),
        "2": ("1", None, "done", ["3", "4"]),
    }
    assert isinstance(lines[0], ConversationLine)
    assert lines[0].head == "2"


def test_another_answer_is_another_choice_and_an_edited_question_another_step():
    lines = lines_of(
        ("a", None, "user", "q"),
        ("b1", "a", "assistant", "first answer"),
        ("b2", "a", "assistant", "second answer"),
        ("c1", "b2", "user", "asked"),
        ("d1", "c1", "assistant", "so"),
        ("c2", "b2", "user", "asked otherwise"),
        ("d2", "c2", "assistant", "otherwise"),
        current="d2",
    )
    assert steps(lines) == {
        "1": (None, None, "done", ["q", "second answer"]),
        "2": ("1", None, "done", ["asked otherwise", "otherwise"]),
        "3": (None, "1", "done", ["first answer"]),
        "4": ("1", None, "done", ["asked", "so"]),
    }
    assert lines[0].head == "2"


def test_what_is_passed_over_leaves_the_rest_joined():
    lines = lines_of(
        ("root", None),
        ("a", "root", "user", "q"),
        ("tool", "a"),
        ("b", "tool", "assistant", "answer"),
        current="b",
    )
    assert steps(lines) == {"1": (None, None, "done", ["q", "answer"])}


def test_questions_without_an_answer_stay_open_and_the_head_is_before_them():
    lines = lines_of(
        ("a", None, "user", "q"),
        ("b", "a", "assistant", "answer"),
        ("c", "b", "user", "and"),
        ("d", "c", "user", "then?"),
        current="d",
    )
    assert steps(lines)["2"] == ("1", None, "open", ["and", "then?"])
    assert lines[0].head == "1"


def test_a_chat_in_which_nothing_was_said_is_none():
    assert lines_of(("root", None), current="root") == []


def test_times_of_the_conversation_are_those_told_else_those_of_its_messages():
    said = [ForeignMessage("a", None, "user", "q", 5.0), ForeignMessage("b", "a", "user", "r", 9.0)]
    head = conversation_lines(Thread("c", said))[0]
    assert (head.created_at, head.updated_at) == (
        "1970-01-01T00:00:05.000Z",
        "1970-01-01T00:00:09.000Z",
    )


links = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"),
        st.none() | st.sampled_from("abcdefghx"),
        st.sampled_from(["user", "assistant", ""]),
    ),
    max_size=12,
    unique_by=lambda m: m[0],
)


@given(links, st.none() | st.sampled_from("abcdefghx"))
def test_however_messages_are_linked_each_is_there_once_and_a_parent_before_its_child(found, now):
    lines = lines_of(*((i, p, r, i) for i, p, r in found), current=now)
    written = [line.message["content"] for line in lines if isinstance(line, MessageLine)]
    assert sorted(written) == sorted(i for i, _, role in found if role)
    met = set()
    for line in lines:
        if isinstance(line, NodeLine):
            assert {line.parent, line.first} <= met | {None}
            met.add(line.id)
    assert not lines or lines[0].head in met | {None}


def test_a_chain_of_many_is_read_in_one_pass():
    count = 50_000
    found = [(str(i), str(i - 1) if i else None, "user", "x") for i in range(count)]
    found += [(f"a{i}", str(i), "assistant", "y") for i in range(count)]
    lines = lines_of(*found, current=f"a{count - 1}")
    assert sum(isinstance(line, MessageLine) for line in lines) == 2 * count
