"""The order of hits, and its reasons."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.dates import DateRange, dates_in
from memory.search.query import parse_time
from memory.search.ranking import (
    FADED,
    MEANING,
    Matches,
    Ranking,
    SearchHits,
    SimilarityScores,
    weigh_postings,
)
from memory.search.similarity import JUDGES, near, pack_vector, unpack_vector

DAY = 86400.0


@pytest.mark.parametrize(
    ("query", "dates"),
    [
        ("What happened in May 2023?", [DateRange(2023, 5)]),
        ("on 8 May, 2023", [DateRange(2023, 5, 8)]),
        ("on June 3rd", [DateRange(None, 6, 3)]),
        ("the 4th of July of 2022", [DateRange(2022, 7, 4)]),
        ("in 2021", [DateRange(2021)]),
        ("since 2023-05", [DateRange(2023, 5)]),
        ("2023-05-08", [DateRange(2023, 5, 8)]),
        ("may I march on?", []),
        ("in march", [DateRange(None, 3)]),
        ("in June or July", [DateRange(None, 6), DateRange(None, 7)]),
        ("2023年5月8日", [DateRange(2023, 5, 8)]),
        ("五月去了哪里", [DateRange(None, 5)]),
        ("三个月", []),
        ("yesterday, last week", []),
        ("room 2041", [DateRange(2041)]),
    ],
)
def test_the_dates_that_a_question_names(query, dates):
    assert list(dates_in(query)) == dates


@given(st.text(max_size=80))
def test_no_text_breaks_the_dates(text):
    assert all(w.month in (None, *range(1, 13)) for w in dates_in(text))


def test_a_date_holds_its_moments():
    at = parse_time("2023-05-08T23:59")
    assert DateRange(2023, 5).holds(at)
    assert DateRange(None, 5, 8).holds(at)
    assert not DateRange(2022).holds(at)
    assert not DateRange(None, 6).holds(at)


def test_rare_words_weigh_more_and_every_column_counts():
    out = weigh_postings(
        [
            (0, "body", [1, 2, 3, 4, 5]),
            (1, "body", [1]),
            (1, "prev", [6]),
            (2, "speaker", [5]),
            (3, "voice", [2]),
        ],
        10,
    )
    assert out.best()[0] == 1
    assert out.weight[1] - out.weight[2] > out.weight[2]
    assert 0 < out.weight[6] < out.weight[1]
    assert (out.named, out.voiced) == ({5}, {2})


def test_a_name_alone_finds_what_they_said():
    assert weigh_postings([(0, "speaker", [3, 7])], 10).best() == [7, 3]


def order(weight, pool, query="q", beside=None, near=None, **matches):
    hits, others = ([f for f in pool if (f.key in weight) == found] for found in (True, False))
    return Ranking(
        query, Matches(dict(weight), **matches), hits, near or SimilarityScores(), others
    ).order(beside or {})


def test_a_row_that_words_hardly_found_comes_in_by_a_meaning_that_is_believed_alone():
    # The third is beyond the pool.
    matches = Matches({1: 9.0, 2: 8.0, 3: 0.1}, asked=90.0)
    for believed in (True, False):
        out = Ranking(
            "q",
            matches,
            ALL[:2],
            SimilarityScores({1: 0.1, 2: 0.1, 3: 0.9}, knows=lambda hits, told=believed: told),
            [ALL[2]],
        ).order({})
        assert ("keyword" in out[3].why, out[3].score > 0) == (believed, believed)


def test_what_stands_beside_a_strong_hit_is_found_with_it():
    question, answer = SearchHits(1, 7, 0, "q"), SearchHits(2, 7, 0, "a")
    out = order({1: 2.0}, [question], beside={1: (None, answer)})
    assert list(out) == [1, 2]
    assert out[2].why == {"neighbour": 0.2, "session": 0.4}


def test_a_hit_among_others_of_its_session_comes_first():
    pool = [
        SearchHits(1, 7, 0, ""),
        SearchHits(2, 7, 0, ""),
        SearchHits(3, 8, 0, ""),
        SearchHits(4, 7, 5 * DAY, ""),
    ]
    out = order({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, pool)
    assert set(list(out)[:2]) == {1, 2}


def test_speaker_date_and_time_words_count():
    at = parse_time("2023-05-08")
    pool = [SearchHits(1, 1, 0, "x"), SearchHits(2, 2, at, "yesterday")]
    out = order({1: 1.0, 2: 1.0}, pool, "When in May 2023?", named={2}, voiced={1, 2})
    assert out[2].why == {"keyword": 1.0, "speaker": 0.7, "date": 0.1, "session": 0.4, "time": 0.05}
    assert out[1].why == {"keyword": 1.0, "speaker": 0.2, "session": 0.4}


# What the words found, the best first.
WORDS = {k: 10.0 - k for k in range(1, 9)}
ALL = [SearchHits(k, k, 0, "") for k in range(1, 61)]
# An embedder that found the 40th beside them.
KNOWS = SimilarityScores(
    {**{k: 0.5 + k / 100 for k in WORDS}, 40: 0.9, **dict.fromkeys(range(50, 58), 0.1)}, 0.1
)


def test_meaning_counts_for_as_much_of_the_query_as_the_words_left_uncovered():
    said = {
        k: order(WORDS, ALL, near=KNOWS, asked=asked)[40].why.get("meaning")
        for k, asked in (("half", 18.0), ("most", 90.0))
    }
    assert said == {"half": pytest.approx(MEANING / 2), "most": pytest.approx(MEANING * 0.9)}
    assert [
        r.why for k, r in order(WORDS, ALL, near=KNOWS, asked=9.0).items() if k not in WORDS
    ] == [{}] * (len(ALL) - len(WORDS))


def test_what_the_words_found_well_keeps_its_order():
    out = order(WORDS, ALL, near=KNOWS, asked=18.0)
    assert [k for k in out if k in WORDS][:4] == [1, 2, 3, 4]
    assert all(("meaning" in out[k].why) == (WORDS[k] < FADED * WORDS[1]) for k in WORDS)
    out = order(WORDS, ALL, near=KNOWS, asked=90.0)
    assert list(out).index(4) < list(out).index(40) < list(out).index(8)


def test_what_the_words_found_badly_and_the_meaning_well_gains_by_both():
    out = order(
        {1: 9.0, 2: 0.9, 3: 0.9},
        ALL[:3],
        near=SimilarityScores({1: 0.2, 2: 0.9, 3: 0.2}, 0.1),
        asked=90.0,
    )
    assert list(out) == [1, 2, 3]
    assert out[2].why["meaning"] > out[3].why["meaning"]


def test_words_alone_say_which_conversations_matter():
    pool = [SearchHits(k, 7 if k < 5 else 8, 0, "") for k in WORDS] + [
        SearchHits(40, 9, 0, ""),
        SearchHits(50, 9, 0, ""),
    ]
    alone, with_meaning = (
        order(WORDS, pool[:-2], asked=90.0),
        order(WORDS, pool, near=KNOWS, asked=90.0),
    )
    assert {k: with_meaning[k].why.get("session") for k in WORDS} == {
        k: alone[k].why.get("session") for k in WORDS
    }
    assert "session" not in with_meaning[40].why


MANY = {k: 30.0 - k for k in range(1, 21)}


def ignorant(kind, size):
    """What an embedder says that knows nothing: the vectors of rows 1 to `size`, and of a query."""
    chosen = random.Random(kind)
    texts = {
        k: pack_vector(
            [1.0, 0.0] if kind == "constant" else [chosen.gauss(0, 1) for _ in range(32)]
        )
        for k in range(size + 1)
    }
    return near(unpack_vector(texts.pop(0)), texts)


def test_where_the_words_find_nothing_no_proof_is_asked_for():
    said = ignorant(1, 60)
    assert list(order({}, ALL, near=said))[:20] == said.nearest()[:20]


@pytest.mark.parametrize("kind", ["constant", 1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [40, 600])
@pytest.mark.parametrize("asked", [30.0, 300.0])
def test_an_embedder_that_knows_nothing_changes_nothing_that_words_found(kind, size, asked):
    said = ignorant(kind, size)
    alone, out = (
        order(MANY, [SearchHits(k, k % 3, 0, "") for k in keys], near=n, asked=asked)
        for keys, n in ((MANY, SimilarityScores()), (dict.fromkeys([*MANY, *said.nearest()]), said))
    )
    assert list(out)[: len(MANY)] == list(alone)
    assert all(out[k] == alone[k] for k in MANY)
    assert [r.score for r in list(out.values())[len(MANY) :]] == [0.0] * (len(out) - len(MANY))


def test_noise_is_hardly_ever_believed():
    judges = range(1, JUDGES[1] + 1)
    assert sum(ignorant(kind, 100).knows(judges) for kind in range(200)) == 0


def test_rows_of_the_very_same_words_prove_nothing():
    """Noise is the same for the same text: a chat in which "Thanks!" is said again and again."""
    for kind in range(20):
        chosen = random.Random(kind)
        words = {k: 0 if k % 5 < 3 else k for k in range(1, 120)}
        noise = {w: pack_vector([chosen.gauss(0, 1) for _ in range(64)]) for w in {*words.values()}}
        assert not near([1.0] * 64, {k: noise[w] for k, w in words.items()}).knows(
            [k for k in words if k % 5 < 3][: JUDGES[1]]
        )


def worded(texts, words=8, dims=512):
    """An embedder to which each word is a direction.

    texts: by row, what it says beside `words` words at random.
    """
    chosen = random.Random(1)
    return near(
        [1.0] + [0.0] * (dims - 1),
        {
            key: pack_vector([float(d in told) for d in range(dims)])
            for key, said in texts.items()
            for told in [{*said, *(chosen.randrange(dims // 2, dims) for _ in range(words))}]
        },
    )


@pytest.mark.parametrize("size", [40, 600])
def test_an_embedder_to_which_rows_that_share_words_are_alike_is_believed(size):
    said = worded({k: [0] if k % 2 and k < 40 else [] for k in range(1, size + 1)})
    assert said.knows(range(1, 40, 2))
    # They share no word.
    assert not said.knows(range(2, 40, 2))
    # Too few to tell.
    assert not said.knows(range(1, 2 * JUDGES[0] - 2, 2))


def test_an_embedder_to_which_a_talk_hangs_together_is_believed_of_any_hits():
    assert worded({k: [k // 6] for k in range(1, 200)}).knows([])


def test_what_an_index_of_its_own_found_is_believed():
    assert SimilarityScores({1: 0.5}).knows([])


@given(
    st.dictionaries(st.integers(1, 20), st.floats(0.1, 9), min_size=1, max_size=8),
    st.dictionaries(st.integers(1, 20), st.floats(-1, 1), max_size=8),
    st.floats(1, 50),
)
def test_whatever_the_meaning_says_words_that_found_half_as_well_as_the_best_keep_their_order(
    weight, said, asked
):
    keys = {*weight, *said}
    alone, out = (
        order(weight, [SearchHits(k, k, 0, "") for k in some], near=n, asked=asked)
        for some, n in ((weight, SimilarityScores()), (keys, SimilarityScores(said)))
    )
    well = {k for k in weight if weight[k] >= FADED * max(weight.values())}
    assert [k for k in out if k in well] == [k for k in alone if k in well]


def test_what_has_no_vector_yet_loses_nothing():
    pool = [SearchHits(k, k, 0, "") for k in (1, 2, 3)]
    alone, partly = (
        order({1: 4.0, 2: 3.0}, pool[:2]),
        order({1: 4.0, 2: 3.0}, pool, near=SimilarityScores({3: 0.9}, 0.1), asked=20.0),
    )
    assert [partly[k].why["keyword"] for k in (1, 2)] == [alone[k].why["keyword"] for k in (1, 2)]
    assert list(partly) == [1, 2, 3]


def test_where_no_word_is_found_meaning_is_all():
    assert (
        order(
            {},
            [SearchHits(1, 1, 0, ""), SearchHits(2, 2, 0, "")],
            near=SimilarityScores({1: 0.9, 2: 0.1}),
        )[1].why["meaning"]
        == 1.0
    )


@given(
    st.dictionaries(st.integers(1, 20), st.floats(0.1, 9), max_size=8),
    st.dictionaries(st.integers(1, 20), st.floats(-1, 1), max_size=8),
    st.none() | st.floats(-1, 1),
)
def test_every_candidate_is_ranked_once_and_explained(weight, near, floor):
    pool = [SearchHits(k, k % 3, k * DAY, "") for k in {*weight, *near}]
    out = order(weight, pool, near=SimilarityScores(near, floor), asked=20.0)
    assert set(out) == {f.key for f in pool}
    assert [r.score for r in out.values()] == sorted((r.score for r in out.values()), reverse=True)
    assert all(abs(r.score - sum(r.why.values())) < 0.01 for r in out.values())


def test_without_words_similarities_that_are_all_equal_say_found():
    pool = [SearchHits(1, 1, 0, ""), SearchHits(2, 2, 0, "")]
    assert [
        r.why["meaning"] for r in order({}, pool, near=SimilarityScores({1: 0.3, 2: 0.3})).values()
    ] == [
        1.0,
        1.0,
    ]
    assert order({}, pool, near=SimilarityScores()) == order(
        {}, pool, near=SimilarityScores({3: 0.3})
    )


def test_where_no_hit_may_be_shown_meaning_is_all():
    """The filters leave no row that the words found."""
    for said in (SimilarityScores({1: 0.9, 2: 0.1}), SimilarityScores({1: 0.9})):
        out = Ranking("q", Matches({7: 3.0}, asked=5.0), [], said, ALL[:1]).order({})
        assert out[1].why["meaning"] == 1.0


def test_the_nearest_come_in_order_and_of_equals_the_newest():
    assert SimilarityScores({1: 0.3, 2: 0.9, 3: 0.3}).nearest() == [2, 3, 1]
    assert len(SimilarityScores(dict.fromkeys(range(99), 0.5)).nearest()) == 50


def test_vectors_of_another_length_are_left_out():
    assert near([1.0, 0.0], {1: pack_vector([1.0])}) == {}


def test_one_row_proves_nothing():
    assert not near([1.0, 0.0], {1: pack_vector([1.0, 0.0])}).knows([1])
