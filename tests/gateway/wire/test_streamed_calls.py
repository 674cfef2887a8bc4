"""The rule by which the deltas of streamed calls are told apart, case by case."""

from __future__ import annotations

import pytest

from gateway.wire.chat import fold
from gateway.wire.streamed_calls import (
    NAME,
    CallPiece,
    StreamedCalls,
    read_ident,
    read_index,
    read_piece,
)


def delta(index=0, name=None, text=None, ident=None, **more):
    function = {k: v for k, v in (("name", name), ("arguments", text)) if v is not None}
    where = {} if index is None else {"index": index}
    return {**where, **({"id": ident} if ident is not None else {}), "function": function, **more}


def places(*deltas):
    """Where each delta goes: the places of its call, or of the call whose tail it is."""
    calls = StreamedCalls()
    routed = [calls.route(d) for d in deltas]
    assert [c.place for c in calls.calls] == list(range(len(calls.calls)))
    return [call.root.place for call in routed]


WHOLE = '{"a": 1}'
CASES = {
    "a delta without a name goes on with the newest of its index whatever its id": (
        [delta(0, "f", "{", "a"), delta(0, None, "}", "b"), delta(0, None, "", "")],
        [0, 0, 0],
    ),
    "a name where the call is complete begins another": (
        [delta(0, "f", WHOLE), delta(0, "f", "{"), delta(0, None, "}")],
        [0, 1, 1],
    ),
    "the same without arguments, another name": (
        [delta(0, "f", WHOLE), delta(0, "g", ""), delta(0, None, "{}")],
        [0, 1, 1],
    ),
    "a repeated name goes on": (
        [delta(0, "f", "{"), delta(0, "f", "}"), delta(0, "f", "")],
        [0, 0, 0],
    ),
    "a repeated name, and then the arguments of another call": (
        [delta(0, "f", "{}"), delta(0, "f", ""), delta(0, None, WHOLE)],
        [0, 1, 1],
    ),
    "a repeated name and id after the arguments": (
        [delta(0, "f", "{}", "a"), delta(0, "f", "", "a")],
        [0, 0],
    ),
    "pieces of a name": (
        [delta(0, "get_"), delta(0, "weather"), delta(0, None, "{")],
        [0, 0, 0],
    ),
    "two names with two ids": ([delta(0, "f", "", "a"), delta(0, "g", "", "b")], [0, 1]),
    "another name after arguments have begun": ([delta(0, "f", "{"), delta(0, "g", "{")], [0, 1]),
    "a name that comes late": (
        [delta(0, None, WHOLE, "a"), delta(0, "f"), delta(0, None, "{"), delta(0, "g", "}")],
        [0, 0, 1, 1],
    ),
    "an id alone begins a call whose name comes late": (
        [delta(0, "f", WHOLE, "a"), {"index": 0, "id": "b"}, delta(0, "g", "{}")],
        [0, 1, 1],
    ),
    "an id alone that no name follows": (
        [delta(0, "f", WHOLE, "a"), {"index": 0, "id": "b"}, delta(0, "g", "{}", "c")],
        [0, 0, 1 + 1],
    ),
    "what nobody names is the tail of the call before": (
        [delta(0, "f", WHOLE), delta(0, None, WHOLE), delta(0, None, "x")],
        [0, 0, 0],
    ),
    "a tail that is whole, and then a call": (
        [delta(0, "f", WHOLE), delta(0, None, WHOLE), delta(0, "g", "{}")],
        [0, 0, 2],
    ),
    "no index goes on with the last call": (
        [delta(0, "f", "{"), delta(None, None, "}"), delta(None, "g", "{"), delta(None, None, "}")],
        [0, 0, 1, 1],
    ),
    "no index, but the id of an open call": (
        [delta(None, "f", "{", "a"), delta(None, "g", "{", "b"), delta(None, None, "}", "a")],
        [0, 1, 0],
    ),
    "the id of a call that is complete leads nowhere": (
        [delta(0, "f", WHOLE, "a"), delta(0, "g", "{", "b"), delta(0, None, "}", "a")],
        [0, 1, 1],
    ),
    "a custom call has no end of its own": (
        [
            {"index": 0, "id": "a", "custom": {"name": "f", "input": "{}"}},
            {"index": 0, "custom": {"input": "{}"}},
            {"index": 0, "id": "b", "custom": {"name": "f", "input": "x"}},
        ],
        [0, 0, 1],
    ),
    "two indexes are two calls": (
        [delta(0, "f"), delta(1, "f"), delta(0, None, "{"), delta(1, None, "{")],
        [0, 1, 0, 1],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_deltas_find_their_call(case):
    deltas, expected = CASES[case]
    assert places(*deltas) == expected


@pytest.mark.parametrize("case", CASES)
def test_a_copy_goes_on_as_the_original_does(case):
    deltas, _ = CASES[case]
    for cut in range(len(deltas)):
        one = StreamedCalls()
        for d in deltas[:cut]:
            one.route(d)
        other = one.copy()
        assert [one.route(d).root.place for d in deltas[cut:]] == [
            other.route(d).root.place for d in deltas[cut:]
        ]


def test_ids_are_texts_and_blank_ones_are_none():
    assert [read_ident(x) for x in (7, "a", "", "  ", None, True, {})] == ["7", "a", *[""] * 5]


def test_a_piece_is_read_whatever_it_is():
    assert read_piece({"index": True, "function": 7}) == CallPiece(None, "", "", None, False)
    assert read_piece({"function": {"name": 7, "arguments": {"a": 1}}}).text == '{"a":1}'


def test_a_name_without_end_is_cut():
    calls = StreamedCalls()
    for _ in range(50):
        calls.route(delta(0, "x" * 100))
        calls.route(delta(0, "y" * 100))
    assert len(calls.calls[0].name) < NAME + 200


def test_the_fold_keeps_the_first_id_and_puts_a_tail_back():
    deltas = [delta(0, "f", WHOLE, "a"), delta(0, None, "", "b"), delta(0, None, "{}", "c")]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [d]}}]} for d in deltas]
    (call,) = fold(chunks)["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "a", "function": {"name": "f", "arguments": WHOLE + "{}"}}


@pytest.mark.parametrize(
    ("sent", "index"),
    [
        (3, 3),
        ("3", 3),
        (3.0, 3),
        ("0", 0),
        *((other, None) for other in (None, "", "a", "-", 1.5, [], {}, True, "1" * 5000)),
        (float("inf"), None),
        (-1, -1),
    ],
)
def test_an_index_is_a_number_however_it_is_spelt(sent, index):
    assert read_index(sent) == index
    assert type(read_index(sent)) is type(index)
