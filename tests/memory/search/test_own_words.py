"""What a user wrote, and what they pasted; what states something, and what does not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.own_words import has_statement, own_words

CODE = "def add(a, b):\n    return a + b\n\nprint(add(1, 2));"
LOG = "2026-03-01 10:00:00 ERROR the server died\nTraceback (most recent call last):\n$ ls -la"
DOCUMENT = "\n\n".join(
    f"Paragraph {i} of a report on the {i}th quarter. " + "It says a lot. " * 20 for i in range(9)
)


@pytest.mark.parametrize(
    "pasted",
    [
        f"```python\n{CODE}\n```",
        f"~~~\n{CODE}",
        "```SELECT 1```",
        CODE,
        LOG,
        "> You wrote this\n> and I quote it",
        "“" + "A long quotation of somebody else. " * 10 + "”",
        "A paragraph without an end. " * 60,
        '{"user": {"name": "Bob", "likes": ["tea"]}}',
        "<div class='x'>I am Bob</div>",
    ],
)
def test_what_is_pasted_is_left_out(pasted):
    found = own_words(f"My dog is Rex.\n\n{pasted}\n\n" + ("" if "~~~" in pasted else "I am Ada."))
    assert found.split("\n\n")[0] == "My dog is Rex."
    assert not [w for w in ("Bob", "SELECT", "add(", "died", "quot", "paragraph") if w in found]
    assert "~~~" in pasted or found.endswith("I am Ada.")


def test_of_a_pasted_document_only_what_stands_around_it_is_read():
    found = own_words(f"My report is done:\n\n{DOCUMENT}\n\nI wrote it in Lyon.")
    assert found == "My report is done:\n\nI wrote it in Lyon."


@pytest.mark.parametrize(
    "text",
    [
        "I am Ada, and my mail is ada@example.org; call me at +49 170 1234567.",
        "I live at 12 Elm Street (2nd floor), Lyon.",
        "我叫李明，住在北京。",
        "My sister's name is Mia\nand she lives in Bergen - since 2019!",
        "I earn $4,000 a month & pay 30% of it as rent",
    ],
)
def test_what_people_write_stays(text):
    assert own_words(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "My dog is Rex",
        "Hi! My dog is Rex.",
        "What is a monad? I study maths in Lyon.",
        "When I was five, we moved to Oslo",
        "Will is my brother",
        "Call me Ada",
        "Remember that my flight is on Friday",
        "my address is wrong, forget it",
        "Ich wohne in Bremen",
        "Vivo en Madrid",
        "我住在北京。",
        "The deadline is on Friday",
    ],
)
def test_statements(text):
    assert has_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "hello, how are you?",
        "Thanks, that helped!",
        "What is a monad",
        "can you help me with my essay",
        "Please write a poem about my dog",
        "Fix this function",
        "Wie spät ist es?",
        "Schreib mir ein Gedicht",
        "Escribe un poema",
        "¿Dónde está Madrid?",
        "北京在哪里",
        "请翻译这句话",
    ],
)
def test_questions_requests_and_small_talk_state_nothing(text):
    assert not has_statement(text)


@given(st.text())
def test_any_text_can_be_read(text):
    has_statement(own_words(text))


@pytest.mark.parametrize("text", ['"', "```\n", "„", "> ", "a b ", "\n\n", "[2026-", "x;\n"])
def test_the_cost_is_linear(text):
    begun = time.process_time()
    has_statement(own_words(text * 500_000))
    assert time.process_time() - begun < 5
