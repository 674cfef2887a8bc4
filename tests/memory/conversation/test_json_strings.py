"""Where the strings of a JSON text end, whatever escapes they hold and wherever a window cuts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import json_strings
from memory.conversation.json_strings import find_string_end, mask_escapes

strings = st.text(st.sampled_from('\\"nu\n😀a'), max_size=30)


@given(st.lists(strings, max_size=5), st.booleans())
def test_only_the_quotes_around_strings_are_left(values, ascii_only):
    text = json.dumps(values, ensure_ascii=ascii_only).encode()
    masked = mask_escapes(text)
    assert len(masked) == len(text)
    assert masked.count(b'"') == 2 * len(values)
    inside = [json.loads(b'"%b"' % text[a:b]) for a, b in spans(masked)]
    assert inside == values


def spans(masked):
    quotes = [i for i, byte in enumerate(masked) if byte == ord('"')]
    return [(a + 1, b) for a, b in zip(quotes[::2], quotes[1::2], strict=True)]


@given(st.binary(max_size=9))
def test_a_text_ends_with_a_backslash_exactly_where_an_escape_was_cut(text):
    run = len(text) - len(text.rstrip(b"\\"))
    assert mask_escapes(text).endswith(b"\\") is (run % 2 == 1)


@given(strings, st.integers(1, 9))
def test_a_string_ends_at_its_closing_quote(value, window):
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_strings, "SCAN_WINDOW_BYTES", window)
        assert find_string_end(text + b'"next"', 1) == len(text)
        assert find_string_end(text[:-1], 1) == len(text) - 1


def test_a_string_longer_than_the_window_is_passed():
    text = json.dumps("\\" * json_strings.SCAN_WINDOW_BYTES + '"' * 3).encode()
    assert find_string_end(text + b", 1", 1) == len(text)
