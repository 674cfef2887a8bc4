"""What a task is like, over templates and over people."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory.conversation.history import Messages
from memory.conversation.matching import RequestHistory
from memory.conversation.openings import (
    COLUMNS,
    COMPARED_OPENINGS,
    TASK_OPENINGS,
    Opening,
    _normalise,
    opening_of,
    similar,
)

KEY = b"k" * 16
# Narrow characters that normalise to themselves, and no white space or digits.
LETTERS = st.characters(categories=["Ll"], max_codepoint=0x17F).filter(
    lambda c: c.casefold() == c and c.isalpha()
)
WORDS = st.text(LETTERS, min_size=COLUMNS, max_size=3 * COLUMNS)
SPACE = st.sampled_from([" ", "\n", "\t ", " \r\n", "\u00a0"])
REVIEW = "the review says that it is fine"


def opened(*messages, system="", key=KEY):
    said = [{"role": "system", "content": system}] if system else []
    said += [m if isinstance(m, dict) else {"role": "user", "content": m} for m in messages]
    return opening_of(RequestHistory.of(key, Messages.of(said)))


def alike(newest, *earlier):
    return len(similar(newest, earlier))


@given(WORDS, st.lists(st.text(max_size=200), min_size=4, max_size=4, unique=True), SPACE)
def test_a_template_in_front_is_known_whatever_follows(template, texts, space):
    first, *others = (opened(f"{template}{space}{text}") for text in texts)
    assert all(first.is_like(opening) for opening in others)


@given(WORDS, st.lists(st.text(max_size=200), min_size=4, max_size=4, unique=True), SPACE)
def test_a_template_behind_is_known_whatever_precedes(template, texts, space):
    first, *others = (opened(f"{text}{space}{template}") for text in texts)
    assert all(first.is_like(opening) for opening in others)


@given(
    WORDS, st.integers(0, 10**9), st.integers(0, 10**9), st.text(max_size=50), st.text(max_size=50)
)
def test_space_case_width_and_numbers_make_no_other_template(words, a, b, one, two):
    """As programs fill them in: "Review 17: ...", with whatever line ends."""
    first = opened(f"  Review {a}:\n{words} {one}")
    assert first.is_like(opened(f"REVIEW\t{b}: {words.title()}  {two}"))


@given(WORDS, st.lists(st.uuids(), min_size=2, max_size=2), st.text(max_size=50))
def test_an_id_of_a_request_makes_no_other_template(template, idents, text):
    """As programs fill it in: "Request 4f0c...: classify ...", in any spelling."""
    assume(all(sum(map(str.isdigit, str(ident)[:8])) > 2 for ident in idents))
    for name in (str, lambda ident: ident.hex.upper(), lambda ident: f"req_{str(ident)[:8]}"):
        one, two = (
            opened(f"[{name(ident)}] {template} {text}{i}") for i, ident in enumerate(idents)
        )
        assert one.is_like(two)


def test_a_word_with_no_number_in_it_is_no_id():
    """Nor is a sentence of a language without spaces."""
    words = "antidisestablishment", "incomprehensibilities", "お客様の評価は2025年に三つ星でした"
    assert len({_normalise(word) for word in words}) == len(words)
    assert _normalise(words[2]).startswith("お客様")


def test_every_letter_is_the_same_in_each_of_its_cases():
    """Also where cases do not answer each other: a dotless i has a capital I."""
    for letter in map(chr, range(0x110000)):
        if letter.isalpha() and letter.upper() != letter.lower():
            cases = {letter, letter.upper(), letter.lower(), letter.casefold()}
            assert len({_normalise(case) for case in cases}) == 1, letter


@given(st.text(max_size=300), st.text(max_size=300))
def test_what_neither_begins_nor_ends_alike_is_not_alike(one, two):
    first, second = opened(f"a {one} a"), opened(f"b {two} b")
    assert not first.is_like(second)


@given(st.text(LETTERS, max_size=COLUMNS - 1))
def test_a_short_message_is_like_no_other(words):
    # Of a ligature several letters are left: what is compared counts.
    assume(len(_normalise(words)) < COLUMNS)
    first = opened(words, system="a")
    assert not first.has_edges
    assert not first.is_like(opened(words, system="b"))


@pytest.mark.parametrize(
    "text",
    [
        "请将以下用户评论的情感分类为正面、负面或中性：",
        "次のレビューの感情を分類してください：答え",
    ],
)
def test_characters_of_double_width_count_twice(text):
    assert len(text) < COLUMNS
    assert opened(text + "很好").is_like(opened(text + "不好"))


@given(st.binary(min_size=24, max_size=24))
def test_what_is_packed_is_unpacked(packed):
    assert Opening.unpack(packed).pack() == packed


def test_nothing_is_an_opening_that_continues_or_says_nothing():
    answer = {"role": "assistant", "content": "positive"}
    assert opened("a", answer, "b") is None
    assert opened(answer) is None
    assert opened(system="You are a poet.") is None


def test_the_newest_user_message_counts_and_its_parts_are_one_text():
    template = "Classify the sentiment of this review, please: "
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": template}, image, {"type": "text", "text": REVIEW}]
    plain = opened(template + "another one altogether")
    assert opened("context of some kind", {"role": "user", "content": parts}).is_like(plain)


def test_the_same_prompt_again_counts_once_and_under_another_system_text_anew():
    template = "Summarise the document of the system message in one sentence."
    again = [opened(template, system="one")] * 9
    assert alike(again[0], *again) == 0
    assert alike(opened(template, system="two"), *again) == 1
    others = [opened(template, system=str(i)) for i in range(3)]
    assert alike(opened(template, system="new"), *others) == TASK_OPENINGS


def test_only_the_last_requests_are_compared():
    template = "Classify the sentiment of this review, please: "
    newest = opened(template + "the newest")
    tasks = [opened(template + str(i) + "x") for i in range(3)]
    talks = [opened(f"{chr(97 + i) * 50} {chr(110 + i) * 50}") for i in range(COMPARED_OPENINGS)]
    assert alike(newest, *talks[:5], *tasks) == TASK_OPENINGS
    assert alike(newest, *talks[:6], *tasks) == TASK_OPENINGS - 1
    # A repetition takes no place among the last ones.
    assert alike(newest, *[talks[0]] * 20, *talks[:5], *tasks) == TASK_OPENINGS


def test_scopes_do_not_share_digests():
    template = "Classify the sentiment of this review, please: "
    assert not opened(template + "a").is_like(opened(template + "b", key=b"o" * 16))


HARNESSES = (
    "<system-reminder>\nToday is Tuesday.\n</system-reminder>",
    "<environment_context>/home/ada</environment_context>",
)


@pytest.mark.parametrize("block", HARNESSES)
@pytest.mark.parametrize("question", ["Why is the sky blue, and not violet, as physics says?"])
def test_the_blocks_of_a_harness_are_not_what_was_said(block, question):
    long = block.replace("Tuesday", "Tuesday " * 20).replace("ada", "ada" * 20)
    one = opened(f"{long}\n{long}\n{question}\n{long}{long}")
    assert not one.is_like(opened(f"{long}\nHow old can a tortoise of the Galapagos get?\n{long}"))
    assert one.is_like(opened(question + " Tell me."))
    broken = block[: len(block) // 2]
    assert opened(broken + question).has_edges
    assert opened(question + block.partition("\n")[2] + block.rpartition(">")[0]).has_edges
    assert opened(question + "</system-reminder>").has_edges


@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder></system-reminder>" * 60_000,
        "</system-reminder>" * 100_000,
        "<system-reminder>" * 100_000,
        " " * 2_000_000,
        "\ufdfa" * 500_000,
        "1" * 2_000_000,
    ],
    ids=["blocks", "ends", "beginnings", "space", "ligatures", "digits"],
)
def test_no_message_takes_long(text):
    history = RequestHistory.of(KEY, Messages.of([{"role": "user", "content": text}]))
    took = []
    for _ in itertools.repeat(None, 3):
        began = time.thread_time()
        opening_of(history)
        took.append(time.thread_time() - began)
    assert min(took) < 0.25


@given(WORDS, st.lists(st.text(max_size=200), min_size=3, max_size=3, unique=True), st.booleans())
def test_a_template_in_a_message_of_its_own_is_known(template, texts, data_first):
    openings = [opened(*((t, template) if data_first else (template, t))) for t in texts]
    assert all(openings[0].is_like(opening) for opening in openings[1:])


@given(WORDS, st.text("\ufeff\u200b\u200d\u2060\u00ad", max_size=5), st.integers(0, COLUMNS - 1))
def test_marks_that_nobody_sees_make_no_other_template(template, marks, place):
    marked = template[:place] + marks + template[place:]
    assert opened(f"{marked} {REVIEW}").begin == opened(f"{template} and more").begin
