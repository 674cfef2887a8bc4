"""How messages begin, kept from request to request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import beginnings
from memory.conversation.beginnings import MessageBeginnings, shown_beginning
from memory.conversation.history import PrefixInfo
from memory.conversation.thoughts import spoken_text

TEXTS = st.sampled_from(["", "tea", " tea\n\n cake ", "<think>no</think>tea", "grün", "x" * 1200])
MESSAGES = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant", "tool"]),
        TEXTS,
    ),
    min_size=1,
    max_size=8,
)


@given(MESSAGES, st.data())
def test_what_is_kept_tells_what_the_messages_tell(messages, data):
    read_to = data.draw(st.integers(0, len(messages)))
    start = data.draw(st.integers(0, read_to))
    stays = sorted(data.draw(st.sets(st.integers(0, max(start - 1, 0))))) if start else []
    prefix = PrefixInfo().extend(messages[:read_to])
    prefix.beginnings = MessageBeginnings.read(
        start, messages[start:read_to], {i: messages[i] for i in stays}
    )

    kept = prefix.extend(messages[read_to:]).beginnings
    cut = data.draw(st.integers(start, len(messages)))
    sent = kept.select(cut, stays)

    shown = {
        shown_beginning(spoken_text(messages[i])) for i in [*stays, *range(cut, len(messages))]
    }
    for text in ["", "tea", "tea cake", "grün", "x" * 1000, "cake"]:
        assert (text in sent) == (text in shown)


def test_what_was_not_read_is_not_known():
    kept = MessageBeginnings.read(2, [{"role": "user", "content": "tea"}], {})

    assert kept.select(1, []) is None
    assert kept.select(2, [0]) is None
    assert kept.select(3, [2]) is not None


def test_a_history_of_very_many_messages_is_read_each_time(monkeypatch):
    monkeypatch.setattr(beginnings, "MAX_KEPT_MESSAGES", 1)
    kept = MessageBeginnings.read(0, [{"role": "user", "content": "tea"}], {})

    assert kept.extend([{"role": "user", "content": "cake"}]) is None
