"""Keyword search: what text becomes before it is indexed, and what a query becomes before it is matched. Pure.

Chinese, Japanese and Korean runs are split into overlapping bigrams, since the tokenizer finds no substring in them.
A user's words are quoted terms, never query syntax. Weights measured best on LoCoMo: body 1, speaker 2, previous 0.3, date 0.3.
"""
from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
WORD = re.compile(r"\w+")
WEIGHTS = (0.0, 1.0, 2.0, 0.3, 0.3)  # scope, body, speaker, previous message, date
STOP = frozenset(
    ["a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "him", "his", "how", "i", "if", "in", "is", "it", "its", "just", "me", "my", "no", "not", "of", "on", "or", "our", "she", "so", "some", "than", "that", "the", "their", "them", "then", "there", "they", "this", "to", "us", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would", "you", "your"])


def split_cjk(text: str) -> str:
    """Text with each CJK run as overlapping bigrams, space-separated."""
    return CJK.sub(lambda m: " " + " ".join(_bigrams(m[0])) + " ", text)


def _bigrams(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def terms(query: str) -> list[str]:
    """The query's terms: stop words left out unless there is nothing else, each once, in order."""
    words = [w.lower() for w in WORD.findall(split_cjk(query))]
    told = [w for w in words if w not in STOP] or words
    return list(dict.fromkeys(told))[:64]


def match(scope: str, query: str) -> str | None:
    """An FTS5 expression for these terms within one scope; None when the query holds no word."""
    found = terms(query)
    if not found:
        return None
    words = " OR ".join(f'"{t}"' for t in found)
    return f'scope : "{scope}" AND {{body speaker prev day}} : ({words})'


def spoken_day(at: float) -> str:
    """A date as people ask for it: 2023-05-08 Monday 8 May 2023."""
    d = datetime.fromtimestamp(at, UTC)
    return f"{d:%Y-%m-%d %A} {d.day} {d:%B %Y}"


def parse_time(value: str, *, end: bool = False) -> float:
    """Seconds since 1970 of an ISO 8601 date or time; without a zone: UTC. A date alone covers its whole day: with `end`,
    its last moment. Raises ValueError."""
    text = value.strip()
    whole_day = bool(re.fullmatch(r"\d{4}-\d{2}-\d{2}", text))
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if whole_day and end:
        moment += timedelta(days=1) - timedelta(microseconds=1)
    return moment.timestamp()


def iso(at: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n{2,}")


def passages_of(text: str, size: int = 1000) -> list[str]:
    """Long text as passages of at most `size` characters, cut at sentence ends, else at white space, else anywhere."""
    out: list[str] = []
    for piece in SENTENCE.split(text.strip()):
        piece = piece.strip()
        while len(piece) > size:
            cut = piece.rfind(" ", size // 2, size)
            cut = cut if cut > 0 else size
            out.append(piece[:cut].strip())
            piece = piece[cut:].strip()
        if not piece:
            continue
        if out and len(out[-1]) + len(piece) + 1 <= size:
            out[-1] += " " + piece
        else:
            out.append(piece)
    return out
