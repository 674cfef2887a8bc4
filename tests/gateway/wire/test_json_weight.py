"""How heavy a JSON text is: told from its commas and brackets, whatever its strings hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.json_thread import look_for, run_by_weight
from gateway.wire import json_weight
from gateway.wire.json_weight import is_light, is_readable
from memory.conversation import json_strings

words = st.text(max_size=8) | st.sampled_from(["{,[", '"', "\\", '\\"', ",,,,", "😀"])
values = st.recursive(
    st.none() | st.integers() | words,
    lambda x: st.lists(x, max_size=4) | st.dictionaries(words, x, max_size=4),
)


def count(value):
    """The values in a value, the names of members among them."""
    if isinstance(value, dict):
        return 1 + sum(1 + count(v) for v in value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@given(values, st.integers(1, 9), st.booleans())
def test_a_text_of_few_values_is_readable_whatever_its_strings_hold(value, window, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_strings, "SCAN_WINDOW_BYTES", window)
        patch.setattr(json_weight, "SCAN_STEP_BYTES", window)
        assert is_readable(text, 2 * count(value))


@given(values.filter(lambda v: count(v) > 2))
def test_a_text_of_many_values_is_not_readable(value):
    text = json.dumps([value] * 50, ensure_ascii=False).encode()
    assert not is_readable(text, 50 * count(value) // 4)


def members(n):
    return b"{" + b",".join(b'"m%d":1' % i for i in range(n)) + b"}"


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        (members(json_weight.MOST_MEMBERS // 2), True),
        (members(json_weight.MOST_MEMBERS + 100), False),
        # Many objects of a few each.
        (b"[" + b",".join([members(4)] * 90_000) + b"]", True),
        # Colons of a text.
        (b'{"text":"' + b": " * 300_000 + b'"}', True),
    ],
)
def test_an_object_of_very_many_members_is_not_readable(text, readable):
    assert is_readable(text) is readable


@pytest.mark.parametrize(
    "text", [b"", b'"', b'"\\', b"\\" * 100, b'"' * 101, b"{" * 40_000, b'"a\\"' + b"," * 40]
)
def test_what_is_no_json_is_weighed_too(text):
    assert is_readable(text, 1_000_000)
    assert isinstance(is_readable(text, 0), bool)


@pytest.mark.parametrize(
    ("text", "light"),
    [
        (b"x" * json_weight.LIGHT_BYTES, True),
        (b"x" * (json_weight.LIGHT_BYTES + 1), False),
        (b"{}," * 5_000, True),
        (b"{}," * 11_000, False),
    ],
)
def test_light_is_what_is_short_and_has_few_values(text, light):
    assert is_light(text) is light


async def test_a_light_text_is_read_on_the_loop_and_a_heavy_one_beside_it():
    import threading

    here = threading.get_ident()
    assert await run_by_weight(b"", threading.get_ident) == here
    assert await run_by_weight(b"x" * (json_weight.LIGHT_BYTES + 1), threading.get_ident) != here


def test_a_mark_is_counted_in_steps(monkeypatch):
    monkeypatch.setattr(json_strings, "SEARCH_STEP_BYTES", 3)
    assert json_weight.count(b",a,,b,c,,", b",") == 6


@pytest.mark.parametrize("part", [bytes, memoryview])
async def test_a_mark_is_looked_for_in_parts_of_either_kind(part, monkeypatch):
    text = b'{"signature":"mnemogate-hidden.x"}'
    for step in (1 << 20, 7):
        monkeypatch.setattr(json_strings, "SEARCH_STEP_BYTES", step)
        monkeypatch.setattr("gateway.http.json_thread.SEARCHED_BYTES", step)
        assert await look_for([b"[", part(text)], b"mnemogate-")
        assert await look_for([b"[", part(text)], b"other", b"nature")
        assert not await look_for([b"[", part(b'{"signature":"of another"}')], b"mnemogate-")
        assert not await look_for(None, b"x")
