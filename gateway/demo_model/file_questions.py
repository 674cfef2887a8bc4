"""How the stand-in answers what the user's files say: by one search, and by its closest line. Pure.

Only a question that names files is one: "What do my files say about the spare key?"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

FILE_SEARCH = "file_search"
_QUESTION = re.compile(
    r"\bmy (?:files?|documents?|notes)\b.{0,40}?\b(?:about|on) (?P<topic>[^?.!\n]{1,200})",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\[([^\[\]\n]{1,300})\]")
_WORD = re.compile(r"\w+")
_NOTHING = "Your files say nothing about that."


def find_topic(text: str) -> str:
    """Return what a question about the user's files is about; empty where there is none."""
    question = _QUESTION.search(text)
    if question is None:
        return ""
    return question["topic"].strip()


def answer_from_files(topic: str, results: Sequence[str]) -> str:
    """Return the line of the hits that has most words of the topic, with its file."""
    topic_words = {word.lower() for word in _WORD.findall(topic)}
    lines = [line for text in results for line in _lines_of(text)]
    scored = [
        (len(topic_words & {w.lower() for w in _WORD.findall(line)}), line) for line, _ in lines
    ]
    best_score = max((score for score, _ in scored), default=0)
    if not best_score:
        return _NOTHING
    line, file = next(
        pair for pair, (score, _) in zip(lines, scored, strict=True) if score == best_score
    )
    return f"{file} says: {line}"


def _lines_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a search's result, each with the name of its file."""
    file = ""
    for line in text.split("\n"):
        if place := _PLACE.match(line):
            file = place[1].partition(",")[0]
        elif file and line.strip(" \t#*-"):
            yield line.strip(" \t#*-"), file
