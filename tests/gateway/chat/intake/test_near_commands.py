"""A slip of one of our commands is told; what other apps and people begin with a slash is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.intake.near_commands import (
    COMMANDS,
    NO_CLEARING,
    NO_INIT,
    OTHER_WORDS,
    answer_near_miss,
    count_slips,
)

# What a hand does: a letter left out, doubled, or exchanged with the next one.
SLIPS = {
    "left out": lambda name, i: name[:i] + name[i + 1 :],
    "doubled": lambda name, i: name[: i + 1] + name[i:],
    "exchanged": lambda name, i: name[:i] + name[i + 1 : i + 2] + name[i] + name[i + 2 :],
}
LISTED = [
    (kind, name, slip(name, i))
    for kind, slip in SLIPS.items()
    for name in COMMANDS
    for i in range(len(name))
]
TYPED = sorted({(name, typed) for _, name, typed in LISTED if typed not in {*OTHER_WORDS, name}})


@pytest.mark.parametrize(("name", "typed"), TYPED)
def test_a_slip_of_each_command_is_answered_with_what_is_meant(name, typed):
    for text in (f"/{typed}", f"/{typed.upper()}", f"\uff0f{typed}", f"/ {typed}"):
        answer = answer_near_miss(text, ())
        assert answer is not None, text
        assert answer.startswith(f"Did you mean /{name}? Nothing was changed"), text
    if name not in ("memory", "why"):
        assert answer_near_miss(f"/{typed} that I like tea", ()) is not None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/clear-memory", NO_CLEARING),
        ("/clear_memory", NO_CLEARING),
        ("/clearMemory", NO_CLEARING),
        ("/clear memory", NO_CLEARING),
        ("/memory clear", NO_CLEARING),
        ("/memory-reset", NO_CLEARING),
        ("/wipe-memories", NO_CLEARING),
        ("/forget-all", NO_CLEARING),
        ("/forget-everything", NO_CLEARING),
        ("/init", NO_INIT),
        ("/INIT", NO_INIT),
        ("/init-memory", NO_INIT),
    ],
)
def test_commands_of_other_memories_say_what_there_is(text, answer):
    assert answer_near_miss(text, ["You are a helpful assistant."]) == answer


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/show-memory", "memory"),
        ("/memories", "memory"),
        ("/mem", "memory"),
        ("/add-memory", "remember"),
        ("/remember-this", "remember"),
        ("/remember: I like tea", "remember"),
        ("/remembered that I like tea", "remember"),
        ("/forget-it", "forget"),
        ("/why?", "why"),
    ],
)
def test_what_is_like_a_command_asks_for_it(text, name):
    assert (answer_near_miss(text, ()) or "").startswith(f"Did you mean /{name}?")


# Of Open WebUI, LibreChat, Discord, Slack, Claude Code, Codex, Aider, Midjourney, Minecraft, IRC
# and others; and what people write.
ELSEWHERE = (
    "/help /clear /new /reset /compact /model gpt-5 /think hard /no_think /web cats /imagine a cat "
    "/summarize /tldr /translate en /ask me /run /test /commit /diff /add a.py /drop a.py /review "
    "/plan /code /image /search tea /agents /mcp /status /login /quit /exit /redo /retry /continue "
    "/regenerate /who /whois ada /whisper /me waves /forge /member add /members /memo buy milk "
    "/memes /reminder /remind me /remove x /rename x /report /remote /why-not /way "
    "/mentor /memory-leak "
    "/format /forward /fork /forecast /undeploy /under /hello"
)


@pytest.mark.parametrize("text", ["/" + part for part in ELSEWHERE.split("/") if part])
def test_commands_of_other_apps_pass(text):
    assert answer_near_miss(text.strip(), ()) is None


@pytest.mark.parametrize(
    "text",
    [
        "/memory of a computer: how does it work?",
        "/memory/notes.md is where my notes are",
        "/remember/me.txt",
        "/home/ada/memory",
        "/why is the sky blue?",
        "/remembering",
        "/init the project with npm",
        "/memory\x00x",
        "/",
        "//",
        "/ and then?",
        "/\u0940",
    ],
)
def test_what_people_write_passes(text):
    assert answer_near_miss(text, ()) is None


@pytest.mark.parametrize("text", ["/init", "/clear-memory", "/memories", "/remembr x"])
def test_a_command_that_the_apps_instructions_name_is_the_apps(text):
    name = text.split()[0]
    told = f"You are a game. When the player types {name.upper()}, begin anew."
    assert answer_near_miss(text, ["Be kind.", told]) is None
    assert answer_near_miss(text, [f"Never say {name}ial."]) is not None


@given(st.text(max_size=9), st.text(max_size=9))
def test_slips_are_a_distance(one, two):
    count = count_slips(one, two)
    assert count == count_slips(two, one)
    assert (count == 0) == (one == two)
    assert abs(len(one) - len(two)) <= count <= max(len(one), len(two))
