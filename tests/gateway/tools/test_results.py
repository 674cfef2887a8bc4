"""Results: cleaned, cut in the middle, opened again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.kind import ToolImage, ToolOutput
from gateway.tools.results import (
    HEAD,
    ImageRoom,
    Showing,
    clean_text,
    cut_text,
    open_result,
    show_output,
    stub_of,
)
from memory.session.toolbox import ResultWithImages

PICTURE = ToolImage("image/png", "AAAA", 3)
PLAIN = Showing(20_000, is_kept=True, is_data=True)


def show(output, how=PLAIN, count=4):
    return show_output("weather", output, how, ImageRoom(count))


@given(st.text(st.characters(), max_size=80))
def test_a_cleaned_text_is_valid_and_has_no_control_characters(text):
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned
    assert not [c for c in cleaned if ord(c) < 32 and c not in "\t\n"]
    assert clean_text(cleaned) == cleaned


@given(st.text("abc\n", min_size=101, max_size=400))
def test_a_long_text_keeps_three_quarters_and_one_quarter(text):
    shown, ident = cut_text(text, 100, is_kept=True)
    assert shown.startswith(text[:75] + "\n[")
    assert shown.endswith("]\n" + text[-25:])
    assert (
        f'[{len(text) - 100} characters left out; result_open("{ident}", 75) shows them]' in shown
    )


def test_in_read_mode_the_line_says_that_nothing_is_kept():
    shown, ident = cut_text("a" * 101, 100, is_kept=False)
    assert ident == ""
    assert "[1 characters left out; in read mode nothing is kept]" in shown


def test_data_is_marked_and_errors_are_not():
    assert show(ToolOutput("Rain")).result == HEAD.format("weather") + "Rain"
    assert show(ToolOutput("no", "error")).result == "Error: no"
    assert show(ToolOutput("4"), Showing(9, is_kept=True, is_data=False)).result == "4"


def test_pictures_are_shown_as_far_as_there_is_room():
    shown = show(ToolOutput("", images=(PICTURE, PICTURE)), count=1)
    assert isinstance(shown.result, ResultWithImages)
    assert len(shown.result.images) == 1
    assert shown.result.text.endswith("[image/png, 0.0 MiB, not shown]")
    large = ToolImage("image/png", "", 5 << 20)
    odd = ToolImage("image/tiff", "", 10)
    text = show(ToolOutput("", images=(large, odd))).result
    assert text.endswith("[image/png, 5.0 MiB, not shown]\n[image/tiff, 0.0 MiB, not shown]")
    assert stub_of(shown.result.images[0]) == "[image/png, 0.0 MiB, not shown]"


def test_an_opened_result_shows_a_part_or_lines():
    content = "\n".join(f"line {i}" for i in range(5000))
    part = open_result("res_1", content, 10, "")
    assert part.startswith(content[10:100])
    assert part.endswith('characters follow; result_open("res_1", 20010) shows them]')
    assert open_result("res_1", content, 0, "LINE 77") == "\n".join(
        line for line in content.split("\n") if "line 77" in line
    )
    assert open_result("res_1", content, 10**9, "").startswith("Error: ")
    assert open_result("res_1", content, 0, "zebra").startswith("Nothing found")
    assert len(open_result("res_1", content, 0, "line")) < 20_100
