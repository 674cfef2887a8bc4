"""What an embedder is for: questions that share no word with their answer, asked through the
gateway's own search.
"""

from __future__ import annotations

import pytest

from memory.retrieval.retriever import SemanticSearch
from memory.stores.sql.rows.messages import SearchQuery
from tests.bench import cues
from tests.bench.retrieval import paraphrases
from tests.bench.retrieval.embedders import embedder
from tests.bench.retrieval.stored import Store

SAID = paraphrases.utterances()
TEXTS = {u.id: u.text for u in SAID}


async def asked(embed=None):
    """Of each question: its hits in order, and what the answer's place is owed to."""
    async with Store(SemanticSearch(embed) if embed else None) as store:
        user = await store.user("ada", SAID)
        while await store.memory.retrieval.embed_scope(user.scope_id):
            pass
        return [
            (wanted, await store.memory.retrieval.messages(user.scope_id, SearchQuery(q, limit=50)))
            for q, wanted in paraphrases.questions()
        ]


def found(answers, first):
    return sum(TEXTS[wanted] in [h["content"] for h in hits[:first]] for wanted, hits in answers)


async def test_the_words_find_none_of_the_answers_by_themselves():
    alone = await asked()
    assert [
        wanted
        for wanted, hits in alone
        for h in hits
        if h["content"] == TEXTS[wanted] and "keyword" in h["why"]
    ] == []


async def test_an_embedder_that_knows_finds_what_words_miss():
    alone = await asked()
    knowing = await asked(paraphrases.thesaurus())
    assert found(knowing, 10) >= found(alone, 10) + len(alone) // 2


@pytest.mark.parametrize("name", ["random", "constant"])
async def test_an_embedder_that_knows_nothing_leaves_the_hits_of_the_words_in_their_order(name):
    alone = await asked()
    for (_, before), (_, after) in zip(alone, await asked(embedder(name, ())), strict=True):
        if before:
            assert [(h["content"], h["score"]) for h in after][: len(before)] == [
                (h["content"], h["score"]) for h in before
            ]


async def test_a_synonym_brings_its_fact_where_an_embedder_knows_it():
    """The path from a message's vector through the gate to what is recalled, in ten languages."""
    asked = await cues.play(SemanticSearch(cues.Synonyms()))
    for kind in ("word", "stem", "synonym", "nothing"):
        assert cues.share([x for x in asked if x.kind == kind]) >= 0.95, kind
    assert cues.share([x for x in asked if x.kind == "unrelated"]) <= cues.TARGETS["unrelated"]
