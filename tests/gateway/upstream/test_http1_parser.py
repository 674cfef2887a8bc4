"""One HTTP/1.1 answer, whatever the pieces it comes in."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.http1_parser import CHUNK_BYTES, HEAD, MalformedResponse, ResponseParser

PLAIN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-One: 1\r\nX-One: 2\r\nContent-Length: 11\r\n"
    b"\r\nhello world"
)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\n"
    b"X-Trailer: t\r\n\r\n"
)
CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello world"
INTERIM = (
    b"HTTP/1.1 100 Continue\r\nX-Not: this\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    + PLAIN
)
LOOSE = b"HTTP/1.1 200 OK\nContent-Length: 11\n\nhello world"
WHOLE = {"plain": PLAIN, "chunked": CHUNKED, "closed": CLOSED, "interim": INTERIM, "loose": LOOSE}


def fed(data: bytes, cuts=(), bodyless=False) -> ResponseParser:
    response = ResponseParser(bodyless)
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        if cut > at:
            response.feed(data[at:cut])
            at = cut
    return response


@given(st.sampled_from(sorted(WHOLE)), st.sets(st.integers(1, 200)))
def test_any_split_gives_the_same_answer(name, cuts):
    data = WHOLE[name]
    response = fed(data, [c for c in cuts if c < len(data)])
    if name == "closed":
        assert not response.is_complete
        response.end("")
    assert (
        response.status,
        response.is_complete,
        response.fault,
        response.take(),
        response.take(),
    ) == (
        200,
        True,
        "",
        b"hello world",
        b"",
    )
    assert response.reusable == (name != "closed")
    if name == "plain":
        assert response.headers == [
            (b"Content-Type", b"text/plain"),
            (b"X-One", b"1"),
            (b"X-One", b"2"),
            (b"Content-Length", b"11"),
        ]
    assert not {b"X-Trailer", b"X-Not", b"Link"} & {k for k, _ in response.headers}


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.randoms(use_true_random=False))
def test_any_body_in_any_chunks_and_any_split_comes_out(chunks, rng):
    data = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks)
        + b"0\r\n\r\n"
    )
    response = fed(data, rng.sample(range(1, len(data)), min(len(data) - 1, rng.randrange(12))))
    assert response.is_complete
    assert response.reusable
    assert response.take() == b"".join(chunks)


@pytest.mark.parametrize(
    ("data", "bodyless"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", False),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_an_answer_without_a_body_is_whole_with_its_headers(data, bodyless):
    for cut in range(1, len(data)):
        response = fed(data, [cut], bodyless)
        assert (response.is_complete, response.reusable, response.take()) == (True, True, b"")


def test_a_head_that_gets_a_body_all_the_same_ends_its_connection():
    response = fed(PLAIN, (), bodyless=True)
    assert (response.is_complete, response.reusable, response.take()) == (True, False, b"")


@pytest.mark.parametrize("after", [PLAIN, b"H", b"garbage"])
def test_bytes_after_the_answer_end_its_connection(after):
    for data in (PLAIN, CHUNKED):
        response = fed(data + after)
        assert (response.is_complete, response.reusable, response.take()) == (
            True,
            False,
            b"hello world",
        )


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nother bytes",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
def test_another_protocol_is_an_answer_without_a_body(data):
    response = fed(data)
    assert (response.status, response.is_complete, response.reusable, response.take()) == (
        101,
        True,
        False,
        b"",
    )


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: 5", b"Transfer-Encoding: chunked", b"transfer-encoding: gzip, chunked"],
)
def test_a_body_that_says_where_it_ends_and_does_not_is_a_fault(head):
    response = fed(
        b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + (b"2\r\nab" if b"chunked" in head else b"ab")
    )
    response.end("")
    assert (response.is_complete, response.fault, response.take()) == (
        False,
        "closed too early",
        b"ab",
    )


@pytest.mark.parametrize("coded", [b"", b"Transfer-Encoding: gzip\r\n"])
def test_a_body_that_does_not_say_ends_with_its_connection_unless_that_breaks(coded):
    for fault in ("", "ConnectionResetError"):
        response = fed(b"HTTP/1.1 200 OK\r\n" + coded + b"\r\nab")
        response.end(fault)
        assert (response.is_complete, response.fault, response.reusable, response.take()) == (
            not fault,
            fault,
            False,
            b"ab",
        )


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n"
        + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 1000) for i in range(70))
        + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"v" * (2 * HEAD + 1),
        b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" * (2 * HEAD // 20),
        CHUNKED[:-2] + b"X: " + b"v" * (4 * HEAD + 1),
    ],
)
def test_headers_and_trailers_have_a_limit_wherever_they_are_split(data):
    # What follows a body counts from the next read on.
    for size in (997, 16384, 2 * HEAD):
        with pytest.raises(MalformedResponse, match="64 KB"):
            fed(data, range(size, len(data), size))


def test_headers_up_to_the_limit_come_whole():
    data = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
        + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 1000) for i in range(60))
        + b"\r\n"
    )
    assert len(fed(data, range(100, len(data), 100)).headers) == 61


def test_a_body_is_handed_over_in_bounded_pieces():
    body = random.Random(1).randbytes(5 * CHUNK_BYTES + 7)
    response = fed(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        range(1000, len(body), 7000),
    )
    pieces = []
    while piece := response.take():
        pieces.append(piece)
    assert b"".join(pieces) == body
    assert [len(p) for p in pieces] == [CHUNK_BYTES] * 5 + [7]


HEADED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def pieces_of(data, size=1 << 14):
    return range(size, len(data), size)


@pytest.mark.parametrize(
    "data",
    [
        HEADED + b"1\r\na\r\n0\r\n" + b"X-T: t\r\n" * 2000 + b"\r\n",
        HEADED + b"1\r\na\r\n0\r\nX-T: " + b"t" * 10_000 + b"\r\n\r\n",
        HEADED + b"1\r\na\r\n0\r\nX-T: " + b"t" * (8 << 20),
        HEADED + b"1;x=" + b"y" * (8 << 20) + b"\r\na\r\n0\r\n\r\n",
        HEADED + (b"1;x=" + b"y" * 1000 + b"\r\na\r\n") * 8000 + b"0\r\n\r\n",
    ],
)
def test_trailers_and_extensions_of_chunks_have_a_limit(data):
    with pytest.raises(MalformedResponse, match="more than"):
        fed(data, pieces_of(data))


def test_many_small_chunks_are_no_flood_of_extensions():
    data = HEADED + b"1\r\na\r\n" * 200_000 + b"0\r\nX-T: t\r\n\r\n"
    response = ResponseParser(False)
    size = 0
    for at in range(0, len(data), 1000):
        response.feed(data[at : at + 1000])
        while part := response.take():
            size += len(part)
    assert (response.is_complete, size) == (True, 200_000)
    assert response.headers == [(b"Transfer-Encoding", b"chunked")]


LENGTHS = [
    (b"Content-Length: 2\r\ncontent-length: 2\r\n", True),
    (b"Content-Length: 2, 2\r\nX: y\r\n", True),
    (b"Content-Length: 2\r\nX: y\r\nContent-Length: 2,2\r\n", True),
    (b"Content-Length: 2\r\nContent-Length: 3\r\n", False),
    (b"Content-Length: 2, 3\r\n", False),
    (b"Content-Length: 2x\r\n", False),
    (b"Content-Length: 2\r\nContent-Length: \r\n", False),
    (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", False),
]


@pytest.mark.parametrize(("lengths", "sound"), LENGTHS)
@given(cuts=st.lists(st.integers(0, 120), max_size=6))
def test_equal_lengths_are_one_and_unequal_ones_a_fault(lengths, sound, cuts):
    data = b"HTTP/1.1 200 OK\r\n" + lengths + b"\r\nhi"
    if sound:
        parser = fed(data, cuts)
        assert (parser.status, parser.take(), parser.is_complete) == (200, b"hi", True)
        assert [v for k, v in parser.headers if k.lower() == b"content-length"] == [b"2"]
    else:
        with pytest.raises(MalformedResponse):
            fed(data, cuts)


def test_a_head_without_an_end_is_not_waited_for():
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n")
    with pytest.raises(MalformedResponse):
        parser.feed(b"x: " + b"y" * (2 * HEAD))
