"""Keyword search: prepares text for the index, and queries for matching. Pure.

- Every word is indexed with its scope as a prefix ("s4kxtea"), so that a search reads one user's
  postings only: other users' texts influence neither counts nor time. The prefix has no vowel, so
  the stemmer treats the word as if it stood alone.
- Identifiers are there whole and in parts, see `identifiers`.
- Chinese, Japanese and Korean runs are split into overlapping bigrams, since the tokenizer finds no
  substring in them.
- A user's words are quoted terms, never query syntax.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from memory.search.characters import CJK, pairs_of
from memory.search.irregular import forms_of
from memory.search.kinds import kinds_in
from memory.search.request_verbs import WORK_VERBS, request_verbs
from memory.search.self_mention import mentions_self, names_self
from memory.search.text_terms import WORD, QueryWord, query_words, text_words, written_words
from memory.search.vocabulary import DAYS, MONTHS, STOP

NAMED = re.compile(r"\s*\**([^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30})?)\**[:：]\s")
POSSESSED = re.compile(r"([^\W_]+)(?:['’]s\b)?")
# Of a scope's prefix: no vowel, and no x, which ends it.
DIGITS = "0123456789bcdfghjklmnpqrstvwz"
# Of what makes words of a text and of a query (`index_text`, `term_lookups`): another number for
# another result, so that nothing made before is taken for it.
TERMS_VERSION = 3
# The columns that every term is looked up in; in a quick search one that is no name.
PLACES: tuple[str, ...] = ("body", "speaker", "prev")
SAID_PLACES = ("body", "prev")
# By which a query speaks of who asks, and of who answers.
_USER_WORDS = frozenset({"i", "me", "my", "mine", "myself"})
_ASSISTANT_WORDS = frozenset({"you", "your", "yours"})
# Most terms of a query.
TERMS = 32
# Of one that each turn asks.
QUICK_TERMS = 12
# Most characters of a query.
QUERY = 4000
# Of a text whose words are kept for a moment.
SHORT_CHARACTERS = 1000


def split_cjk(text: str) -> str:
    """Return the text with each CJK run as overlapping bigrams, separated by spaces."""
    return CJK.sub(lambda m: f" {' '.join(pairs_of(m[0]))} ", text)


@lru_cache(4096)
def scope_mark(scope_id: int) -> str:
    """Return the prefix of each word of a scope: short digits, then a letter that ends them."""
    digits = ""
    remainder = scope_id
    while remainder:
        remainder, digit = divmod(remainder, len(DIGITS))
        digits = DIGITS[digit] + digits
    return f"s{digits}x"


def index_text(scope_id: int, text: str, *, telling: bool = False) -> str:
    """Return text as it is indexed: each word once, with the scope's prefix.

    Identifiers are there whole and in parts. telling: without the words that a search ignores.
    """
    return mark_words(scope_id, index_words(text, telling=telling))


def mark_words(scope_id: int, words: Sequence[str]) -> str:
    """Return words as they are indexed, with the scope's prefix."""
    prefix = scope_mark(scope_id)
    if words:
        return prefix + f" {prefix}".join(words)
    return ""


def index_words(text: str, *, telling: bool = False) -> Sequence[str]:
    """Return the words of `index_text`, without a prefix."""
    if len(text) <= SHORT_CHARACTERS:
        words = _short_words(text)
    else:
        words = text_words(text)
    if telling:
        return [w for w in dict.fromkeys(chain(words.words, words.names)) if w not in STOP]
    return words.all()


# A message is indexed, and its words are those before the next one, of as many conversations.
_short_words = lru_cache(128)(text_words)


def excerpt(text: str, characters: int, gap: str = " ") -> str:
    """Return what is indexed of a text: its beginning, and for a quarter of the characters its end.

    So much of a pasted document says what it is; all of it would match every query. gap: stands for
    what is left out.
    """
    if len(text) <= characters:
        return text
    tail = characters // 4
    return f"{text[: characters - tail]}{gap}{text[len(text) - tail :]}"


def has_words(query: str) -> bool:
    """Tell whether there is anything to search for."""
    return WORD.search(query) is not None


def terms(query: str, *, thorough: bool = True) -> tuple[str, ...]:
    """Return the terms of a query, each once, in order; identifiers whole and in parts.

    Stop words are left out unless there are no others. Not thorough: those that are rare in their
    language, then the longest, since long words are rare ones (Zipf, The Psycho-Biology of
    Language, 1935).
    """
    return tuple([word.word for word in _chosen_words(query, thorough=thorough)])


# One query is asked of messages and of passages.
@lru_cache(16)
def _chosen_words(query: str, *, thorough: bool) -> Sequence[QueryWord]:
    words = query_words(query)
    telling = [w for w in words if w.word not in STOP and not w.is_function_word] or words
    telling_words = telling[:TERMS]
    if thorough or len(telling_words) <= QUICK_TERMS:
        return telling_words
    best_words = sorted(
        telling_words, key=lambda w: (w.is_rare, len(w.word.encode())), reverse=True
    )
    quick_words = {w.word for w in best_words[:QUICK_TERMS]}
    return [w for w in telling_words if w.word in quick_words]


@dataclass(frozen=True, slots=True)
class TermLookup:
    """One lookup in the index: one term in one column, also as an FTS5 expression.

    term: index of the term in the query. words: any of these, without the scope's prefix.
    is_topical: see `QueryTerm`.
    """

    term: int
    column: str
    expression: str
    words: tuple[str, ...] = ()
    is_topical: bool = False


class QueryTerm(NamedTuple):
    """A term of a query: any of these words, in any of these columns.

    number: its place in the query. is_topical: none of the commonest words of its language, so that
    a text that has it is about the same.
    """

    number: int
    words: tuple[str, ...]
    columns: tuple[str, ...]
    is_topical: bool = False


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """What a query is to the index. voice: who probably said it, if it asks about I or you."""

    terms: tuple[QueryTerm, ...]
    voice: str | None


# One query is asked of messages and of passages.
@lru_cache(16)
def query_terms(query: str, *, thorough: bool = True) -> QueryTerms:
    """Return the terms of a query, each form of a word once.

    Not thorough: of the rarest terms alone, and speakers only by words that are written as names
    are.
    """
    chosen_words = _chosen_words(query, thorough=thorough)
    plain_words = written_words(query)
    names = None
    if not thorough:
        names = {w.lower() for w in plain_words if not w.islower()}
    used_forms: set[str] = set()
    terms: list[QueryTerm] = []
    is_personal, is_own = (not thorough and asks(query) for asks in (mentions_self, names_self))
    verbs = frozenset() if thorough else _request_verbs(query, chosen_words)
    for i, word in enumerate(chosen_words):
        term = word.word
        forms = forms_of(word)
        if not used_forms.isdisjoint(forms):
            # A form of a word that was looked up already.
            continue
        used_forms.update(forms)
        columns = PLACES
        if names is not None and term not in names:
            columns = SAID_PLACES
        if term.isdigit() or term in DAYS or term in MONTHS:
            columns = (*columns, "day")
        if word.root and not thorough:
            forms = (*forms, word.root)
        tells = (word.is_telling if is_personal else word.is_topical) and term not in verbs
        if is_own and (kind_forms := _forms_of_kind(word)):
            forms = (*forms, *kind_forms)
            tells = True
        terms.append(QueryTerm(i, forms, columns, tells))
    return QueryTerms(tuple(terms), _voice(plain_words))


def _request_verbs(query: str, words: Sequence[QueryWord]) -> frozenset[str]:
    """Return the verbs of requests in a query, if any of these words may be one."""
    if WORK_VERBS.isdisjoint([word.word for word in words]):
        return frozenset()
    return request_verbs(query)


def _forms_of_kind(word: QueryWord) -> tuple[str, ...]:
    """Return what a general word may stand for, in the first language that knows it as one."""
    if word.is_function_word:
        # "How" of a Spanish question has the stem of "eat".
        return ()
    known_kinds = (kinds_in(x).get(form) for x in word.languages for form in word.forms)
    return next((forms for forms in known_kinds if forms), ())


def term_lookups(scope_id: int, query: str, *, thorough: bool = True) -> Iterator[TermLookup]:
    """Yield the lookups of a query's terms; none if it has no words.

    The column `voice` is the speaker's, for I and you.
    """
    prefix = scope_mark(scope_id)
    terms = query_terms(query, thorough=thorough)
    for i, forms, columns, is_topical in terms.terms:
        words = " OR ".join(f'"{prefix}{f}"' for f in forms)
        for column in columns:
            yield TermLookup(i, column, f"{column} : ({words})", forms, is_topical)
    if voice := terms.voice:
        yield TermLookup(-1, "voice", f'speaker : "{prefix}{voice}"', (voice,))


def word_lookup(scope_id: int, word: str) -> TermLookup:
    """Return the lookup of one word in what was said."""
    return TermLookup(0, "body", f'body : "{scope_mark(scope_id)}{word}"', (word,))


def _voice(query_words: Iterable[str]) -> str | None:
    """Return who probably said it, if a query of these words asks about I or you."""
    words = set(map(str.lower, query_words))
    names_user = not _USER_WORDS.isdisjoint(words)
    names_assistant = not _ASSISTANT_WORDS.isdisjoint(words)
    if names_user == names_assistant:
        return None
    if names_user:
        return "user"
    return "assistant"


def speaker_name(text: str) -> str:
    """Return the name that a text begins with, as in "Ada: ..."."""
    match = NAMED.match(text[:100])
    if match:
        return match[1]
    return ""


def without_names(query: str, names: Collection[str]) -> str:
    """Return the query without some names, unless nothing searchable would remain.

    names: in lower case.
    """
    if names:
        remaining_query = " ".join(
            POSSESSED.sub(lambda m: "" if m[1].lower() in names else m[0], query).split()
        )
    else:
        remaining_query = query
    if any(w.lower() not in STOP for w in WORD.findall(remaining_query)):
        return remaining_query
    return query


def spoken_day(timestamp: float) -> str:
    """Return a date in the forms that people ask for: 2023-05-08 Monday 8 May 2023."""
    day = datetime.fromtimestamp(timestamp, UTC)
    return f"{day:%Y-%m-%d %A} {day.day} {day:%B %Y}"


def parse_time(value: str, *, end: bool = False) -> float:
    """Return the Unix time of an ISO 8601 date or time; UTC without a time zone.

    A date alone is its first moment; with `end`, its last. Raises ValueError.
    """
    text = value.strip()
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if end and _is_date(text):
        moment += timedelta(days=1) - timedelta(microseconds=1)
    return moment.timestamp()


def _is_date(text: str) -> bool:
    """Tell whether the text is a date without a time: 2026-03-01, 20260301, 2026-W09-7."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def iso(timestamp: float) -> str:
    """Return a Unix time as ISO 8601 in UTC."""
    return (
        datetime.fromtimestamp(timestamp, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n{2,}")


def passages_of(text: str, size: int = 1000) -> list[str]:
    """Split long text into passages of at most `size` characters.

    Cuts at the end of a sentence, else at white space, else anywhere.
    """
    passages: list[str] = []
    for sentence in SENTENCE.split(text.strip()):
        *parts, last_part = _split_sentence(sentence.strip(), size)
        passages += parts
        if last_part and passages and len(passages[-1]) + len(last_part) + 1 <= size:
            passages[-1] += " " + last_part
        elif last_part:
            passages.append(last_part)
    return passages


def _split_sentence(sentence: str, size: int) -> Iterator[str]:
    """Yield a sentence in parts of at most `size` characters."""
    part_start = 0
    while len(sentence) - part_start > size:
        part_end = sentence.rfind(" ", part_start + size // 2, part_start + size)
        part_end = part_end if part_end > part_start else part_start + size
        yield sentence[part_start:part_end].strip()
        part_start = part_end
        while part_start < len(sentence) and sentence[part_start].isspace():
            part_start += 1
    yield sentence[part_start:]
