"""Near misses of the chat commands, which are answered with what may be meant. Pure.

A command that is misspelt would reach the model, which says that it remembers and keeps nothing.
Commands of other apps pass: what is far from ours, what the app's own instructions name, paths, and
sentences that begin with one of our words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

# And what each does.
COMMANDS: Mapping[str, str] = {
    "remember": "/remember TEXT keeps a detail",
    "forget": "/forget TEXT forgets one",
    "memory": "/memory shows what is remembered",
    "undo": "/undo takes the newest change back",
    "why": "/why explains the last turn",
}
# Nothing stands behind them.
ALONE = ("memory", "why")
# Words of other commands, or of people, that are as near as a slip is.
OTHER_WORDS = frozenset({"forge", "forged", "memo", "member", "undone", "who", "way", "hy"})
# What other programs, or a person, call something that we name otherwise or do not have.
VERBS = (
    *("add", "check", "clean", "clear", "delete", "drop", "edit", "empty", "erase", "flush"),
    *("forget", "get", "init", "list", "load", "my", "new", "open", "purge", "read", "remove"),
    *("reset", "save", "see", "set", "show", "store", "update", "view", "wipe", "write"),
)
NOUNS = ("memory", "memories", "mem")
_CLEARING = ("clean", "clear", "delete", "drop", "empty", "erase", "flush", "purge", "remove")
CLEARING = frozenset({*_CLEARING, "forget", "reset", "wipe"})
ADDING = frozenset({"add", "save", "set", "store", "write", "new", "update", "edit"})
_OBJECTS = ("all", "everything", "it", "last", "me", "memory", "memories", "that", "this")
# Letters that differ, of a short name and of a long one.
SLIPS = 1
SLIPS_OF_LONG = 2
LONG_NAME_LETTERS = 8
# Letters of a name of which one may be another; "who" is not "why".
SHORTEST_CHANGED = 4
# Characters of a message that is nothing but a command's name.
MAX_NAMED = 40
_TOKEN = re.compile(r"/+\s*([\w-]+)([:,.!?]?)(?=\s|\Z)")
NO_CLEARING = (
    "No command clears the whole memory, so nothing was changed. /memory shows what is remembered, "
    "/forget TEXT forgets one detail. Everything is erased on the dashboard (mnemogate ui)."
)
NO_INIT = (
    "There is no /init here, and none is needed: the memory begins with what you say. "
    "/remember TEXT keeps a detail, /memory shows what is remembered."
)


def answer_near_miss(text: str, instructions: Iterable[str]) -> str | None:
    """Return the answer to a near miss of a command; None for anything else.

    text: a user's message without space around it, which is no command. instructions: the texts of
    the app itself: a command that one of them names is the app's.
    """
    folded_text = unicodedata.normalize("NFKC", text[: 2 * MAX_NAMED]).lower()
    token = _TOKEN.match(folded_text)
    if token is None or (answer := _answer(folded_text, token, len(text))) is None:
        return None
    name = re.compile(rf"/{re.escape(token[1])}(?![\w-])", re.IGNORECASE)
    if any(name.search(instruction) for instruction in instructions):
        return None
    return answer


def _answer(folded_text: str, token: re.Match[str], size: int) -> str | None:
    name = token[1]
    if size <= MAX_NAMED:
        if name == "init" and size == len("/init"):
            return NO_INIT
        letters = re.sub(r"[\W_]", "", folded_text)
        if (phrase := PHRASES.get(letters)) is not None:
            return phrase
    has_more = size > token.end()
    command = _nearest(re.sub(r"[-_]", "", name))
    if command is None or (has_more and command in ALONE):
        return None
    return _ask(command)


def _nearest(name: str) -> str | None:
    """Return the command that a name is a slip of, or is itself."""
    if name in OTHER_WORDS:
        return None
    return next((command for command in COMMANDS if _is_slip(name, command)), None)


def _is_slip(name: str, command: str) -> bool:
    if name == command:
        return True
    if len(command) >= LONG_NAME_LETTERS:
        slips = SLIPS_OF_LONG
    else:
        slips = SLIPS
    if abs(len(name) - len(command)) > slips:
        return False
    if len(command) < SHORTEST_CHANGED and len(name) == len(command):
        return sorted(name) == sorted(command)
    count = count_slips(name, command)
    return count <= SLIPS or (count <= slips and name[:1] == command[:1])


def count_slips(typed_name: str, command: str) -> int:
    """Count the letters left out, added, changed, or exchanged with the next one."""
    previous_row: list[int] = []
    row = list(range(len(command) + 1))
    for index, letter in enumerate(typed_name, 1):
        previous_row, row_before_last, row = row, previous_row, [index]
        for column, command_letter in enumerate(command, 1):
            cost = min(
                previous_row[column] + 1,
                row[column - 1] + 1,
                previous_row[column - 1] + (letter != command_letter),
            )
            if (
                index > 1
                and column > 1
                and letter == command[column - 2]
                and typed_name[index - 2] == command_letter
            ):
                cost = min(cost, row_before_last[column - 2] + 1)
            row.append(cost)
    return row[-1]


def _ask(command: str) -> str:
    alternatives = "; ".join(does for name, does in COMMANDS.items() if name != command)
    return (
        f"Did you mean /{command}? Nothing was changed, and no model saw this. "
        f"{COMMANDS[command]}; {alternatives}."
    )


def _phrases() -> dict[str, str]:
    """Return the answers to names that other programs have, without what joins their words."""
    out = {"memories": _ask("memory"), "mem": _ask("memory")}
    for verb in VERBS:
        answer = _ask("remember" if verb in ADDING else "memory")
        if verb in CLEARING:
            answer = NO_CLEARING
        if verb == "init":
            answer = NO_INIT
        out |= {phrase: answer for noun in NOUNS for phrase in (verb + noun, noun + verb)}
    out |= {f"forget{x}": NO_CLEARING for x in ("all", "everything", "me")}
    out |= {f"forget{x}": _ask("forget") for x in _OBJECTS if f"forget{x}" not in out}
    return out | {f"remember{x}": _ask("remember") for x in _OBJECTS}


PHRASES = _phrases()
