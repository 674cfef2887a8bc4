"""The order of hits, and its reasons."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.dates import When, dates_in
from memory.ranking import Found, Matches, Ranking, spread, weighed
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
    return Ranking(query, Matches(dict(weight), **matches), pool, near or {}).order(beside or {})


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


def test_meaning_lifts_what_words_found_barely_and_reorders_nothing_they_found_well():
    pool = [Found(k, k, 0, "") for k in (1, 2, 3, 4)]
    out = order({1: 4.0, 2: 3.0, 4: 0.4}, pool, near={1: 0.1, 2: 0.2, 3: 0.9, 4: 0.5})
    assert list(out) == [1, 2, 3, 4]
    assert out[3].why["meaning"] == 0.3
    assert "meaning" not in out[1].why | out[2].why
    assert out[4].why["keyword"] + out[4].why["meaning"] == pytest.approx(0.15)


def test_what_has_no_vector_yet_loses_nothing():
    pool = [Found(k, k, 0, "") for k in (1, 2, 3)]
    alone, partly = order({1: 4.0, 2: 3.0}, pool[:2]), order({1: 4.0, 2: 3.0}, pool, near={3: 0.9})
    assert [partly[k].why["keyword"] for k in (1, 2)] == [alone[k].why["keyword"] for k in (1, 2)]
    assert list(partly) == [1, 2, 3]


def test_where_no_word_is_found_meaning_is_all():
    assert order({}, [Found(1, 1, 0, ""), Found(2, 2, 0, "")], near={1: 0.9, 2: 0.1})[1].why["meaning"] == 1.0


@given(st.dictionaries(st.integers(1, 20), st.floats(0.1, 9), max_size=8), st.dictionaries(st.integers(1, 20), st.floats(-1, 1), max_size=8))
def test_every_candidate_is_ranked_once_and_explained(weight, near):
    pool = [Found(k, k % 3, k * DAY, "") for k in {*weight, *near}]
    out = order(weight, pool, near=near)
    assert set(out) == {f.key for f in pool}
    assert [r.score for r in out.values()] == sorted((r.score for r in out.values()), reverse=True)
    assert all(abs(r.score - sum(r.why.values())) < 0.01 for r in out.values())


def test_scores_all_equal_say_found():
    assert spread({1: 0.3, 2: 0.3}) == {1: 1.0, 2: 1.0}
    assert spread({}) == {}
