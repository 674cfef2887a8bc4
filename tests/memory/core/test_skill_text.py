"""A skill as text: what its members may be, and the file SKILL.md."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.core import skill_text
from memory.core.skill_text import SkillDraft
from memory.errors import BadSkill

LINE = st.text("aB9 :#'\"-{}[]&*!|>%@`,.é日\\", min_size=1, max_size=40).map(str.strip)


@settings(max_examples=50)
@given(
    st.text("abz09-", min_size=1, max_size=48),
    LINE.filter(bool),
    st.text("ab-: \n#", max_size=40).map(lambda text: f"x{text}y"),
)
def test_what_is_exported_is_read_again_as_it_was(name, description, text):
    draft = SkillDraft(name, description, text)
    assert skill_text.read_document(skill_text.format_document(draft)) == draft


@pytest.mark.parametrize(
    "head",
    [
        "name: pdf\ndescription: Fill in forms",
        "name: 'pdf'\nlicense: MIT\ndescription: \"Fill in forms\"",
        "name: pdf\nmetadata:\n  author: x\ndescription: >\n  Fill in\n  forms",
        "name: pdf\ndescription: |\n\tFill in forms\n# a comment",
        "name: pdf\ndescription: Fill\n in forms",
    ],
)
def test_front_matter_of_other_programs_is_read(head):
    draft = skill_text.read_document(f"\ufeff---\r\n{head}\n---\n\nSteps\n")
    assert draft == SkillDraft("pdf", "Fill in forms", "Steps")


def test_quotes_in_front_matter_are_undone():
    head = "name: a\ndescription: 'It''s \"x\"'"
    assert skill_text.read_document(f"---\n{head}\n---\nt").description == 'It\'s "x"'
    head = 'name: a\ndescription: "not \\json"'
    assert skill_text.read_document(f"---\n{head}\n---\nt").description == "not \\json"


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ("Steps", "text"),
        ("---\nname: a\ndescription: b", "text"),
        ("---\ndescription: b\n---\nt", "name"),
        ("---\nname: a\n---\nt", "description"),
        (" lost\n---\nname: a\ndescription: b\n---\nt", "text"),
    ],
)
def test_a_file_without_front_matter_says_what_is_missing(document, param):
    with pytest.raises(BadSkill) as e:
        skill_text.read_document(document)
    assert e.value.param == param


@pytest.mark.parametrize(
    ("draft", "param"),
    [
        (SkillDraft("A b", "d", "t"), "name"),
        (SkillDraft("", "d", "t"), "name"),
        (SkillDraft("a", "", "t"), "description"),
        (SkillDraft("a", "x" * 201, "t"), "description"),
        (SkillDraft("a", "x\x00", "t"), "description"),
        (SkillDraft("a", "d", "\n"), "text"),
        (SkillDraft("a", "d", "x" * 11), "text"),
    ],
)
def test_a_member_that_cannot_be_used_is_named(draft, param):
    with pytest.raises(BadSkill) as e:
        skill_text.check_draft(draft, 10)
    assert e.value.param == param
    assert skill_text.check_draft(SkillDraft("a", " d ", "t"), 10) == SkillDraft("a", "d", "t")


def test_a_name_is_made_of_the_first_words_and_is_free():
    assert skill_text.name_from("Report on a City!") == "report-on-a-city"
    assert skill_text.name_from("word " * 30) == "word-" * 8 + "word"
    assert skill_text.name_from("x" * 90) == "x" * 48
    assert skill_text.name_from("日本") == ""
    assert skill_text.free_name("a", frozenset()) == "a"
    assert skill_text.free_name("a", frozenset({"a", "a-2"})) == "a-3"
    assert skill_text.free_name("x" * 48, frozenset({"x" * 48})) == "x" * 46 + "-2"


def test_a_long_description_is_cut_to_a_line():
    assert skill_text.shorten_line("two\nlines") == "two lines"
    cut = skill_text.shorten_line("word " * 90)
    assert len(cut) <= 200
    assert cut.endswith("…")
    with pytest.raises(BadSkill, match="`status`"):
        skill_text.check_status("done")
    assert skill_text.check_status("active") == "active"
