"""The words of identifiers: whole and in parts, however they are written. Pure.

`getUserById`, `get_user_by_id` and `get-user-by-id` are the same whole, `getuserbyid`, and have the
same parts. Of paths and dotted names each step is a whole too: `src/user_card.py` gives
`srcusercardpy` and `usercard`. Random data is no identifier: what is long or in too many parts is
left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# One pass over a text: a match begins only where a word does, and gives nothing back.
JOINED = re.compile(r"(?<![^\W_])[^\W_]++(?:(?:[_./\\:-]|::|->)[^\W_]++)+")
# In each that `JOINED` finds; prose has few.
JOINT = re.compile(r"[_./\\:>-][^\W_]")
COMPOUND = re.compile(r"[^\W\d_]++(?:[-/][^\W\d_]++){1,2}")
HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
# Whether `HUMP` is in a text: looked for at its capitals, of which prose has few.
HAS_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|[A-Z][a-z])")
PARTS = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
STEP = re.compile(r"[./\\:]+|->")
WORD = re.compile(r"[^\W_]+")
# Most characters and parts of an identifier, and characters of one in a single word: longer ones
# are mostly data, and so are those of shorter parts on average.
IDENTIFIER_CHARACTERS = 100
MOST_PARTS = 8
NAME_CHARACTERS = 50
MEAN_CHARACTERS = 2.5
# Of a part that is a word of its own.
PART_CHARACTERS = 2


def identifier_words(text: str, *, compounds: bool = True) -> Iterator[str]:
    """Yield the words of a text's identifiers, in lower case, that are not words by themselves.

    compounds: also of words that prose joins, such as "dairy-free". A query goes without them:
    whoever asks for that also means "dairy free".
    """
    for compound in dict.fromkeys(JOINED.findall(text) if JOINT.search(text) else ()):
        if compounds or not COMPOUND.fullmatch(compound):
            yield from _wholes(compound)
    if HAS_HUMP.search(text):
        for word in dict.fromkeys(WORD.findall(text)):
            if not word.islower() and len(word) <= NAME_CHARACTERS and word.isascii():
                yield from _humps(word)


def _wholes(compound: str) -> Iterator[str]:
    """Yield as one what is written together with marks in between; also each of its steps."""
    if len(compound) > IDENTIFIER_CHARACTERS:
        return
    for step in dict.fromkeys((compound, *STEP.split(compound))):
        parts = WORD.findall(step)
        if 1 < len(parts) <= MOST_PARTS and any(map(str.isalpha, parts)):
            yield "".join(parts).lower()


def _humps(word: str) -> Iterator[str]:
    """Yield the parts of a word with capital letters inside."""
    parts = PARTS.findall(word) if HUMP.search(word) else ()
    if 1 < len(parts) <= MOST_PARTS and len(word) >= MEAN_CHARACTERS * len(parts):
        yield from (p.lower() for p in parts if len(p) >= PART_CHARACTERS)
