"""The verbs that requests for work begin with, such as "translate". Pure.

They say what is to be done, and not what a message is about.
"""

from __future__ import annotations

import re

from memory.search.languages.questions import WORK
from memory.search.self_mention import bare_sentence

# Of a message, whose verbs are looked for.
MAX_SENTENCES = 8
WORK_VERBS = frozenset(" ".join(WORK.values()).split())
_SENTENCE_END = re.compile(r"(?<=[.!?؟।])\s+|\n+")


def leading_word(bare: str) -> str:
    """Return the first word of a sentence without courtesies."""
    words = bare.split(maxsplit=1)
    if words:
        return words[0].strip(",:!¿¡")
    return ""


def request_verbs(text: str) -> frozenset[str]:
    """Return the verbs that requests in a text begin with, in lower case."""
    sentences = _SENTENCE_END.split(text, maxsplit=MAX_SENTENCES)
    return WORK_VERBS.intersection([leading_word(bare_sentence(x)) for x in sentences])
