"""What a model reads of a search is shown to the client as the vendor would show it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.search.search_results import (
    SearchCitations,
    message_blocks,
    read_search,
    searched_again,
)
from gateway.tools.results import HEAD
from gateway.tools.web_search import SearchHit, show_hits

LINES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Zs"]), max_size=30)
HITS = st.builds(
    SearchHit, LINES.filter(bool), st.just("https://e.com/x"), LINES, st.just("2026-01-02")
)


@given(st.lists(HITS, max_size=10))
def test_hits_are_read_back_as_they_are_shown(hits):
    shown = read_search("q", HEAD.format("web_search") + show_hits(hits))
    assert [(h.title, h.url, h.date) for h in shown.hits] == [
        (h.title, h.url, h.date) for h in hits
    ]
    assert [h.text for h in shown.hits] == [h.text for h in hits]
    assert [h.number for h in shown.hits] == list(range(1, len(hits) + 1))


@given(st.text(), st.text())
def test_any_result_is_read(query, text):
    assert read_search(query, text).query == query


def seal(query, hit):
    return f"sealed {hit.number}"


def test_marks_cite_the_newest_hit_of_their_number():
    citations = SearchCitations(seal)
    assert not citations
    for name in ("old", "new"):
        hits = [SearchHit(name, f"https://e.com/{name}", "It rains.")]
        citations.add(read_search("q", HEAD.format("s") + show_hits(hits)))
    text = "So [1], and [2], and [1] again."
    assert [a["title"] for a in citations.cite_response(text)] == ["new", "new"]
    (cited,) = citations.cite_message(text)
    assert (cited["url"], cited["encrypted_index"]) == ("https://e.com/new", "sealed 1")
    block = {"type": "text", "text": "None."}
    assert citations.cite_block(block) is block


def test_what_a_client_sends_back_is_a_call_again_or_left_out():
    hits = [SearchHit("T", "https://e.com/1", "x"), SearchHit("U", "https://e.com/2", "y")]
    search = read_search("rain", HEAD.format("s") + show_hits(hits))
    said = [{"type": "text", "text": "See."}, *message_blocks(search, seal)]
    said.append({"type": "text", "text": "It rains [1].", "citations": [{}]})
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]

    def read(hit):
        return {"query": "rain", "text": hit["encrypted_content"]}

    first, call, result, answer = searched_again(messages, "look_up", read)
    assert first is messages[0]
    assert [b["type"] for b in call["content"]] == ["text", "tool_use"]
    assert call["content"][1]["input"] == {"query": "rain"}
    assert result["content"][0]["content"] == "sealed 1\n\nsealed 2"
    assert answer["content"] == [{"type": "text", "text": "It rains [1]."}]
    _, kept = searched_again(messages, "look_up", lambda hit: None)
    assert [b["type"] for b in kept["content"]] == ["text", "text"]
