"""Arguments in pieces: whether they have closed, and what of them is told twice."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.arguments import SCANNED_CHARACTERS, ArgumentsProgress, RepeatedArguments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=3).map(json.dumps)


def pieces_of(text, cuts):
    ends = sorted(c % (len(text) + 1) for c in cuts)
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


CUTS = st.lists(st.integers(0, 999), max_size=5)


@given(OBJECTS, CUTS)
def test_arguments_are_complete_at_their_last_brace_and_not_before(text, cuts):
    progress = ArgumentsProgress()
    so_far = ""
    for piece in pieces_of(text, cuts):
        progress.add(piece)
        so_far += piece
        assert progress.is_complete == progress.copy().is_complete == (so_far == text)
        progress.add(" \n")
    progress.add("}")
    assert progress.is_complete


def test_what_has_only_white_space_has_no_text():
    progress = ArgumentsProgress()
    progress.add(" \n")
    assert (progress.has_text, progress.is_complete) == (False, False)


@pytest.mark.parametrize("text", ["1", '"}"', "nothing", '{"a": "\\', '{"a": "\\"}'])
def test_what_is_no_closed_object_is_not_complete(text):
    progress = ArgumentsProgress()
    progress.add(text)
    assert not progress.is_complete


def test_long_arguments_cost_a_bounded_time():
    progress = ArgumentsProgress()
    begun = time.process_time()
    for _ in range(64):
        progress.add("{" * 65_536 + "}")
        assert isinstance(progress.is_complete, bool)
    assert time.process_time() - begun < 2
    assert SCANNED_CHARACTERS < 64 * 65_536


@given(OBJECTS, CUTS, st.integers(0, 999))
def test_arguments_that_are_told_twice_are_passed_on_once(text, cuts, begins):
    begun = RepeatedArguments(text[: begins % (len(text) + 1)])
    assert "".join([*(begun.add(p) for p in pieces_of(text, cuts)), begun.end()]) == text


@given(OBJECTS, CUTS)
def test_arguments_of_the_beginning_alone_are_passed_on_at_the_end(text, cuts):
    assert RepeatedArguments(text).end() == text


def test_pieces_may_go_on_from_the_beginning():
    begun = RepeatedArguments('{"a": ')
    assert begun.add('"b"') + begun.add("}") + begun.end() == '{"a": "b"}'
    nested = RepeatedArguments('{"a": ')
    assert nested.add("{") == ""
    assert nested.add('"b": 1}}') + nested.end() == '{"a": {"b": 1}}'


def test_whole_arguments_in_another_spelling_are_those_of_the_pieces():
    begun = RepeatedArguments('{"a":1}')
    assert begun.add('{"a"') == ""
    assert begun.add(": 1}") + begun.end() == '{"a": 1}'


def test_a_beginning_that_is_repeated_in_part_ends_whole():
    whole, part = RepeatedArguments('{"a":1}'), RepeatedArguments('{"a":')
    assert whole.add("{") + whole.end() == '{"a":1}'
    assert part.add("{") + part.end() == '{"a":{'
