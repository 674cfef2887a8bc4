"""Makes of a text the words that the index holds, and of a query those that it looks for. Pure.

One function for both, since what is stored in one way is found in that way alone. A text has one
language, told by its commonest words; those of other scripts have that of the script. English words
are stemmed by the index (Porter), others here, without accents. A query looks for a word in each
language that it may be of, since a short one does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from memory.search.characters import (
    CJK,
    HAN,
    IS_UNSPACED,
    SYLLABIC,
    WHOLE_WORD,
    cluster_pairs,
    fold_accents,
    fold_characters,
    pairs_of,
)
from memory.search.identifiers import identifier_words
from memory.search.lexicon import (
    LAST_LATIN,
    LATIN,
    UNLISTED,
    UNSPACED,
    common_words,
    guess_languages,
    is_common,
    is_function_word,
    is_usual,
    is_usual_form,
    script_language,
)
from memory.search.stemming import AR_PREPOSITIONS, MIN_STEM, light_stem, snowball_stem, unify_signs
from memory.search.word_tables import WORD_CHARACTERS, WordTables

# That are kept, of each kind, and of compounds.
CACHED_WORDS, CACHED_COMPOUNDS = 4096, 2048
WORD = re.compile(r"[^\W_]+")
# For `str.translate`: all but letters and digits as blanks, and that in lower case. Three times as
# fast as a pattern, on text of these characters alone.
_ASCII_WORDS = "".join([c if c.isalnum() else " " for c in map(chr, range(128))])
_LOWER_ASCII_WORDS = _ASCII_WORDS.lower()
_SINGLES = re.compile(rf"[{HAN}\uac00-\ud7af]")
# What is written without spaces, of scripts with syllables below `FIRST_KANA`, or of others.
_RUN = re.compile(f"({CJK.pattern}|{SYLLABIC.pattern})")
FIRST_KANA = "\u3040"
# Of a Japanese query: what is written in one script belongs together.
_ONE_SCRIPT = re.compile(rf"[{HAN}々]+|[\u30a0-\u30ff]+|[\u3040-\u309f]+|[\uac00-\ud7af]+")
_KATAKANA = re.compile(r"[\u30a1-\u30fa\u30fc]{3,}")
_HAS_KANA = re.compile(r"[\u3040-\u309f]")
_ALL_HAN = re.compile(rf"[{HAN}]+")
# The index splits words at marks: they are there as characters of the private use area.
MARK_OFFSET = 0xF0000
# What words that are derived from each other have in common, where stems differ: "asthma" and
# "asthmatic". No word of a text ends so, and the index does not stem what ends in a digit.
ROOT_LETTERS = 6
ROOT_END = "0"
# Of the scripts that are not Latin.
ROOTED = ("ru", "el")
# Characters of a word with digits that tells something, such as a model's number.
MIN_CODE = 5
# Languages that write compounds in one word.
PARTED = ("de", "nl", "sv")
# Letters.
MIN_COMPOUND, MIN_PART = 9, 4
# Characters of the first part of a compound in Katakana, and of what follows it.
MIN_KATAKANA_PART = 3
MAX_KATAKANA_PART = 10
MIN_KATAKANA_REST = 2
S_PLURALS = ("pt", "es", "fr")
# A Hindi ending that makes "with milk" of milk, and a plural before a postposition.
_HINDI_WITH = ("वाला", "वाली", "वाले", "वालों")
_HINDI_PLURAL = "ों"
_HINDI_SINGULAR = "ा"
# Written together with what is not there.
_RUSSIAN_WITHOUT = ("без", "бес", "не")


class QueryWord(NamedTuple):
    """A word of a query.

    forms: as the index may hold it. is_rare: in its language. is_telling: it is none of the
    commonest. is_topical: a text that says it is about the same. root: see `TextWords`, "" for
    none. languages: of which it may be.
    """

    word: str
    forms: tuple[str, ...]
    is_rare: bool = False
    is_telling: bool = False
    is_function_word: bool = False
    is_topical: bool = False
    root: str = ""
    languages: tuple[str, ...] = ()


class TextWords(NamedTuple):
    """The words of a text as they are indexed, each once, in order.

    names: of identifiers. roots: beginnings of words that are rare in their language.
    """

    words: Sequence[str]
    names: Sequence[str] = ()
    roots: Sequence[str] = ()

    def all(self) -> list[str]:
        return list(dict.fromkeys(chain(self.words, self.names, self.roots)))


class _TextReading(NamedTuple):
    """A text's words as they stand there, each once. spaced: the text that they were read from."""

    spaced: str
    words: list[str]
    language: str
    is_ascii: bool

    def terms(self) -> list[str]:
        if self.is_ascii and self.language == "en":
            return self.words
        return _stored_words(self.words, self.language)


def text_words(text: str) -> TextWords:
    """Return the words of a text."""
    reading = _read_text(text)
    roots = _roots(reading.words, reading.language)
    return TextWords(reading.terms(), [*identifier_words(reading.spaced)], roots)


def plain_words(text: str) -> Sequence[str]:
    """Return the words of a text without the parts of identifiers, and without roots."""
    return _read_text(text).terms()


def written_words(text: str) -> list[str]:
    """Return the letters and digits of a text that stand together."""
    if text.isascii():
        return text.translate(_ASCII_WORDS).split()
    return WORD.findall(text)


def _lower_words(text: str) -> list[str]:
    """Return the words of a folded text in lower case, each once, in order."""
    if text.isascii():
        words = text.translate(_LOWER_ASCII_WORDS).split()
    else:
        words = WHOLE_WORD.findall(text.lower())
    return list(dict.fromkeys(words))


def _read_text(text: str) -> _TextReading:
    spaced = _spaced(fold_characters(text))
    words = _lower_words(spaced)
    guess = guess_languages(words)
    language = "en"
    if guess and guess != UNLISTED:
        language = guess[0]
    return _TextReading(spaced, words, language, text.isascii())


def _roots(words: Iterable[str], language: str) -> list[str]:
    """Return the beginnings of words that are not common, as terms of the index."""
    return list(filter(None, map(_roots_by_word[language].__getitem__, words)))


def _root_of(language: str, word: str) -> str:
    """Return the beginning of a word as a term of the index; "" of a common or a short one."""
    if len(word) < ROOT_LETTERS or word in common_words(language) or not _has_root(word):
        return ""
    return _beginning(word)


_roots_by_word = WordTables(_root_of, CACHED_WORDS)


def _beginning(word: str) -> str:
    return fold_accents(word[:ROOT_LETTERS]) + ROOT_END


def _has_root(word: str) -> bool:
    """Tell whether a word has a beginning by which its kin are found."""
    return word.isalpha() and (word[0] <= LAST_LATIN or script_language(word) in ROOTED)


def query_words(text: str) -> list[QueryWord]:
    """Return the words of a query, each once, in order, with their forms in the index."""
    parts = _split_runs(fold_characters(text))
    runs = parts[1::2]
    names = list(identifier_words(_join_pairs(parts), compounds=False))
    words = _lower_words(" ".join(parts[::2]))
    guess = guess_languages(words)
    form = _query_words_by_word[guess].__getitem__
    forms = list(map(form, words))
    if "de" in guess or "nl" in guess or "sv" in guess:
        language = next(x for x in guess if x in PARTED)
        forms += [form(part) for word in words for part in parts_of(word, language)]
    forms += [
        pair for run in dict.fromkeys(runs) if run[0] >= FIRST_KANA for pair in _query_pairs(run)
    ]
    forms += [
        QueryWord(pair, (_without_marks(pair),))
        for run in runs
        if run[0] < FIRST_KANA
        for pair in cluster_pairs(run)
    ]
    forms += [QueryWord(x, (x,), _may_tell(x), is_topical=_may_tell(x)) for x in names]
    if len(forms) == len(words):
        return forms
    return list({word.word: word for word in reversed(forms)}.values())[::-1]


@lru_cache(CACHED_COMPOUNDS)
def parts_of(word: str, language: str) -> Sequence[str]:
    """Return the two parts of a compound, of which one is a common word; empty for other words."""
    if len(word) < MIN_COMPOUND:
        return ()
    part = _parts_of if len(word) <= WORD_CHARACTERS else _parts_of.__wrapped__
    return part(word, language)


@lru_cache(CACHED_COMPOUNDS)
def _parts_of(word: str, language: str) -> Sequence[str]:
    frequent_words = common_words(language)
    if word in frequent_words:
        return ()
    for i in range(MIN_PART, len(word) - MIN_PART + 1):
        if word[i:] in frequent_words:
            return _bare_head(word[:i]), word[i:]
    for i in range(MIN_PART + 1, len(word) - MIN_PART):
        if word[:i] in frequent_words:
            return word[:i], word[i:]
    return ()


def _bare_head(head: str) -> str:
    """Return the first part of a compound without the letter that joins both."""
    has_linking_letter = head.endswith("s") and not head.endswith("ss") and len(head) > MIN_PART
    if has_linking_letter:
        return head[:-1]
    return head


def _stored_words(words: Iterable[str], language: str) -> list[str]:
    """Return words as they are indexed. language: of those in Latin letters."""
    if language in PARTED:
        words = _with_parts(words, language)
    return list(map(_forms_by_word[language].__getitem__, words))


def _with_parts(words: Iterable[str], language: str) -> Iterator[str]:
    """Yield words, each compound with its parts behind it."""
    for word in words:
        yield word
        if len(word) >= MIN_COMPOUND and word[0] <= LAST_LATIN:
            yield from parts_of(word, language)


def _stored_form(word: str, language: str) -> str:
    """Return a word as it is indexed. language: of one in Latin letters."""
    return _forms_by_word[language][word]


def _make_form(language: str, word: str) -> str:
    if word[0] <= LAST_LATIN:
        is_plain = language == "en" or word.isdigit()
        return fold_accents(word if is_plain else snowball_stem(word, language))
    language = script_language(word)
    if language == "ar":
        return _without_marks(light_stem(word))
    if language == "hi":
        word = unify_signs(word)
    if language:
        word = snowball_stem(word, language)
    return _without_marks(fold_accents(word))


_forms_by_word = WordTables(_make_form, CACHED_WORDS)


def _without_marks(word: str) -> str:
    """Return a word with other characters in place of its marks, at which the index would split."""
    if word.isalnum():
        return word
    return "".join([c if c.isalnum() else chr(MARK_OFFSET + ord(c)) for c in word])


def _query_word(guess: tuple[str, ...], word: str) -> QueryWord:
    if word.isdigit():
        return QueryWord(word, (word,))
    if word[0] > LAST_LATIN:
        script = script_language(word)
        languages: tuple[str, ...] = (script,) if script else ()
        forms = _forms_of_script(word, script)
    elif guess == UNLISTED:
        # What is rare there is known of the memory alone.
        has_root = len(word) >= ROOT_LETTERS and _has_root(word)
        return QueryWord(word, (fold_accents(word),), root=_beginning(word) if has_root else "")
    else:
        languages = guess or LATIN
        stems = _latin_stems(word, languages)
        forms = [fold_accents(x) for x in (word, *stems)]
    if not languages:
        return QueryWord(word, tuple(forms))
    is_rare = _may_tell(word) and not any(is_common(word, x) for x in languages)
    is_rooted = is_rare and len(word) >= ROOT_LETTERS and _has_root(word)
    if is_rooted and languages == ("ru",):
        forms += [_beginning(kin) for kin in _without_denial(word)]
    # As common as it is without accents: "dê" is not told from "de" by the index.
    is_telling = not any(is_usual(x, y) for x in {word, fold_accents(word)} for y in languages)
    is_topical = is_telling and _may_tell(word)
    is_topical = is_topical and not any(is_usual_form(word, x) for x in languages)
    if guess and word[0] <= LAST_LATIN:
        leads = guess[0]
    else:
        leads = languages[0]
    return QueryWord(
        word,
        tuple(dict.fromkeys(forms)),
        is_rare,
        is_telling=is_telling,
        is_topical=is_topical,
        is_function_word=leads != "en" and is_function_word(word, leads),
        root=_beginning(word) if is_rooted else "",
        languages=languages,
    )


_query_words_by_word = WordTables(_query_word, CACHED_WORDS)


def _forms_of_script(word: str, script: str) -> list[str]:
    """Return what the index may hold of a word in letters of their own."""
    forms = [_stored_form(word, ""), *([word] if word.isalnum() else ())]
    # "with a cat" is one word. A text is not read so, since many words begin with that letter.
    bare = ""
    if script == "ar" and word[0] in AR_PREPOSITIONS:
        bare = word[1:]
    if len(bare) >= MIN_STEM and not is_usual(bare, script):
        forms.append(_stored_form(bare, ""))
    return [*forms, *(_stored_form(kin, "") for kin in _derived_from(word, script))]


def _latin_stems(word: str, languages: Iterable[str]) -> list[str]:
    """Return the stems of a word in each language that it may be of, but English.

    Of some plurals Snowball gives another stem than of their singular.
    """
    stems = [snowball_stem(word, x) for x in languages if x != "en"]
    if word.endswith("s") and len(word) > MIN_STEM:
        stems += [snowball_stem(word[:-1], x) for x in languages if x in S_PLURALS]
    return stems


def _derived_from(word: str, language: str) -> Iterator[str]:
    """Yield words that a query's word is made of, in Hindi."""
    if language != "hi":
        return
    for ending in _HINDI_WITH:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            yield word.removesuffix(ending)
    if word.endswith(_HINDI_PLURAL) and len(word) > MIN_STEM + 1:
        yield word.removesuffix(_HINDI_PLURAL) + _HINDI_SINGULAR


def _without_denial(word: str) -> Iterator[str]:
    """Yield what a Russian word denies: of "lactose-free" lactose."""
    for prefix in _RUSSIAN_WITHOUT:
        if word.startswith(prefix) and len(word) - len(prefix) >= ROOT_LETTERS:
            yield word.removeprefix(prefix)


def stored_forms(word: str, language: str) -> tuple[str, ...]:
    """Return a word of a list as the index may hold it. language: of which it is."""
    if language in UNSPACED:
        return (word,)
    return tuple(dict.fromkeys([_stored_form(word, language), fold_accents(word)]))


def _may_tell(word: str) -> bool:
    """Tell whether a word may say what a text is about; a short one with digits does not."""
    return word.isalpha() or not word.isascii() or len(word) >= MIN_CODE


def _spaced(text: str) -> str:
    """Return a text with what is written without spaces as pairs of characters, spaced.

    With each Chinese or Korean character too, so that it is found alone, and with what is written
    in Katakana as a whole.
    """
    parts = _split_runs(text)
    if len(parts) == 1:
        return text
    runs = " ".join(parts[1::2])
    single_letters = dict.fromkeys([*_SINGLES.findall(runs), *_KATAKANA.findall(runs)])
    return " ".join([_join_pairs(parts), *single_letters])


def _split_runs(text: str) -> list[str]:
    """Return the parts of a text; each second one is written without spaces."""
    if IS_UNSPACED.search(text):
        return _RUN.split(text)
    return [text]


def _join_pairs(parts: Sequence[str]) -> str:
    """Return the parts of a text with pairs of characters in place of each second one."""
    if len(parts) == 1:
        return parts[0]
    spaced_parts = [*parts]
    spaced_parts[1::2] = [
        f" {' '.join(pairs_of(run) if run[0] >= FIRST_KANA else cluster_pairs(run))} "
        for run in parts[1::2]
    ]
    return "".join(spaced_parts)


def _query_pairs(run: str) -> Iterator[QueryWord]:
    """Yield the pairs of characters that a query looks for.

    Of Japanese, those within one script: what follows a Chinese character there is an ending or
    another word. A character that is rare, or stands alone, is looked for by itself, and what is
    written in Katakana as a whole.
    """
    language = "ja" if _HAS_KANA.search(run) else "ko" if run[0] >= "\uac00" else "zh"
    frequent_words = common_words(language)
    if language == "ja":
        script_runs = _ONE_SCRIPT.findall(run)
    else:
        script_runs = [run]
    for script_run in script_runs:
        words = pairs_of(script_run)
        if len(script_run) > 2 and _KATAKANA.fullmatch(script_run):
            is_rare = script_run not in frequent_words
            forms = (script_run, *_first_parts(script_run))
            yield QueryWord(script_run, forms, is_rare, True, is_topical=is_rare, languages=("ja",))
        elif len(script_run) > 1 and _ALL_HAN.match(script_run):
            words += [c for c in script_run if c not in frequent_words]
        # Two Chinese characters between others are a Japanese word, and no accident.
        is_word = language == "ja" and len(script_run) == 2 and bool(_ALL_HAN.match(script_run))
        yield from map(_pairs_by_word[language, is_word].__getitem__, words)


def _query_pair(kind: tuple[str, bool], pair: str) -> QueryWord:
    """Return a pair of characters of a query. kind: its language, and whether it is a word."""
    language, is_word = kind
    is_bound = _is_bound(pair, language)
    is_rare = pair not in common_words(language) and not is_bound
    tells_something = not is_bound or _is_complement(pair)
    is_telling = tells_something and not is_usual(pair, language)
    is_topical = is_rare or (is_telling and is_word)
    return QueryWord(
        pair, (pair,), is_rare, is_telling, is_topical=is_topical, languages=(language,)
    )


_pairs_by_word = WordTables(_query_pair, CACHED_WORDS)


def _first_parts(run: str) -> Sequence[str]:
    """Return what a compound in Katakana may begin with, such as the nut of a nut cake.

    A text has it as a word of its own, if at all.
    """
    last_end = min(len(run) - MIN_KATAKANA_REST, MAX_KATAKANA_PART)
    return [run[:end] for end in range(MIN_KATAKANA_PART, last_end + 1)]


def _is_bound(pair: str, language: str) -> bool:
    """Tell whether a pair is a word and part of another, such as "of" and what follows."""
    return language == "zh" and not _FUNCTION_CHARACTERS.isdisjoint(pair)


def _is_complement(pair: str) -> bool:
    """Tell whether a Chinese pair is a verb and what says that it cannot be, as of 受不了."""
    return pair[1:] in _CANNOT and pair[0] not in _FUNCTION_CHARACTERS


_CANNOT = ("不", "得")
_FUNCTION_CHARACTERS = frozenset(
    "的是在了我和有不也你为他这与对就都上说吗会到要来被还而个后等但于将并能一很让从以她着给把去又或之及由没用"
    "更得所最它那吧其该只向啊已再当们内却呢则请想做"
)
