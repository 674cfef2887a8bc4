"""Passages tell the text again, whatever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.formats.documents.cutting import SIZE, cut_passages, join_lines

LINE = st.builds(
    lambda part, times: part * times,
    st.sampled_from(["word ", "End. ", "x" * 50, "# h", "", " ", "終。", "def f"]),
    st.sampled_from([0, 1, 1, 2, 30, 400]),
)
LINES = st.lists(LINE, min_size=1, max_size=60)


@given(LINES, st.sets(st.integers(2, 60)), st.sets(st.integers(1, 60)))
def test_the_text_is_told_again_from_its_passages(lines, pages, symbols):
    first_lines = [1, *sorted(page for page in pages if page <= len(lines))] if pages else []
    passages = list(cut_passages(lines, first_lines, symbols))
    assert join_lines(passages) == list(enumerate(lines, 1))
    assert all(len(passage.content) <= SIZE for passage in passages)
    for passage in passages:
        page = sum(first <= passage.line_start for first in first_lines)
        assert passage.page == page == sum(first <= passage.line_end for first in first_lines)


def test_a_heading_begins_a_passage():
    lines = ["# One", *["text of some length"] * 15, "# Two", "more"]
    starts = [passage.line_start for passage in cut_passages(lines)]
    assert starts == [1, 17]


def test_a_long_line_is_cut_behind_a_sentence():
    first, second = cut_passages(["This is one sentence. " * 80])
    assert first.content.endswith("sentence. ")
    assert second.content.startswith("This is")
