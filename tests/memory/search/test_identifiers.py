"""Identifiers are found whole and in parts, whichever way they were written and are asked for."""

from __future__ import annotations

import base64
import hashlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search import identifiers
from memory.search.identifiers import identifier_words
from memory.search.lexicon import ENGLISH_ALONE, guess_languages
from memory.search.query import index_text, terms


def indexed(text):
    return {w.removeprefix("s1x").lower() for w in index_text(1, text).split()}


@pytest.mark.parametrize(
    "written", ["getUserById", "get_user_by_id", "get-user-by-id", "GetUserByID"]
)
@pytest.mark.parametrize(
    "asked", ["getUserById", "get_user_by_id", "get user", "GETUSERBYID", "userby"]
)
def test_an_identifier_is_found_however_it_is_written(written, asked):
    found = indexed(f"Please call {written}() first.")
    assert bool(found & set(terms(asked))) is (asked != "userby")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserById", {"get", "user", "by", "id"}),
        ("HTTPServerError", {"http", "server", "error"}),
        ("Base64Encoder", {"base64", "encoder"}),
        ("snake_case_name", {"snakecasename"}),
        ("kebab-case", {"kebabcase"}),
        ("src/components/UserProfile.tsx", {"srccomponentsuserprofiletsx", "user", "profile"}),
        ("src/user_card.py", {"srcusercardpy", "usercard"}),
        ("memory.search.index_text", {"memorysearchindextext", "indextext"}),
        ("lib\\user_card", {"libusercard", "usercard"}),
        ("std::vector", {"stdvector"}),
        ("obj->fieldName", {"objfieldname", "field", "name"}),
        ("用户getUserById函数", {"get", "user", "by", "id"}),
        ("2023-05-08", set()),
        ("Plain words, e.g. these. And I.", {"eg"}),
        ("größeTest", set()),
        ("", set()),
    ],
)
def test_the_words_of_identifiers(text, words):
    assert indexed(text) >= words
    assert set(identifier_words(text.replace("用户", " ").replace("函数", " "))) == words


def test_a_query_is_not_narrowed_to_a_compound_of_prose():
    assert terms("dairy-free and/or lactose-free") == ("dairy", "free", "lactose")
    # For who asks for dairyfree.
    assert "dairyfree" in indexed("dairy-free")


def test_data_is_no_identifier():
    noise = base64.b64encode(b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(40)))
    found = set(identifier_words(noise.decode()))
    # Of 1,700 characters, which have 300 humps.
    assert len(found) < 70
    assert set(identifier_words("a" * 101 + "_b")) == set()


@given(st.text(max_size=80) | st.text("aA0_-./:\\>", max_size=80))
def test_what_was_indexed_before_still_is(text):
    assert all(word.isalnum() for word in identifier_words(text))
    plain = {
        w.lower() for w in "".join(c if c.isalnum() else " " for c in text).split() if w.isascii()
    }
    # A word of another language, such as Turkish "size", is stored as its stem.
    is_english = guess_languages(plain) in ((), ENGLISH_ALONE)
    assert plain <= indexed(text) | {""} or not (text.isascii() and is_english)


@pytest.mark.parametrize("unit", ["a", "a-", "aA", "a::", "->", "_", "A", "aB_", "a.b/"])
def test_hostile_text_costs_little(unit):
    text, began = unit * (200_000 // len(unit)), time.process_time()
    assert sum(1 for _ in identifier_words(text)) < 5
    # A pattern that goes back would take minutes.
    assert time.process_time() - began < 1


@given(st.text(alphabet="abXY1 .", max_size=30))
def test_capitals_inside_of_words_are_found_wherever_they_stand(text):
    has_hump = identifiers.HAS_HUMP.search(text) is not None
    assert has_hump == bool(identifiers.HUMP.search(text))
