"""LoCoMo: long chats of two people, with questions and the turns that answer them.

It is not part of this repository. `fetch` gets it from its authors' repository once, into the
user's cache, and checks that it is what was measured with; MNEMOGATE_LOCOMO names a copy on this
machine instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.bench.retrieval.stored import Utterance

COMMIT = "3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376"
URL = f"https://raw.githubusercontent.com/snap-research/locomo/{COMMIT}/data/locomo10.json"
SHA256 = "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4"
MOST_BYTES = 16 << 20
SECONDS = 60.0
# Conversations that the published figures are of; the other five were never looked at.
FIRST = 5
NAMED = "MNEMOGATE_LOCOMO"
HELP = f"Get {URL} yourself and name the file: {NAMED}=/path/to/locomo10.json"
SESSION = re.compile(r"session_(\d+)")
# Some labels hold two ids, or are written oddly.
EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


class NotThere(Exception):
    """LoCoMo is not on this machine; the message says what to do."""


@dataclass
class Dialogue:
    """One long chat. questions: (text, category, ids of the turns that answer it)."""

    id: str
    found: list[Utterance] = field(default_factory=list)
    questions: list[tuple[str, int, frozenset[str]]] = field(default_factory=list)


def cached() -> Path:
    """Where `fetch` keeps it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mnemogate" / "locomo10.json"


def present() -> Path | None:
    """Return the file if it is on this machine: the one that is named, or the fetched one."""
    if named := os.environ.get(NAMED):
        path = Path(named).expanduser()
        if not path.is_file():
            raise NotThere(f"{NAMED} is {named!r}, which is no file.")
        return path
    return path if verified(path := cached()) else None


def verified(path: Path) -> bool:
    """Tell whether the file is the published one."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256


def fetch(url: str = URL) -> Path:
    """Return the file, which is downloaded if it is not there yet. Raises NotThere."""
    if path := present():
        return path
    try:
        raw = _download(url)
    except httpx.HTTPError as e:
        raise NotThere(f"LoCoMo cannot be fetched: {e}. {HELP}") from e
    if (found := hashlib.sha256(raw).hexdigest()) != SHA256:
        raise NotThere(f"What {url} holds has the SHA-256 {found}, not {SHA256}. {HELP}")
    path = cached()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(raw)
    Path(file.name).replace(path)
    return path


def _download(url: str) -> bytes:
    """Raises httpx.HTTPError."""
    parts: list[bytes] = []
    with httpx.stream("GET", url, timeout=SECONDS, follow_redirects=False) as answer:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            parts.append(part)
            if sum(map(len, parts)) > MOST_BYTES:
                break
    return b"".join(parts)


def load(path: Path, first: int = FIRST) -> list[Dialogue]:
    """Return the first dialogues of the file; 0 for all."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return [_dialogue(value) for value in (found[:first] if first else found)]


def _dialogue(value: Any) -> Dialogue:
    """The first speaker as the user, the second as the assistant, both by name; each session a
    conversation of its date. A picture is its caption.
    """
    talk = value["conversation"]
    out = Dialogue(value["sample_id"])
    numbers = sorted(int(m[1]) for m in map(SESSION.fullmatch, talk) if m)
    for number in numbers:
        at = _time(talk[f"session_{number}_date_time"]).timestamp()
        for turn in talk[f"session_{number}"]:
            caption = turn.get("blip_caption")
            text = turn["text"] + (f" [shares {caption}]" if caption else "")
            role = "user" if turn["speaker"] == talk["speaker_a"] else "assistant"
            where = f"{out.id} session {number}"
            out.found.append(Utterance(turn["dia_id"], where, turn["speaker"], role, text, at))
    known = {u.id for u in out.found}
    for question in value["qa"]:
        labels = EVIDENCE.findall(" ".join(question.get("evidence", ())))
        evidence = frozenset(f"D{int(a)}:{int(b)}" for a, b in labels) & known
        # Else no turn can be right.
        if evidence:
            out.questions.append((question["question"], question["category"], evidence))
    return out


def _time(text: str) -> datetime:
    """1:56 pm on 8 May, 2023"""
    return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
