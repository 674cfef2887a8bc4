"""Tells whether a sentence speaks of its user, in ten languages. Pure."""

from __future__ import annotations

import re

from memory.search.languages.questions import FRAMES_CJK
from memory.search.languages.self_words import FRAMED_SELF, FRAMES, KIN_CJK, ROLES, SELF, SELF_CJK

CLOSING = " \"'”’)»」』"
_POLITE = re.compile(
    r"(?:(?:ok|okay|hi|hey|hello|so|and|now|then|thanks|thank you|please|pls|kindly|bitte"
    r"|por favor|s'il te plaît|s'il vous plaît|und|y|hallo|hola|bonjour|olá)\b[ ,!]*)+"
)
_TOKEN = re.compile(r"[^\s,.;:!?؟।…'\"()\[\]-]+")
_ROLE = re.compile("|".join(ROLES))
_FRAME = re.compile("|".join(FRAMES))
# An Arabic noun with the ending for "my", which is a word of its own elsewhere.
_OWNED_END = "تي"
_OWNED = re.compile(rf"(?<!\w)(?!ال)\w{{3,}}{_OWNED_END}(?!\w)")
_SELF = frozenset(" ".join(SELF.values()).split())
_FRAMED = frozenset(FRAMED_SELF.split())
_CJK_STARTS = frozenset(word[0] for word in (*SELF_CJK, *KIN_CJK))


def mentions_self(sentence: str) -> bool:
    """Tell whether a sentence speaks of its user, beside what asks for something."""
    bare = bare_sentence(sentence)
    if _ROLE.match(bare):
        return True
    # Most have no such word at all, or one that no frame has, such as "my": that shows sooner than
    # the pattern of all frames is searched.
    self_words = _SELF.intersection(_TOKEN.findall(bare))
    if not self_words:
        if _CJK_STARTS.isdisjoint(bare):
            return False
    elif not _FRAMED.issuperset(self_words):
        return True
    bare = _FRAME.sub(" ", bare)
    for frame in FRAMES_CJK:
        bare = bare.replace(frame, "")
    if any(w in _SELF for w in _TOKEN.findall(bare)):
        return True
    return any(x in bare for x in SELF_CJK) or any(x in bare for x in KIN_CJK)


def names_self(text: str) -> bool:
    """Tell whether a text has a word for its user, be it in what asks for something."""
    lower_text = text.lower().replace("\u2019", "'")
    return (
        not _SELF.isdisjoint(_TOKEN.findall(lower_text))
        or any(x in lower_text for x in SELF_CJK)
        or (_OWNED_END in lower_text and _OWNED.search(lower_text) is not None)
    )


def bare_sentence(sentence: str) -> str:
    """Return a sentence in lower case, without the courtesies that it begins with."""
    lower_text = sentence.strip(CLOSING + "¿¡“„«「『").lower().replace("’", "'")
    courtesies = _POLITE.match(lower_text)
    if courtesies is None:
        return lower_text
    return lower_text[courtesies.end() :]
