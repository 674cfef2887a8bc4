"""A content that comes as texts and as lists of parts adds up to what was sent, in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.merge import merge, plain_text

words = st.text("abc ", min_size=1, max_size=4)
texts = st.builds(lambda text: [{"type": "text", "text": text}], words)
thoughts = st.builds(
    lambda text: [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}], words
)


def words_of(content):
    """Return the words of a content, by kind, in their order."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    told = []
    for part in parts:
        inner = part.get("thinking") or [part]
        told += [(part["type"], piece["text"]) for piece in inner if piece["text"]]
    joined = []
    for kind, text in told:
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined


@given(st.lists(st.one_of(words, texts, thoughts, st.just("")), min_size=1, max_size=8))
def test_no_text_of_a_mixed_content_is_lost(pieces):
    message = {}
    for piece in pieces:
        merge(message, {"content": piece})
    sent = [p if isinstance(p, list) else [{"type": "text", "text": p}] for p in pieces]
    whole = [part for parts in sent for part in parts]
    assert words_of(plain_text(message)["content"]) == words_of(whole)


@given(st.lists(texts, min_size=1, max_size=8))
def test_pieces_of_one_text_are_one_part(pieces):
    message = {}
    for piece in pieces:
        merge(message, {"content": piece})
    whole = "".join(piece[0]["text"] for piece in pieces)
    assert plain_text(message)["content"] == [{"type": "text", "text": whole}]
