"""Laws of the SSE framer: the same events whatever the pieces, and not one byte lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import sse
from gateway.wire.sse import EventTooLarge, SseEvent, SseFramer, StreamTranslator, frame

LINES = st.sampled_from(
    [
        b"data: {}",
        b"data:x",
        b"data: \xe2\x80\xa8 \xc2\x85 \x0b",
        b": note",
        b"event: ping",
        b"id: 7",
        b"retry: 1",
        b"",
        b"data",
        b"data: [DONE]",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def streams(draw):
    text = b"".join(line + end for line, end in draw(st.lists(st.tuples(LINES, ENDS), max_size=12)))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text


def events(data: bytes, cuts: list[int]) -> tuple[list[SseEvent], bytes]:
    framer, out, at = SseFramer(), [], 0
    for cut in [*sorted(c % (len(data) + 1) for c in cuts), len(data)]:
        out += framer.feed(data[at:cut])
        at = cut
    return out, framer.rest


@pytest.mark.parametrize("long_bytes", [sse.LONG_BYTES, 2])
@given(data=streams(), cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_any_split_gives_the_same_events(long_bytes, data, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "LONG_BYTES", long_bytes)
        check_split(data, cuts)


def check_split(data, cuts):
    def told(found):
        return [(e.data, e.name) for e in found if e.data is not None]

    whole, _ = events(data, [])
    split, _ = events(data, cuts)
    byte_at_a_time, _ = events(data, list(range(len(data))))
    assert told(whole) == told(split) == told(byte_at_a_time)


@given(streams(), st.lists(st.integers(0, 10_000), max_size=6))
def test_raw_bytes_and_rest_are_the_stream(data, cuts):
    found, rest = events(data, cuts)
    assert b"".join(e.event_bytes for e in found) + rest == data


def test_every_split_point_of_every_line_end():
    for end in (b"\n", b"\r\n", b"\r"):
        data = (b"data: a" + end + b"data: b" + end + end) * 2 + b": c" + end + end
        for cut in range(len(data) + 1):
            found, _ = events(data, [cut])
            assert [e.data for e in found if e.data is not None] == [b"a\nb", b"a\nb"], (end, cut)


def test_an_event_leaves_with_its_last_byte():
    for end in (b"\n", b"\r"):
        assert [e.data for e in SseFramer().feed(b"data: x" + end * 2)] == [b"x"]


def test_line_separators_of_unicode_are_text():
    assert (
        SseFramer().feed("data: a\u2028b\u0085c\n\n".encode())[0].data == "a\u2028b\u0085c".encode()
    )


def test_a_last_event_without_its_blank_line_is_found_at_the_end():
    framer = SseFramer()
    assert framer.feed(b"data: [DONE]\n") == []
    assert framer.close().data == b"[DONE]"
    assert framer.close() is None


def test_frame_is_one_line_and_a_blank_one():
    assert SseFramer().feed(frame(b'{"a":1}'))[0].data == b'{"a":1}'


def test_the_end_of_a_line_changes_nothing_of_an_event():
    found = []
    for end in (b"\n", b"\r\n", b"\r"):
        framer = SseFramer()
        events = framer.feed(end.join((b"event: a", b"data: 1", b"data:2", b"id: 3", b"", b"")))
        found.append((events[0].data, events[0].name, framer.ids))
    assert found == [(b"1\n2", b"a", True)] * 3


@pytest.mark.parametrize(
    "raw",
    [
        b"event: a\ndata: {}\n\n",
        b"event: \ndata: \n\n",
        b"event: a\ndata: b\ndata: c\n\n",
        b"event: a\r\ndata: b\r\n\r\n",
        b"event: a\nid: 1\ndata: b\n\n",
        b"event: a\n\n",
        b"event: a\ndata: b\n: c\n\n",
    ],
)
def test_an_event_with_a_name_is_read_the_same_in_any_pieces(raw):
    whole = SseFramer()
    whole.feed(b": begun\n\n")
    (event,) = whole.feed(raw)
    bytewise = SseFramer()
    bytewise.feed(b": begun\n\n")
    found = [e for i in range(len(raw)) for e in bytewise.feed(raw[i : i + 1])]
    assert (found[0].data, found[0].name) == (event.data, event.name)
    lines = raw.replace(b"\r\n", b"\n").split(b"\n")
    data = [x[6:] for x in lines if x.startswith(b"data: ")]
    assert event.data == (b"\n".join(data) if data else None)
    assert event.name == lines[0][7:]


class Doubling(StreamTranslator):
    def _translate(self, event):
        return 2 * (event.data or b"")


def test_a_translator_gives_each_event_once_and_the_last_at_the_end():
    translator = Doubling()
    assert translator.feed(b"data: a\n\ndata: b") == b"aa"
    assert translator.waiting == len(b"data: b")
    assert (translator.end(), translator.end()) == (b"bb", b"")


def test_what_comes_after_a_whole_event_begins_one():
    framer = SseFramer()
    framer.feed(b"data: a\n\n")
    assert framer.between
    framer.feed(b"data")
    assert (framer.between, framer.waiting_bytes, framer.rest) == (False, 4, b"data")


def test_very_many_blank_lines_are_one_block():
    framer = SseFramer()
    assert [e.data for e in framer.feed(b"\n" * 10_000)] == [None]
    assert framer.count == 1


@pytest.mark.parametrize("data", [b"data: " + b"x" * 50, b"x\n" * 20 + b"\n"])
def test_an_event_without_an_end_in_sight_is_too_large(data, monkeypatch):
    monkeypatch.setattr(sse, "EVENT_BYTES", 40)
    monkeypatch.setattr(sse, "EVENT_LINES", 10)
    with pytest.raises(EventTooLarge):
        SseFramer().feed(data)


@pytest.mark.parametrize("comment", [b":\n\n", b": keep-alive\n\n"])
def test_a_flood_of_comments_is_one_block_a_piece_not_one_each(comment):
    framer = SseFramer()
    data = b"data: {}\n\n" + comment * 10_000 + b"data: 1\n\n"
    found = [e for at in range(0, len(data), 8192) for e in framer.feed(data[at : at + 8192])]
    assert b"".join(e.event_bytes for e in found) == data
    assert [e.data for e in found if e.data] == [b"{}", b"1"]
    assert len(found) <= 4 * len(data) / 8192


@given(st.lists(st.sampled_from([b":\n\n", b": a\n\n", b":\r\n\r\n", b"data: x\n\n"]), max_size=60))
def test_comments_that_are_taken_together_hide_no_event(blocks):
    found = SseFramer().feed(b"".join(blocks))
    assert b"".join(e.event_bytes for e in found) == b"".join(blocks)
    assert [e.data for e in found if e.data] == [b"x"] * blocks.count(b"data: x\n\n")


def test_a_long_event_is_not_searched_byte_by_byte_as_it_comes(monkeypatch):
    framer, searched = SseFramer(), []

    class Blank:
        def search(self, buffer, at):
            searched.append(len(buffer) - at)
            return sse_blank.search(buffer, at)

    sse_blank = sse.BLANK
    monkeypatch.setattr(sse, "BLANK", Blank())
    monkeypatch.setattr(sse, "LONG_BYTES", 64)
    framer.feed(b"data: " + b"x" * 100)
    for _ in range(50):
        assert framer.feed(b"y" * 100) == []
    (event,) = framer.feed(b"\n\n")
    assert event.data == b"x" * 100 + b"y" * 5000
    assert len(searched) <= 4


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("line", [b"data:  [DONE]", b"data: [DONE] ", b"data:[DONE]\t"])
def test_the_mark_of_the_end_may_have_blanks_around_it(line, end):
    first = b"data: {}" + end * 2
    found, rest = events(first + line + end * 2, [len(first)])
    assert ([e.data for e in found], rest) == ([b"{}", sse.DONE], b"")
    assert b"".join(e.event_bytes for e in found) == first + line + end * 2
