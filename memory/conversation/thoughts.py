"""Removes a model's thoughts from what it said. Pure.

Servers that do not parse a reasoning model's answer leave its thoughts in the text: between tags,
behind a tag that was cut off, or before a closing tag whose opening one the chat template had
written. None of it is text of a summary, of an answer or of an item that is recalled. What stands
in a fenced block, or in the middle of a line, speaks of such tags, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memory.conversation.messages import Json, text_of
from memory.conversation.steps import end_step, find_in_steps

SEARCH_STEP_CHARACTERS = 1 << 18
# More than the longest hint has.
HINT_CHARACTERS = 16
# Before a tag on its line.
MAX_INDENT = 200
# More than the longest mark has.
MARK_CHARACTERS = MAX_INDENT + 100
# Of its line that are looked at beside a tag.
NEAR_CHARACTERS = 80
_TAG = r"(?:\w{1,16}:)?(?:think(?:ing)?|thoughts?|reasoning|reflection)"
# Tags of DeepSeek, Qwen, GLM, Seed and others; of Mistral, of Kimi, and of gpt-oss (Harmony).
_MARKS = re.compile(
    rf"(?im)(?P<open>^[ \t]{{0,{MAX_INDENT}}}(?:<{_TAG}>|\[THINK\]|◁think▷"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)<\|message\|>))"
    rf"|(?P<close></{_TAG}>|\[/THINK\]|◁/think▷)"
    r"|(?P<end><\|end\|>)"
    rf"|(?P<fence>^[ \t]{{0,{MAX_INDENT}}}(?:```|~~~))"
    r"|(?P<final>(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<\|return\|>)"
)
_HINTS = ("hink", "HINK", "hought", "HOUGHT", "eason", "EASON", "eflection", "EFLECTION", "<|")


def without_thoughts(text: str) -> str:
    """Return a model's text without its thoughts; "" where it is nothing else."""
    if not _may_hold_thoughts(text):
        return text
    spoken_parts: list[str] = []
    end_of_thought = 0
    for begin, end in _thought_spans(text):
        spoken_parts.append(text[end_of_thought:begin])
        end_of_thought = end
    if not end_of_thought:
        return text
    return "".join([*spoken_parts, text[end_of_thought:]]).strip()


def _may_hold_thoughts(text: str) -> bool:
    """Tell whether a hint stands in a text; a long one is searched in steps, and others run."""
    if len(text) <= SEARCH_STEP_CHARACTERS:
        # Each turn asks this of its messages: twice as fast as a generator.
        return any(map(text.__contains__, _HINTS))
    for offset in range(0, len(text), SEARCH_STEP_CHARACTERS):
        end = offset + SEARCH_STEP_CHARACTERS + HINT_CHARACTERS
        if any(text.find(hint, offset, end) >= 0 for hint in _HINTS):
            return True
        end_step()
    return False


def _thought_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each thought, with its tags."""
    passed_end = 0
    begin = -1
    is_fenced = False
    for tag in find_in_steps(_MARKS, text, MARK_CHARACTERS):
        kind = tag.lastgroup
        if begin >= 0:
            if kind in ("close", "end", "final"):
                passed_end = tag.end()
                yield begin, passed_end
                begin = -1
        elif kind == "fence":
            is_fenced = not is_fenced
        elif kind == "open" and not is_fenced:
            begin = tag.start()
        elif kind == "final" or (kind == "close" and not is_fenced and _stands_alone(text, tag)):
            # All before such a closing tag was thought: the opening one stood in the prompt.
            if kind == "close":
                start = passed_end
            else:
                start = tag.start()
            passed_end = tag.end()
            yield start, passed_end
    if begin >= 0:
        yield begin, len(text)


def _stands_alone(text: str, tag: re.Match[str]) -> bool:
    """Tell whether a closing tag begins or ends its line, as those of thoughts do."""
    start, end = tag.span()
    line_before = text[max(0, start - NEAR_CHARACTERS) : start].rpartition("\n")[2]
    line_behind = text[end : end + NEAR_CHARACTERS].partition("\n")[0]
    return not line_before.strip() or not line_behind.strip()


def spoken_text(message: Json) -> str:
    """Return the text of a message; of an assistant's without its thoughts."""
    text = text_of(message)
    if message.get("role") == "assistant":
        return without_thoughts(text)
    return text


def answer_text(message: Json) -> str:
    """Return what a model's answer says, whatever its role member holds."""
    return without_thoughts(text_of(message)).strip()
