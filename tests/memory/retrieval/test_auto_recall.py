"""Automatic recall: only what covers the message comes in, once, and nothing for small talk."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.context.tokens import TokenCounter
from memory.conversation.beginnings import SentBeginnings
from memory.core.blocks import escape
from memory.retrieval.auto_recall import (
    HEADING,
    AlreadyThere,
    BodyBeginnings,
    ShownAs,
    recall_query,
    render_recall,
    token_budget,
)
from memory.retrieval.gate import MIN_COVERAGE, pass_gate
from tests.bench import cues


def hit(content, key=1, *, score=1.0, coverage=1.0, **more):
    found = {"content": content, "created_at": 0.0, "key": key, "score": score}
    return {**found, "coverage": coverage, "why": {}, **more}


def shown(hits, room=600, **there):
    return render_recall(hits, AlreadyThere(**there), ShownAs("t"), TokenCounter(), room)


def test_what_the_request_holds_is_known_again_by_its_beginning():
    long = "tea  is\n good " * 1_000_000
    present = SentBeginnings.read(
        [
            {"role": "user", "content": long},
            {"role": "user", "content": [{"type": "text", "text": "green tea"}]},
        ]
    )
    there = {"beginnings": present}
    assert shown([hit(" ".join(long.split())), hit("green   tea")], **there).text == ""
    found = shown([hit("black tea"), hit("black tea", 2), hit("green tea")], **there).text
    assert found.count("black tea") == 1
    assert "green tea" not in found


def test_an_item_comes_once_in_a_conversation_and_not_if_core_memory_has_it():
    hits = [hit("The dog is Rex", 1), hit("The cat is <Tom>", 2), hit("The boat is old", 3)]
    found = shown(hits, keys={1}, core="... The cat is &lt;Tom&gt; ...")
    assert ("Rex" in found.text, "Tom" in found.text, "boat" in found.text) == (False, False, True)
    assert (found.keys, found.passages) == ([3], [3])


def test_five_items_come_in_at_most_and_only_within_the_budget():
    hits = [hit(f"fact number {i}", i) for i in range(1, 9)]
    assert shown(hits).keys == [1, 2, 3, 4, 5]
    assert len(shown(hits, room=30).keys) < 5
    assert (token_budget(None), token_budget(128_000), token_budget(4000)) == (600, 600, 200)


def test_an_earlier_message_that_tells_what_was_corrected_is_left_out():
    old = "The user's address is 12 Elm Street"
    said = [
        hit("my address is 12 elm street", 1, role="user"),
        hit("So your address is 12 Elm Street!", 2, role="assistant"),
        hit("my office is at 12 Oak Street", 3, role="user"),
    ]
    assert shown(said, outdated=[old]).keys == [3]


def test_an_earlier_question_answers_nothing():
    assert shown([hit("What is my dog called?", 1, role="user")]).text == ""
    assert shown([hit("My dog is called Rex.", 1, role="user")]).keys == [1]


def test_the_gate_looks_at_the_best_and_then_at_each():
    assert pass_gate([hit("a", coverage=MIN_COVERAGE - 0.01), hit("b", coverage=0.0)]) == []
    best, near, far = hit("a", coverage=0.0), hit("b", coverage=0.9, score=0.6), hit("c", score=0.4)
    assert pass_gate([best, near, far]) == [best, near]
    alike = hit("d", coverage=0.0, why={"similarity": 0.7})
    assert pass_gate([alike, hit("e", coverage=0.0)]) == [alike]
    assert pass_gate([]) == []


@pytest.mark.parametrize(
    ("message", "query"),
    [
        ("Thanks a lot! What is my dog called?", "What is my dog called?"),
        ("good morning", None),
        ("```\nprint(1)\n```", None),
        ("Hola. ¿Dónde vivo?", "¿Dónde vivo?"),
    ],
)
def test_small_talk_and_pasted_text_are_not_searched_for(message, query):
    found = recall_query(message)
    assert (found and found.text) == query


def test_an_item_never_quotes_a_span_of_ours_that_a_model_repeated():
    item = "- (2026-01-02, user) I was born in Porto"
    repeated = f'<recalled_memory tag="t">\n{HEADING}\n{item}\n</recalled_memory>'
    said = [
        f"You were born by the sea. {repeated}",
        repeated.replace(' tag="t"', "") + "\n\nThe tram is old.",
        f"> {HEADING}\n{item}\nPort wine is sweet.",
        f"The river is wide. {repeated[:60]}",
        f"The bridge is high. {escape(repeated)}",
        repeated,
    ]
    hits = [hit(text, i, role="assistant") for i, text in enumerate(said, 1)]
    text = shown(hits, room=10_000).text
    assert "Porto" not in text
    assert text.count(HEADING) == 1
    assert text.count("recalled_memory") == 2
    for words in ("by the sea", "tram is old", "wine is sweet", "river is wide", "bridge is high"):
        assert words in text
    assert shown([hit(repeated, 1, role="user")]).text == ""


WORDS = st.lists(st.sampled_from(["tea", "Tea", "with", "milk,", "café", '"no"', "\\", "a1"]))


@given(st.lists(WORDS, max_size=4), WORDS, st.sampled_from([" ", "  ", "\n"]), st.booleans())
def test_a_body_is_decoded_only_where_it_may_begin_so(said, shown, space, escaped):
    messages = [{"role": "user", "content": space.join(words)} for words in said]
    body = json.dumps({"messages": messages}, ensure_ascii=escaped).encode()
    decoded = []

    def load():
        decoded.append(messages)
        return messages

    text = " ".join(shown)
    assert (text in BodyBeginnings(body, load)) == (text in SentBeginnings.read(messages))
    if "a1 " in text and "a1" not in body.decode() and b"\\u00" not in body:
        assert not decoded


@pytest.mark.parametrize("people", [cues.FIRST_SET, cues.MORE], ids=["first", "more"])
async def test_a_task_that_says_a_word_of_a_fact_brings_it_and_unrelated_lines_bring_nothing(
    people,
):
    """In ten languages, by words alone; see `tests.bench.cues`."""
    asked = await cues.play(played=people)
    for language in people.people:
        lines = [x for x in asked if x.language == language]
        assert cues.share([x for x in lines if x.kind == "word"]) >= 0.8, language
    for kind in ("word", "stem", "direct"):
        assert cues.share([x for x in asked if x.kind == kind]) >= cues.TARGETS[kind]
    assert cues.share([x for x in asked if x.kind == "unrelated"]) <= cues.TARGETS["unrelated"]


async def test_a_question_about_oneself_in_other_words_brings_the_fact_by_its_kind():
    """In ten languages; half of the questions have no word of the fact."""
    asked = await cues.play(played=cues.ASKED)
    for language in cues.ASKED.people:
        direct = [x for x in asked if x.language == language and x.kind == "direct"]
        assert cues.share(direct) >= 0.8, language
    assert cues.share([x for x in asked if x.kind == "direct"]) >= 0.93
    assert cues.share([x for x in asked if x.kind == "unrelated"]) <= cues.TARGETS["unrelated"]
