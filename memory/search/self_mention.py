"""Tells whether a sentence speaks of its user, in ten languages. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from memory.search.languages.questions import FRAMES_CJK
from memory.search.languages.self_words import (
    ASKS_BACK_JA,
    FRAMED_SELF,
    FRAMES,
    KIN_CJK,
    NO_SUBJECT_JA,
    ROLES,
    SELF,
    SELF_CJK,
    SELF_VERBS,
)

CLOSING = " \"'”’)»」』"
# Characters of a Japanese question that has no subject.
MAX_QUESTION = 40
_POLITE = re.compile(
    r"(?:(?:ok|okay|hi|hey|hello|so|and|now|then|thanks|thank you|please|pls|kindly|bitte"
    r"|por favor|s'il te plaît|s'il vous plaît|und|y|hallo|hola|bonjour|olá)\b[ ,!]*)+"
)
_MARKS_BETWEEN = ",.;:!?؟।…'\"()[]-"
_TOKEN = re.compile(rf"[^\s{re.escape(_MARKS_BETWEEN)}]+")
# For `str.translate`, which is faster on text of these characters alone.
_ASCII_TOKENS = "".join([" " if c in _MARKS_BETWEEN else c for c in map(chr, range(128))])
_ROLE = re.compile("|".join(ROLES))
_FRAME = re.compile("|".join(FRAMES))
# An Arabic noun with the ending for "my", which is a word of its own elsewhere.
_OWNED_END = "تي"
_OWNED = re.compile(rf"(?<!\w)(?!ال)\w{{3,}}{_OWNED_END}(?!\w)")
_SELF = frozenset(" ".join(SELF.values()).split())
_FRAMED = frozenset(FRAMED_SELF.split())
_VERBS = frozenset(" ".join(SELF_VERBS.values()).split())
_MARKS = ("?", "\uff1f", "\u061f")
_UNTOLD_JA = re.compile(f".*{ASKS_BACK_JA}|{NO_SUBJECT_JA}", re.DOTALL)
_CJK_START = re.compile(f"[{''.join(word[0] for word in (*SELF_CJK, *KIN_CJK))}]")


def mentions_self(sentence: str) -> bool:
    """Tell whether a sentence speaks of its user, beside what asks for something."""
    bare = bare_sentence(sentence)
    if _ROLE.match(bare):
        return True
    # Most have no such word at all, or one that no frame has, such as "my": that shows sooner than
    # the pattern of all frames is searched.
    self_words = _SELF.intersection(_tokens(bare))
    if not self_words:
        if _CJK_START.search(bare) is None:
            return False
    elif not _FRAMED.issuperset(self_words):
        return True
    bare = _FRAME.sub(" ", bare)
    for frame in FRAMES_CJK:
        bare = bare.replace(frame, "")
    if not _SELF.isdisjoint(_tokens(bare)):
        return True
    return any(x in bare for x in SELF_CJK) or any(x in bare for x in KIN_CJK)


def names_self(text: str) -> bool:
    """Tell whether a text has a word for its user, be it in what asks for something."""
    lower_text = text.lower().replace("\u2019", "'")
    words = _tokens(lower_text)
    if not _SELF.isdisjoint(words):
        return True
    is_ascii = lower_text.isascii()
    if not is_ascii and any(x in lower_text for x in SELF_CJK):
        return True
    if not _VERBS.isdisjoint(words):
        return "\u00bf" in text or text.rstrip(CLOSING).endswith(_MARKS)
    if is_ascii:
        return False
    if _OWNED_END in lower_text and _OWNED.search(lower_text) is not None:
        return True
    return _UNTOLD_JA.match(lower_text[-MAX_QUESTION:]) is not None


# One query is asked both questions.
@lru_cache(4)
def _tokens(text: str) -> frozenset[str]:
    """Return what stands between blanks and marks."""
    if text.isascii():
        return frozenset(text.translate(_ASCII_TOKENS).split())
    return frozenset(_TOKEN.findall(text))


def bare_sentence(sentence: str) -> str:
    """Return a sentence in lower case, without the courtesies that it begins with."""
    lower_text = sentence.strip(CLOSING + "¿¡“„«「『").lower().replace("’", "'")
    courtesies = _POLITE.match(lower_text)
    if courtesies is None:
        return lower_text
    return lower_text[courtesies.end() :]
