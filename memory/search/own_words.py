"""Tells what a user wrote from what they pasted, and statements from questions and requests. Pure.

Code, logs, quotations and documents are in a user's messages, but they say nothing about the user.
All of it is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from memory.search.characters import CJK, WHOLE_WORD
from memory.search.drop_reasons import Reason
from memory.search.languages.questions import (
    ENDS_CJK,
    WH,
    WH_CJK,
    WORK_CJK,
)
from memory.search.languages.requests import CLAUSE_HINTS, CLAUSES, IN_PARTS, KEEPING
from memory.search.languages.self_words import SELF_CJK
from memory.search.lexicon import script_language
from memory.search.request_verbs import WORK_VERBS, leading_word
from memory.search.self_mention import CLOSING, bare_sentence, mentions_self
from memory.search.small_talk import is_small_talk, word_set
from memory.search.text_terms import WORD, query_words, text_words

# Of own words; of a longer text its beginning and its end.
MAX_CHARACTERS = 6000
# A text behind a request that ends in a colon, of which only short paragraphs around it are read.
DOCUMENT_CHARACTERS = 2000
MAX_EDGE_CHARACTERS = 600
MAX_INSPECTED_CHARACTERS = 100_000
SYMBOLS = frozenset("{}[]()=<>|\\$#&^~_*;/`@")
SYMBOL_SHARE = 0.12
MIN_LINE_CHARACTERS = 6
FENCES = ("```", "~~~")
_CODE = re.compile(
    r"(?:\t| {4,}|>|\$ |#!|#include|//|/\*|<\?|<!|@\w+$|@\w+\(|Traceback |File \"|at [\w.$]+\()"
    r"|(?:async )?def \w+\(|class \w+[(:{]|(?:const|let|var) \w+ ?=|import [\w.{*]+(?: from .*)?;?$"
    r"|from [\w.]+ import |function \w*\(|(?:public|private|static) \w+ |SELECT .* FROM "
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|(?:INFO|DEBUG|WARN|WARNING|ERROR|FATAL)\b[ :\]]"
)
_QUOTED = re.compile(r'"[^"]{200,}"|“[^“”]{200,}”|„[^„“]{200,}“|«[^«»]{200,}»|「[^「」]{200,}」')
_SENTENCE = re.compile(r"(?<=[.!?؟।])\s+|(?<=[。！？])|\n+")
_PART = re.compile(r"[,;:—–(،、，；：]\s*")
_ASKS = re.compile(
    r"(?:what|who|where|why|how|which|when)(?:'s| is| are| was| were| do| does| did| can| could"
    r"| would| should| will| has| have| to| much| many| long| far| come)\b"
    r"|(?:is|are|was|were|do|does|did|can|could|would|will|should|shall|may|have|has) "
    r"(?:i|you|we|they|he|she|it|this|that|these|those|there|the|my|your|our|any|anyone|someone)\b"
    r"|(?:any|some) (?:idea|ideas|tips|advice|suggestion|suggestions)\b"
    r"|(?:kannst|könntest|können|könnten|weißt|hast|würdest) (?:du|sie)\b"
    r"|(?:puedes|podrías|puede|sabes|me puedes|me podrías)\b"
)
_KEEPING = [
    re.compile("|".join([x for language, x in KEEPING.items() if language not in IN_PARTS])),
    re.compile("|".join([KEEPING[language] for language in IN_PARTS])),
]
_CLAUSE = re.compile("|".join([x for name, x in CLAUSES.items() if name not in CLAUSE_HINTS]))
_HINTED_CLAUSE = re.compile("|".join([CLAUSES[language] for language in CLAUSE_HINTS]))
_HINTS = frozenset(chain.from_iterable(CLAUSE_HINTS.values()))
_WH = word_set(" ".join(WH.values()))
_QUESTION_MARKS = ("?", "？", "؟", "?")
# Of a part of a sentence that tells something.
MIN_PART_WORDS, MIN_PART_CHARACTERS_CJK = 3, 4
# Characters of a message that may be nothing but a request.
MAX_REQUEST = 300
# Texts of which is kept what was read of them, and characters of such a text.
KEPT_TEXTS, MAX_KEPT_CHARACTERS = 1024, 600
# Of a message of a single word.
MIN_ANSWER_CHARACTERS = 3


class OwnWords(NamedTuple):
    """What a user wrote themselves. left_out: why other parts of their message were left out."""

    text: str
    left_out: tuple[Reason, ...] = ()


def own_words(text: str) -> str:
    """Return the parts of a user's message that they wrote themselves, see `read_own_words`."""
    return read_own_words(text).text


def read_own_words(text: str) -> OwnWords:
    """Return the parts of a user's message that they wrote themselves, and why others are not."""
    if len(text) <= MAX_KEPT_CHARACTERS:
        return _kept_own_words(text)
    return _read_own_words(text)


def _read_own_words(text: str) -> OwnWords:
    """Return the result of `read_own_words`.

    Left out are fenced and other code, logs, quoted lines and long quotations; of a document behind
    a request only what stands around it stays, and of a very long text its beginning and its end.
    Marks decide, not length: what is not marked is the user's.
    """
    reasons: dict[Reason, None] = {}
    inspected = text[:MAX_INSPECTED_CHARACTERS]
    unquoted = _QUOTED.sub(" ", inspected)
    if len(unquoted) != len(inspected):
        reasons["quoted"] = None
    lines = list(_unquoted_lines(unquoted, reasons))
    paragraphs = [p.strip() for p in "\n".join(lines).split("\n\n") if p.strip()]
    size = sum(map(len, paragraphs))
    if size > DOCUMENT_CHARACTERS and paragraphs[0].endswith((":", "：")):
        reasons["quoted"] = None
        edges = (paragraphs[0], *paragraphs[1:][-1:])
        paragraphs = [p for p in edges if len(p) <= MAX_EDGE_CHARACTERS]
    words = "\n\n".join(paragraphs)
    if len(words) > MAX_CHARACTERS or len(text) > len(inspected):
        reasons["too_long"] = None
        half_length = MAX_CHARACTERS // 2
        if len(words) > MAX_CHARACTERS:
            words = f"{words[:half_length]}\n\n{words[-half_length:]}"
    # Mostly they are equal, and one is kept.
    return OwnWords(text if words == text else words, tuple(reasons))


# A message is searched for, read by extraction, and found again and again.
_kept_own_words = lru_cache(KEPT_TEXTS)(_read_own_words)


def _unquoted_lines(text: str, reasons: dict[Reason, None]) -> Iterator[str]:
    """Yield the lines that are neither code nor quoted; an empty one in place of those left out.

    reasons: why lines were left out, to be added to.
    """
    fence = ""
    for line in text.split("\n"):
        bare = line.strip()
        previous_line = ""
        if fence:
            if bare.startswith(fence):
                fence = ""
            reasons["code"] = None
        elif bare.startswith(FENCES):
            # A fence that is closed on its own line encloses nothing more.
            fence = "" if bare.find(bare[:3], 3) > 0 else bare[:3]
            reasons["code"] = None
        elif _is_pasted(line):
            reasons["quoted" if bare.startswith(">") else "code"] = None
        else:
            previous_line = line
        yield previous_line


def _is_pasted(line: str) -> bool:
    """Tell whether a line looks like code, a log or a quotation."""
    bare = line.rstrip()
    if _CODE.match(bare):
        return True
    if len(bare) < MIN_LINE_CHARACTERS:
        return bool(bare) and all(c in SYMBOLS or c.isspace() for c in bare)
    if bare.endswith(("{", "}", "};", "):", "),", "=>", ");")):
        return True
    if bare.endswith(";") and not SYMBOLS.isdisjoint(bare[:-1]):
        return True
    return sum(map(SYMBOLS.__contains__, bare)) > SYMBOL_SHARE * len(bare)


def has_statement(text: str) -> bool:
    """Tell whether any sentence tells something: no question, request or small talk."""
    if len(text) <= MAX_KEPT_CHARACTERS:
        return _kept_statement(text)
    return _has_statement(text)


def _has_statement(text: str) -> bool:
    return any(map(_is_statement, sentences(text)))


_kept_statement = lru_cache(KEPT_TEXTS)(_has_statement)


def is_like_request(earlier_message: str, message: str) -> bool:
    """Tell whether an earlier message only asks for what this one asks for, in another matter.

    Both have the same verb where requests have it, and share no other rare word; and the earlier
    one does not speak of its user.
    """
    if len(earlier_message) > MAX_REQUEST:
        return False
    verb, is_last = _verb_of(message)
    # That both have the verb is asked first, since hardly any do.
    if not verb or _word_at(earlier_message, is_last=is_last) != verb:
        return False
    if mentions_self(earlier_message):
        return False
    earlier_terms = set(text_words(earlier_message).all())
    return not any(
        word.is_rare and word.word != verb and not earlier_terms.isdisjoint(word.forms)
        for word in query_words(message)
    )


# One message is compared with several.
@lru_cache(4)
def _verb_of(message: str) -> tuple[str, bool]:
    """Return the word where a request has its verb; whether it is the last, as in Hindi."""
    if message.isascii():
        return _word_at(message, is_last=False), False
    last_word = _word_at(message, is_last=True)
    is_last = last_word != "" and script_language(last_word) == "hi"
    return (last_word if is_last else _word_at(message, is_last=False)), is_last


def _word_at(text: str, *, is_last: bool) -> str:
    """Return the first or last word of a text in lower case; "" if it has none."""
    if is_last:
        words = WHOLE_WORD.findall(text.lower())
        return words[-1] if words else ""
    first_word = WHOLE_WORD.search(text.lower())
    if first_word:
        return first_word[0]
    return ""


def may_tell(text: str) -> bool:
    """Tell whether a message may tell something about its user; only what is certain is not.

    A question or a request that speaks of the user may, and so may a single word, which answers.
    """
    if has_statement(text) or any(map(mentions_self, sentences(text))):
        return True
    words = WORD.findall(text)
    return len(words) == 1 and _is_answer(words[0].lower())


def _is_answer(word: str) -> bool:
    """Tell whether a message of one word may answer what the assistant asked."""
    if len(word) < MIN_ANSWER_CHARACTERS or CJK.search(word):
        return False
    asks = word in WORK_VERBS or word in _WH
    return not (asks or is_small_talk(word) or any(x.fullmatch(word) for x in _KEEPING))


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [s for s in _SENTENCE.split(text.strip()) if s]


def _is_statement(sentence: str) -> bool:
    words = WORD.findall(sentence)
    is_cjk = CJK.search(sentence) is not None
    if not words or (len(words) < 2 and not is_cjk) or is_small_talk(sentence):
        return False
    bare = bare_sentence(sentence)
    first_word = leading_word(bare)
    asks = _asks(bare, is_cjk=is_cjk)
    if is_cjk:
        works = bare.startswith(WORK_CJK)
    else:
        works = first_word in WORK_VERBS
    if not asks and not works:
        return bool(bare)
    # The long patterns are searched last, since most sentences neither ask nor request.
    is_wh = _is_wh(bare, first_word, is_cjk=is_cjk)
    if not is_wh and (is_cjk or len(bare) > len(first_word)) and _asks_to_keep(bare):
        return True
    if works and is_cjk and mentions_self(sentence):
        return True
    return _has_clause(bare) or _has_telling_part(sentence)


def _asks_to_keep(bare: str) -> bool:
    return any(pattern.search(bare) for pattern in _KEEPING)


def _has_clause(bare: str) -> bool:
    """Tell whether a sentence has a subordinate clause that may tell something."""
    if _CLAUSE.search(bare):
        return True
    return any(x in bare for x in _HINTS) and _HINTED_CLAUSE.search(bare) is not None


def _asks(bare: str, *, is_cjk: bool) -> bool:
    """Tell whether a sentence is a question, also without a question mark."""
    end = bare.rstrip(CLOSING)
    if end.endswith(_QUESTION_MARKS) or _ASKS.match(bare):
        return True
    if not is_cjk:
        return False
    end = end.rstrip("。.!！ ")
    return end.endswith(ENDS_CJK) or (
        any(x in bare for x in WH_CJK) and not any(x in bare for x in SELF_CJK)
    )


def _is_wh(bare: str, first_word: str, *, is_cjk: bool) -> bool:
    """Tell whether a sentence asks about something, rather than for yes or no."""
    if is_cjk:
        return False
    word = WORD.match(first_word)
    begins = word is not None and word[0] in _WH
    return begins and (bare.rstrip(CLOSING).endswith(_QUESTION_MARKS) or bool(_ASKS.match(bare)))


def _has_telling_part(sentence: str) -> bool:
    """Tell whether a part of a question or a request, between two marks, tells something."""
    parts = [p.strip() for p in _PART.split(sentence) if p.strip()]
    if len(parts) < 2:
        return False
    return any(_is_telling_part(p) for p in parts)


def _is_telling_part(part: str) -> bool:
    if CJK.search(part):
        is_long = len(part) >= MIN_PART_CHARACTERS_CJK
    else:
        is_long = len(WORD.findall(part)) >= MIN_PART_WORDS
    if not (is_long or mentions_self(part)):
        return False
    bare = bare_sentence(part)
    begins = WORD.match(bare)
    return (begins is None or begins[0] not in _WH) and _is_statement(part)
