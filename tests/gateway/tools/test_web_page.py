"""A page's text is what a reader sees, and costs one pass whatever the page."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.web_page import read_bytes, read_html, tidy

PAGE = """<!doctype html><html><head><title> A &amp; B </title><style>p {color: red}</style>
<script>if (a < b) document.write("<p>no</p>")</script></head><body><!-- no > -->
<h1>Head</h1><p>One <b>two</b>&nbsp;three<br>four</p><ul><li>x<li>y</ul>
<table><tr><td>1</td><td>2</td></tr></table><a title="a > b" href='x'>link</a>
<pre>  keep
   this</pre><noscript>off</noscript><svg><text>no</text></svg>5 < 6 & 7</body></html>"""


def test_the_visible_text_of_a_page():
    page = read_html(PAGE)
    assert page.title == "A & B"
    for text in ("# Head", "One two three\nfour", "- x\n- y", "link", "5 < 6 & 7", "1 \t2"):
        assert text.replace(" \t", "\t") in page.text.replace(" \t", "\t")
    for hidden in ("color", "write", "no", "off", 'a > b"', "href"):
        assert hidden not in page.text


@given(st.text(alphabet="<>/!-\"'=abp \n&;[]?", max_size=200))
def test_any_markup_is_read(text):
    read_html(text)
    read_html(f"<script>{text}</script><p>end")


@pytest.mark.parametrize(
    "part",
    [
        "<",
        "<!--",
        "<a ",
        "<a '",
        '<a "',
        "<script>",
        "</script",
        "<title>",
        "<![CDATA[",
        "&",
        "&#",
        "<div>",
        "</div>",
        "<svg>",
        "<pre>",
        "<p a='",
        "<style",
        "<!",
        "<?",
        "\n\n",
        "<textarea>",
    ],
)
def test_a_hostile_page_costs_a_linear_time(part):
    def seconds(size: int) -> float:
        text = part * (size // len(part))
        begun = time.process_time()
        read_html(text)
        return time.process_time() - begun

    small = max(min(seconds(50_000) for _ in range(2)), 0.002)
    assert seconds(200_000) < 16 * small


def test_bytes_are_read_by_mark_header_or_meta():
    assert read_bytes("é".encode("utf-16"), "text/html") == "é"
    assert read_bytes("é".encode("latin-1"), "text/html; charset=ISO-8859-1") == "é"
    assert read_bytes(b"<meta charset='windows-1251'>\xe9", "text/html").endswith("й")
    xml = '<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>'
    assert read_bytes(xml.encode("latin-1"), "application/xml") == xml
    assert read_bytes("é".encode(), "text/html; charset=punycode") == "é"
    assert read_bytes(b"\xff", "text/plain; charset=nonsense") == "\ufffd"


def test_empty_lines_are_few():
    assert tidy("\n\n a  b \n\n\n\n c\t d \n") == "a b\n\nc\t d"
