"""Decides when two facts are duplicates: the same words, but for known fillers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.search.characters import CJK, WHOLE_WORD
from memory.search.folding import fold_text
from memory.search.languages.fillers import FILLERS
from memory.search.languages.negations import NEGATED_CHARACTERS, NEGATED_ENDINGS, NEGATIONS
from memory.search.query import split_cjk
from memory.search.text_terms import text_words
from memory.search.vocabulary import DAYS, MONTHS, STOP

# Words that change the meaning: two facts of which only one has such a word are never duplicates.
TURNING = frozenset(
    [
        "no",
        "not",
        "never",
        "none",
        "nor",
        "neither",
        "nobody",
        "nothing",
        "without",
        "hardly",
        "barely",
        "rarely",
        "seldom",
        "former",
        "formerly",
        "ex",
        "longer",
        "stop",
        "stops",
        "stopped",
        "quit",
        "quits",
        "used",
        "doesn",
        "don",
        "isn",
        "didn",
        "wasn",
        "aren",
        "weren",
        "won",
        "hasn",
        "haven",
        "hadn",
        "couldn",
        "wouldn",
        "shouldn",
        "mustn",
        "can",
        "cannot",
        "could",
        "would",
        "should",
        "might",
        "must",
        "will",
        "ll",
        "was",
        "were",
        "had",
        "d",
        "t",
        "hate",
        "hates",
        "dislike",
        "dislikes",
        "only",
        "almost",
        "except",
        "unless",
        "if",
        "but",
        "and",
        "or",
        "before",
        "after",
        "until",
        "since",
        "ago",
        "instead",
    ]
)

COUNTING = frozenset(
    [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "seventy",
        "eighty",
        "ninety",
        "hundred",
        "thousand",
        "million",
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "once",
        "twice",
        "half",
        "double",
        "today",
        "tomorrow",
        "yesterday",
    ]
)

TELLING = TURNING | COUNTING | MONTHS.keys() | DAYS.keys()
EMPTY = frozenset({"a", "an", "the", "s"})
# What one of two facts may have more than the other; any other word tells something else.
_FILLERS = frozenset(" ".join(FILLERS.values()).split())
NEAR_DUPLICATE_SHARE = 0.8


def words(text: str) -> list[str]:
    """Return the words of a text that count in a comparison, in order, roughly stemmed."""
    return [bare for bare, _ in _plain_words(text)]


def search_terms(text: str) -> list[str]:
    """Return the words by which a similar text can be found, each once.

    Numbers first, then the longest words, which are usually the rarest.
    """
    return sorted(
        dict.fromkeys(w for w in text_words(text).words if w not in EMPTY),
        key=lambda w: (any(c.isdigit() for c in w), len(w)),
        reverse=True,
    )


def _words(text: str) -> list[tuple[str, bool]]:
    """Return each word, and whether it is distinctive.

    Distinctive are numbers, days, names, words that change the meaning, and CJK text.
    """
    text_words = WHOLE_WORD.findall(split_cjk(text))
    return [(_bare(fold_text(w)), _tells(w)) for w in text_words if w.casefold() not in EMPTY]


def _tells(word: str) -> bool:
    return (
        word.casefold() in TELLING
        or word[0].isupper()
        or any(c.isnumeric() for c in word)
        or bool(CJK.match(word))
    )


def _bare(word: str) -> str:
    """Return the word without a plural or gerund ending.

    A past tense stays, since it changes the meaning.
    """
    if word in TELLING:
        return word
    return next(
        (
            word[: -len(end)]
            for end in ("ing", "es", "s")
            if word.endswith(end) and len(word) - len(end) > 2
        ),
        word,
    )


def is_duplicate(text: str, compared_text: str) -> bool:
    """Tell whether two texts say the same.

    They have the same words in the same order, or one has a few more words, all of them known
    fillers. Any other word may be a negation, another subject or a change, in some language.
    """
    return bool(find_duplicates(text, [compared_text]))


def find_duplicates(text: str, texts: Sequence[str]) -> list[int]:
    """Return the indexes of the other texts that say the same."""
    plain_words = _plain_words(text)
    return [
        i
        for i, compared_text in enumerate(texts)
        if _are_alike(plain_words, _plain_words(compared_text))
    ]


def _plain_words(text: str) -> list[tuple[str, bool]]:
    """Return each word of a text, roughly stemmed, and whether it is a filler.

    A word is taken with its vowel signs: without them many Hindi words are the same.
    """
    text_words = WHOLE_WORD.findall(split_cjk(fold_text(text)))
    return [(_bare(w), w in _FILLERS) for w in text_words if w not in EMPTY]


def is_filler(word: str) -> bool:
    """Tell whether a fact says the same without this word."""
    folded_word = fold_text(word)
    return folded_word in _FILLERS or folded_word in EMPTY


def _are_alike(words: list[tuple[str, bool]], compared_words: list[tuple[str, bool]]) -> bool:
    shorter, longer = sorted((words, compared_words), key=len)
    if not shorter or len(shorter) < NEAR_DUPLICATE_SHARE * len(longer):
        return False
    matched_count = 0
    for bare, is_filler in longer:
        if matched_count < len(shorter) and bare == shorter[matched_count][0]:
            matched_count += 1
        elif not is_filler:
            return False
    return matched_count == len(shorter)


COVERED_SHARE = 0.6
# A fact's words, among which a negation is about them.
WORDS_BEFORE = 4
_CLAUSE_END = re.compile(r"[.!?;:,\n。！？；：、，।؟،]+")
_NEGATIONS = frozenset(fold_text(" ".join(NEGATIONS.values())).split())
_NEGATED_CJK = re.compile("|".join(" ".join(NEGATED_CHARACTERS.values()).split()))
_NEGATED_ENDING = re.compile("|".join(NEGATED_ENDINGS.values()))
_COMMON = frozenset(_bare(w) for w in STOP | {"user"})


def covers(text: str, fact: str) -> bool:
    """Tell whether a text says what a fact says, in whatever order.

    It has all of the fact's distinctive words, and most of its others that are not common. Where
    one of them denies what the other says, it does not.
    """
    fact_words = [(bare, tells) for bare, tells in _words(fact) if bare not in _COMMON]
    text_words = set(words(text))
    share = sum(bare in text_words for bare, _ in fact_words)
    telling = [bare for bare, tells in fact_words if tells]
    return (
        bool(fact_words)
        and share >= COVERED_SHARE * len(fact_words)
        and all(bare in text_words for bare in telling)
        and _is_negated(text, fact) == _is_negated(fact, fact)
    )


def _is_negated(text: str, fact: str) -> bool:
    """Tell whether a text denies what it has of a fact's words.

    Of each clause that has any: some words before the first of them, and one behind the last,
    where a language may deny its verb.
    """
    fact_words = {bare for bare, _ in _words(fact)} - _COMMON
    for clause in _CLAUSE_END.split(fold_text(text)):
        clause_words = WHOLE_WORD.findall(split_cjk(clause))
        places = [i for i, w in enumerate(clause_words) if _bare(w) in fact_words]
        if places:
            nearby_words = clause_words[max(0, places[0] - WORDS_BEFORE) : places[-1] + 2]
            if _NEGATED_CJK.search(clause) or any(
                w in _NEGATIONS or _NEGATED_ENDING.fullmatch(w) for w in nearby_words
            ):
                return True
    return False
