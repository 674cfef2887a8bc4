"""What is kept of a long chat with a model that never asks, in short: the bars of the bench."""

from __future__ import annotations

from tests.bench import junk


async def test_facts_come_back_to_their_user_alone_and_nothing_is_invented():
    found = await junk.told_and_asked(turns=60, sessions=3)
    assert found["facts of 20 that stand in the sixth session"] >= 18
    assert (found["invented"], found["of another user"]) == (0, 0)


async def test_an_extractor_that_proposes_everything_gets_through_with_the_facts():
    found = await junk.kept_of_junk(turns=80, each=40)
    assert found["rows kept of 40 facts"] <= 45
    assert found["facts among them"] >= 38
    assert found["extraction's tokens, of the conversation's"] <= 0.15


async def test_recall_costs_little_of_a_chat():
    assert await junk.recall_bill(turns=40) <= 1.10
