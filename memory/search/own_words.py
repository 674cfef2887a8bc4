"""Tells what a user wrote from what they pasted, and statements from questions and requests. Pure.

Code, logs, quotations and documents are in a user's messages, but they say nothing about the user.
All of it is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memory.search.query import CJK, WORD
from memory.search.small_talk import is_small_talk, word_set

MAX_CHARACTERS = 2000  # of own words; a longer text is a document with a word before and after it
MAX_PARAGRAPH_CHARACTERS = 1200
MAX_EDGE_CHARACTERS = 600  # of the first and the last paragraph of a longer text
MAX_INSPECTED_CHARACTERS = 100_000
SYMBOLS = frozenset("{}[]()=<>|\\$#&^~_*;/`@")
SYMBOL_SHARE, MIN_LINE_CHARACTERS = 0.12, 6
FENCES = ("```", "~~~")
_CODE = re.compile(
    r"(?:\t| {4,}|>|\$ |#!|#include|//|/\*|<\?|<!|@\w+$|@\w+\(|Traceback |File \"|at [\w.$]+\()"
    r"|(?:async )?def \w+\(|class \w+[(:{]|(?:const|let|var) \w+ ?=|import [\w.{*]+(?: from .*)?;?$"
    r"|from [\w.]+ import |function \w*\(|(?:public|private|static) \w+ |SELECT .* FROM "
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|(?:INFO|DEBUG|WARN|WARNING|ERROR|FATAL)\b[ :\]]"
)
_QUOTED = re.compile(r'"[^"]{200,}"|“[^“”]{200,}”|„[^„“]{200,}“|«[^«»]{200,}»|「[^「」]{200,}」')
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_ASKS = re.compile(
    r"(?:what|who|where|why|how|which|when)(?:'s| is| are| was| were| do| does| did| can| could"
    r"| would| should| will| has| have| to| much| many| long| far| come)\b"
    r"|(?:is|are|was|were|do|does|did|can|could|would|will|should|shall|may|have|has) "
    r"(?:i|you|we|they|he|she|it|this|that|these|those|there|the|my|your|our|any|anyone|someone)\b"
    r"|(?:any|some) (?:idea|ideas|tips|advice|suggestion|suggestions)\b"
    r"|(?:kannst|könntest|können|könnten|weißt|hast|würdest) (?:du|sie)\b"
    r"|(?:puedes|podrías|puede|sabes|me puedes|me podrías)\b"
)
_POLITE = re.compile(
    r"(?:(?:ok|okay|hi|hey|hello|so|and|now|then|thanks|thank you|please|pls|kindly|bitte"
    r"|por favor|und|y|hallo|hola)\b[ ,!]*)+"
)
_REQUESTS = word_set("""
    write rewrite fix explain translate summarize summarise summary show tell give find list make
    create generate help compare describe calculate compute convert refactor check review run add
    remove delete sort print draft suggest recommend rephrase paraphrase proofread correct debug
    implement build design plan search look read analyze analyse define solve prove continue
    repeat try change update shorten expand simplify format extract parse open send let's
    schreib schreibe erkläre erklär übersetze übersetz fasse zeig zeige gib nenne finde mach
    mache erstelle hilf vergleiche beschreibe berechne prüfe korrigiere lies
    escribe explica traduce resume muestra dame dime encuentra haz crea genera ayúdame compara
    describe calcula corrige revisa busca lee
    """)
_ASKS_CJK = ("吗", "呢", "什么", "怎么", "为什么", "为何", "哪", "多少", "几点", "か", "까요")
_REQUESTS_CJK = ("请", "帮我", "给我", "翻译", "解释", "写", "告诉我", "总结", "列出")


def own_words(text: str) -> str:
    """Return the parts of a user's message that they wrote themselves.

    Left out are fenced and other code, logs, quoted lines, long quotations and paragraphs; of a
    long text only a short first and last paragraph stay.
    """
    lines = _unquoted_lines(_QUOTED.sub(" ", text[:MAX_INSPECTED_CHARACTERS]))
    paragraphs = [p for p in "\n".join(lines).split("\n\n") if p.strip()]
    if sum(map(len, paragraphs)) > MAX_CHARACTERS:
        paragraphs = [paragraphs[0], *paragraphs[1:][-1:]]
        limit = MAX_EDGE_CHARACTERS
    else:
        limit = MAX_PARAGRAPH_CHARACTERS
    return "\n\n".join(p.strip() for p in paragraphs if len(p) <= limit)


def _unquoted_lines(text: str) -> Iterator[str]:
    """Yield the lines that are neither code nor quoted; an empty one in place of those left out."""
    fence = ""
    for line in text.split("\n"):
        bare = line.strip()
        if fence:
            fence = "" if bare.startswith(fence) else fence
            yield ""
        elif bare.startswith(FENCES):
            # A fence that is closed on its own line encloses nothing more.
            fence = "" if bare.find(bare[:3], 3) > 0 else bare[:3]
            yield ""
        else:
            yield "" if _is_pasted(line) else line


def _is_pasted(line: str) -> bool:
    """Tell whether a line looks like code, a log or a quotation."""
    bare = line.rstrip()
    if _CODE.match(bare):
        return True
    if len(bare) < MIN_LINE_CHARACTERS:
        return bool(bare) and all(c in SYMBOLS or c.isspace() for c in bare)
    if bare.endswith(("{", "}", ";", "};", "):", "),", "=>")):
        return True
    return sum(map(SYMBOLS.__contains__, bare)) > SYMBOL_SHARE * len(bare)


def has_statement(text: str) -> bool:
    """Tell whether any sentence tells something: no question, request or small talk."""
    return any(_is_statement(s) for s in sentences(text))


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [s for s in _SENTENCE.split(text.strip()) if s]


def _is_statement(sentence: str) -> bool:
    words = WORD.findall(sentence)
    if not words or (len(words) < 2 and not CJK.search(sentence)):
        return False
    if sentence.rstrip(" \"'”)»").endswith(("?", "？")) or is_small_talk(sentence):
        return False
    if CJK.search(sentence):
        bare = sentence.strip()
        return not (any(x in bare for x in _ASKS_CJK) or bare.startswith(_REQUESTS_CJK))
    bare = _POLITE.sub("", sentence.strip().lower(), count=1)
    first = bare.split(maxsplit=1)[0].strip(",:!") if bare else ""
    return bool(bare) and first not in _REQUESTS and not _ASKS.match(bare)
