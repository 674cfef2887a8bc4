"""Times in pages: readable without a script, and exact for one."""

from __future__ import annotations

from jinja2 import Environment

from gateway.ui.shown_times import render_time


def test_a_time_is_an_element_with_its_moment_in_utc():
    page = Environment(autoescape=True).from_string("{{ at }}").render(at=render_time(0.0))
    at, text = "1970-01-01T00:00:00+00:00", "1970-01-01 00:00:00 UTC"
    assert page == f'<time datetime="{at}" data-time="moment">{text}</time>'
    assert str(render_time(None)) == "never"


def test_how_long_ago_a_time_was_keeps_the_moment():
    shown = render_time("1970-01-01T00:00:00Z", "ago")
    assert (shown.at, shown.kind) == ("1970-01-01T00:00:00Z", "ago")
    assert shown.text.endswith(" days ago")


def test_no_text_in_a_time_is_markup():
    shown = render_time("1970-01-01T00:00:00+00:00", '"><script>')
    assert "<script>" not in shown.__html__()
