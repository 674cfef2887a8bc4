"""The order of hits, and its reasons."""
from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.dates import When, dates_in
from memory.ranking import MEANING, Found, Matches, Near, Ranking, spread, weighed
from memory.search import parse_time

DAY = 86400.0


@pytest.mark.parametrize(("query", "dates"), [
    ("What happened in May 2023?", [When(2023, 5)]), ("on 8 May, 2023", [When(2023, 5, 8)]), ("on June 3rd", [When(None, 6, 3)]), ("the 4th of July of 2022", [When(2022, 7, 4)]),
    ("in 2021", [When(2021)]), ("since 2023-05", [When(2023, 5)]), ("2023-05-08", [When(2023, 5, 8)]), ("may I march on?", []), ("in march", [When(None, 3)]),
    ("in June or July", [When(None, 6), When(None, 7)]), ("2023年5月8日", [When(2023, 5, 8)]), ("五月去了哪里", [When(None, 5)]), ("三个月", []), ("yesterday, last week", []), ("room 2041", [When(2041)]),
])
def test_the_dates_that_a_question_names(query, dates):
    assert list(dates_in(query)) == dates


@given(st.text(max_size=80))
def test_no_text_breaks_the_dates(text):
    assert all(w.month in (None, *range(1, 13)) for w in dates_in(text))


def test_a_date_holds_its_moments():
    at = parse_time("2023-05-08T23:59")
    assert When(2023, 5).holds(at)
    assert When(None, 5, 8).holds(at)
    assert not When(2022).holds(at)
    assert not When(None, 6).holds(at)


def test_rare_words_weigh_more_and_every_column_counts():
    out = weighed([(0, "body", [1, 2, 3, 4, 5]), (1, "body", [1]), (1, "prev", [6]), (2, "speaker", [5]), (3, "voice", [2])], 10)
    assert out.best()[0] == 1
    assert out.weight[1] - out.weight[2] > out.weight[2]
    assert 0 < out.weight[6] < out.weight[1]
    assert (out.named, out.voiced) == ({5}, {2})


def test_a_name_alone_finds_what_they_said():
    assert weighed([(0, "speaker", [3, 7])], 10).best() == [7, 3]


def order(weight, pool, query="q", beside=None, near=None, **matches):
    return Ranking(query, Matches(dict(weight), **matches), pool, near or Near()).order(beside or {})


def test_what_stands_beside_a_strong_hit_is_found_with_it():
    question, answer = Found(1, 7, 0, "q"), Found(2, 7, 0, "a")
    out = order({1: 2.0}, [question], beside={1: (None, answer)})
    assert list(out) == [1, 2]
    assert out[2].why == {"neighbour": 0.2, "session": 0.4}


def test_a_hit_among_others_of_its_session_comes_first():
    pool = [Found(1, 7, 0, ""), Found(2, 7, 0, ""), Found(3, 8, 0, ""), Found(4, 7, 5 * DAY, "")]
    out = order({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, pool)
    assert set(list(out)[:2]) == {1, 2}


def test_speaker_date_and_time_words_count():
    at = parse_time("2023-05-08")
    pool = [Found(1, 1, 0, "x"), Found(2, 2, at, "yesterday")]
    out = order({1: 1.0, 2: 1.0}, pool, "When in May 2023?", named={2}, voiced={1, 2})
    assert out[2].why == {"keyword": 1.0, "speaker": 0.4, "date": 0.1, "session": 0.4, "time": 0.05}
    assert out[1].why == {"keyword": 1.0, "speaker": 0.2, "session": 0.4}


WORDS = {k: 10.0 - k for k in range(1, 9)}  # what the words found, the best first
ALL = [Found(k, k, 0, "") for k in range(1, 61)]
KNOWS = {**{k: 0.5 + k / 100 for k in WORDS}, 40: 0.9, **dict.fromkeys(range(50, 58), 0.1)}  # an embedder that agrees with the words, and found the 40th


def test_meaning_counts_for_as_much_of_the_query_as_the_words_left_uncovered():
    said = {k: order(WORDS, ALL, near=Near(KNOWS, 400), asked=asked)[40].why.get("meaning") for k, asked in (("none", 9.0), ("half", 18.0), ("most", 90.0))}
    assert said == {"none": None, "half": pytest.approx(MEANING / 2), "most": pytest.approx(MEANING * 0.9)}


def test_what_the_words_found_well_keeps_its_order():
    out = order(WORDS, ALL, near=Near(KNOWS, 400), asked=18.0)
    assert [k for k in out if k in WORDS][:4] == [1, 2, 3, 4]
    assert all("meaning" not in out[k].why for k in (1, 2, 3))
    assert list(out).index(40) < list(out).index(8)


def test_words_alone_say_which_conversations_matter():
    pool = [Found(k, 7 if k < 5 else 8, 0, "") for k in WORDS] + [Found(40, 9, 0, ""), Found(50, 9, 0, "")]
    alone, with_meaning = order(WORDS, pool[:-2], asked=90.0), order(WORDS, pool, near=Near(KNOWS, 400), asked=90.0)
    assert {k: with_meaning[k].why.get("session") for k in WORDS} == {k: alone[k].why.get("session") for k in WORDS}
    assert "session" not in with_meaning[40].why


def ignorant(kind, keys):
    """The nearest fifty by an embedder that knows nothing of the query, or the contrary of what the words know."""
    chosen = random.Random(kind)
    similar = {k: {"constant": 0.7, "contrary": -WORDS.get(k, 0.0)}.get(kind, chosen.random()) for k in keys}
    return Near({k: similar[k] for k in sorted(similar, key=lambda k: -similar[k])[:50]}, len(keys))


@pytest.mark.parametrize("kind", ["constant", "contrary", 1, 2, 3])
@pytest.mark.parametrize("size", [12, 60, 600])
@pytest.mark.parametrize("asked", [10.0, 100.0])
def test_an_embedder_that_knows_nothing_changes_nothing_that_words_found(kind, size, asked):
    near = ignorant(kind, range(1, size + 1))
    alone, out = (order(WORDS, [Found(k, k % 3, 0, "") for k in keys], near=n, asked=asked) for keys, n in ((WORDS, Near()), (dict.fromkeys([*WORDS, *near]), near)))
    assert list(out)[: len(WORDS)] == list(alone)
    assert all(out[k] == alone[k] for k in WORDS)
    assert [r.score for r in list(out.values())[len(WORDS):]] == [0.0] * len(near.keys() - WORDS.keys())


def test_noise_is_hardly_ever_believed():
    """By chance five of ten hits or more are among the nearest 50 of 400 in 0.4 of 100 queries."""
    chosen = random.Random(5)
    draws = [Near({k: chosen.random() for k in chosen.sample(range(400), 50)}, 400) for _ in range(4000)]
    assert sum(near.agrees(range(10)) for near in draws) / len(draws) < 0.01


def test_an_embedder_is_judged_in_small_scopes_too():
    hits = range(8)
    assert Near({k: 1 - k / 30 for k in range(30)}, 30).agrees(hits)
    assert not Near({k: k / 30 for k in range(30)}, 30).agrees(hits)
    assert not Near({1: 0.9, 2: 0.1}, 2).agrees([1])
    assert not Near({1: 0.9}, 1).agrees([1])
    assert not Near().agrees([1])


def test_what_has_no_vector_yet_loses_nothing():
    pool = [Found(k, k, 0, "") for k in (1, 2, 3)]
    alone, partly = order({1: 4.0, 2: 3.0}, pool[:2]), order({1: 4.0, 2: 3.0}, pool, near=Near({3: 0.9}, 1), asked=20.0)
    assert [partly[k].why["keyword"] for k in (1, 2)] == [alone[k].why["keyword"] for k in (1, 2)]
    assert list(partly) == [1, 2, 3]


def test_where_no_word_is_found_meaning_is_all():
    assert order({}, [Found(1, 1, 0, ""), Found(2, 2, 0, "")], near=Near({1: 0.9, 2: 0.1}, 2))[1].why["meaning"] == 1.0


@given(st.dictionaries(st.integers(1, 20), st.floats(0.1, 9), max_size=8), st.dictionaries(st.integers(1, 20), st.floats(-1, 1), max_size=8), st.integers(0, 400))
def test_every_candidate_is_ranked_once_and_explained(weight, near, more):
    pool = [Found(k, k % 3, k * DAY, "") for k in {*weight, *near}]
    out = order(weight, pool, near=Near(near, len(near) + more), asked=20.0)
    assert set(out) == {f.key for f in pool}
    assert [r.score for r in out.values()] == sorted((r.score for r in out.values()), reverse=True)
    assert all(abs(r.score - sum(r.why.values())) < 0.01 for r in out.values())


def test_scores_all_equal_say_found():
    assert spread({1: 0.3, 2: 0.3}) == {1: 1.0, 2: 1.0}
    assert spread({}) == {}
