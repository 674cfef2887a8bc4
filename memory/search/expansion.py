"""Widens a query by words of its best hits, which people use beside those they ask with. Pure.

A question seldom has all the words of its answer ("which sports?" - "went surfing"). What the best
hits say beside the query's words is looked for too, for a fifth of the query's own weight: the
relevance model RM3 (Lavrenko and Croft 2001; Abdul-Jaleel et al. 2004). Measured on LoCoMo 1 to 5:
recall@10 .7905 to .7997, of questions with several answers .467 to .477.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from memory.search.characters import CJK
from memory.search.ranking import Matches
from memory.search.text_terms import plain_words
from memory.search.vocabulary import STOP

# The best ones, whose words are looked at.
HITS = 10
# Words looked up, and of those the ones that count.
LOOKED_UP, ADDED = 40, 15
# Of a word; a frequent one distinguishes nothing.
MAX_RELATED = 300
# Of all documents that may have a word.
MAX_SHARE = 0.05
# Of the query's weight.
QUERY_SHARE = 0.2
# Of a word that says something by itself.
MIN_LETTERS = 3


def related_words(
    query_terms: Collection[str], hits: Sequence[tuple[str, float]]
) -> dict[str, float]:
    """Return words of the best hits, each with the scores of those that have it.

    query_terms: words of the query. hits: texts and scores, best first.
    """
    best_score = hits[0][1] if hits else 0.0
    if best_score <= 0:
        return {}
    score_by_word: dict[str, float] = {}
    for text, score in hits[:HITS]:
        words = {
            w for w in plain_words(text) if len(w) >= MIN_LETTERS or (len(w) > 1 and CJK.match(w))
        }
        for word in sorted(words.difference(STOP, query_terms)):
            score_by_word[word] = score_by_word.get(word, 0.0) + score / best_score
    related = sorted(score_by_word, key=lambda w: (-score_by_word[w], w))[:LOOKED_UP]
    return {w: score_by_word[w] for w in related}


def widen(
    matches: Matches, words: Mapping[str, float], postings: Sequence[Sequence[int]]
) -> Matches:
    """Return the matches with what the related words add.

    postings: the rows of each word, in the order of the words.
    """
    # A tag's or a speaker's name finds all that bears it, and nothing else.
    if not matches.weight:
        return matches
    worth: dict[str, float] = {}
    rows = dict(zip(words, postings, strict=True))
    for word, keys in rows.items():
        if 0 < len(keys) < min(MAX_RELATED, MAX_SHARE * matches.size):
            rarity = math.log(1 + (matches.size - len(keys) + 0.5) / (len(keys) + 0.5))
            worth[word] = words[word] * rarity
    related = sorted(worth, key=lambda w: (-worth[w], w))[:ADDED]
    total_worth = sum(worth[w] for w in related)
    weight = dict(matches.weight)
    for word in related:
        share = QUERY_SHARE * matches.asked * worth[word] / total_worth
        for key in rows[word]:
            weight[key] = weight.get(key, 0.0) + share
    return matches.with_weight(weight)
