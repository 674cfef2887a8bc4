"""Checks what a model proposes against the user's own words: no fact without them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from memory.jobs.fact_answer import ProposedFact
from memory.search.content_words import content_words, shares_content
from memory.search.dedup import words
from memory.search.drop_reasons import Reason
from memory.search.folding import fold_quote, fold_text
from memory.search.matters import find_matters
from memory.search.own_words import has_statement, may_tell
from memory.search.vocabulary import STOP

_ELIDED = re.compile(r"\s*(?:\.\.\.|\[\.\.\.\])\s*")
_EMPTY = STOP | {"user", "users", "benutzer", "nutzer", "usuario", "utilisateur"}


class Evidence(NamedTuple):
    """Where a fact stands in what was said. place: of the text among those. reason: why nowhere."""

    place: int | None
    reason: Reason | None = None


def fold_texts(texts: Sequence[str]) -> list[str]:
    """Return the user's texts as quotes are looked for in them."""
    return [fold_text(text) for text in texts]


def find_evidence(fact: ProposedFact, user_texts: Sequence[str]) -> Evidence:
    """Return which of the user's texts a fact is taken from.

    The quote must stand there, apart from case, white space, marks at its ends and the form of
    apostrophes, quotes and dashes; it must tell something, and share a word with the fact.

    user_texts: the user's own words, see `fold_texts`.
    """
    quote = fold_quote(fact.quote)
    index = next(
        (i for i, text in enumerate(user_texts) if quote and _stands_in(quote, text)), None
    )
    if index is None:
        return Evidence(None, "no_quote")
    # A message of one word answers what the assistant asked.
    is_answer = (
        " " not in quote and quote == fold_quote(user_texts[index]) and may_tell(user_texts[index])
    )
    if is_answer or has_statement(fact.quote):
        if is_answer or not fact.text or _shares_word(fact.text, fact.quote):
            return Evidence(index)
        return Evidence(None, "no_shared_word")
    return Evidence(None, "question")


def _stands_in(quote: str, text: str) -> bool:
    """Tell whether a quote, perhaps with its middle left out, stands in a text. Both folded."""
    search_start = 0
    for part in _ELIDED.split(quote):
        begin = text.find(part, search_start)
        if begin < 0:
            return False
        search_start = begin + len(part)
    return True


def _shares_word(text: str, quote: str) -> bool:
    """Tell whether a fact is about what the quote says."""
    shares_plain_word = not (set(words(text)) - _EMPTY).isdisjoint(words(quote))
    return shares_plain_word or shares_content(text, quote)


def is_about(known_text: str, fact: ProposedFact) -> bool:
    """Tell whether a fact may replace a known one: it shares a content word or a matter with it.

    A model that gives a wrong number must not destroy another fact.
    """
    text = f"{fact.text} {fact.quote}"
    if shares_content(known_text, fact.text or fact.quote, content_words(text)):
        return True
    return not find_matters(known_text).isdisjoint(find_matters(text))
