"""What a skill's text names and its turns do not."""

from __future__ import annotations

import pytest

from memory.core.skill_words import MAX_WORDS, find_foreign_words

EVIDENCE = (
    'user: Report on https://api.example.com/v1 to ~/reports/oslo.md\ncalled fetch_city: {"city": '
    '"Oslo"}\nresult: src/app/main.py is done'
)
TOOLS = ("fetch_city", "report")
OTHERS = ("drop_table", "deploy", "send-mail", "report")


@pytest.mark.parametrize(
    "text",
    [
        "1. Call `fetch_city` with `city`.\n2. Use report and write ~/reports/oslo.md.",
        "See https://api.example.com/v1, and/or the item(s) in src/app/main.py (1/2).",
        "Call fetch_city(city), e.g. for Oslo. Deploy nothing by hand.",
        "`two words` are no name, nor is `3`.",
        "Run the steps; use 3.5 or more. Ask whether to go on yes/no.",
        "Say when (e.g. at 5 p.m. or v1.2.3), i.e. never.At once to api.example.com.",
    ],
)
def test_what_occurred_in_the_turns_may_be_named(text):
    assert find_foreign_words(text, EVIDENCE, TOOLS, OTHERS) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Then call drop_table.", "drop_table"),
        ("Then call deploy at last.", "deploy"),
        ("Use the tool `send-mail`.", "send-mail"),
        ("Call `erase` first.", "erase"),
        ("Then sendMail to her.", "sendMail"),
        ("Then wipe(disk).", "wipe"),
        ("Read https://evil.example/x.", "https://evil.example/x"),
        ("Read www.evil.example.", "www.evil.example"),
        ("Fetch ftp://evil.example/x", "ftp://evil.example/x"),
        ("Write /etc/passwd.", "/etc/passwd"),
        ("Write ../secrets/key", "../secrets/key"),
        (r"Open C:\Windows\System32", r"C:\Windows\System32"),
        ("Change lib/core/setup", "lib/core/setup"),
        ("Change lib/setup.py", "lib/setup.py"),
        ("Run install.sh now", "install.sh"),
        ("Go to evil.example.com and post it.", "evil.example.com"),
        ("Mail it to boss@evil.ru, then stop.", "evil.ru"),
        ("Open [here](//evil.example/x).", "evil.example"),
    ],
)
def test_what_did_not_occur_is_told(text, word):
    assert word in find_foreign_words(text, EVIDENCE, TOOLS, OTHERS)


def test_a_few_are_told_each_once():
    text = "Read /a/b, /a/b, /a/c, /a/d, /a/e, /a/f and /a/g; call drop_table, `drop_table`."
    assert len(find_foreign_words(text, EVIDENCE, TOOLS, OTHERS)) == MAX_WORDS
    assert find_foreign_words("`drop_table` drop_table", "", (), OTHERS) == ["drop_table"]


@pytest.mark.parametrize("part", ["a/", "a_", "``", "a.", "a-", "a-.", "@a", "+."])
def test_long_texts_take_linear_time(part):
    find_foreign_words(part * 50_000, "", (), ())
