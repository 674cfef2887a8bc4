"""A compaction reads what the one before it left, and no stretch of a history is summarised
twice.
"""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.context.compaction import (
    HARD,
    at_most,
    compact,
    ensure_counted,
    extend_fitted,
    fit,
    plan_summary,
    recount_after_refusal,
)
from memory.context.epoch import PlacementPlan, new_epoch
from memory.context.fitted import (
    ContextBudget,
    FittedContext,
    SentPrompt,
    TokenBound,
    UncompactedMessages,
)
from memory.context.tokens import TokenCounter
from memory.context.window import SOFT
from memory.conversation.history import Messages, SourceText, TextRange, encode
from memory.conversation.matching import HashChain, RequestHistory
from memory.conversation.messages import DigestCache
from memory.core.blocks import CoreBlock

KEY = b"k" * 32
MESSAGES = st.lists(
    st.builds(
        lambda role, n: {"role": role, "content": f"said {n}"},
        st.sampled_from(["user", "user", "assistant", "system", "tool"]),
        st.integers(0, 30),
    ),
    min_size=1,
    max_size=30,
)


class Counting(DigestCache):
    def __init__(self):
        super().__init__()
        self.hashed = 0

    def extend_chain(self, key, link, message):
        self.hashed += 1
        return super().extend_chain(key, link, message)


def resumed(messages, known):
    """The same history as one of which the first `known` messages came before."""
    before = Messages(Messages.of(()).before, messages[:known])
    HashChain(KEY, before)
    text = encode(messages[:known])[1:-1]
    return Messages(before.after, messages[known:], lambda: TextRange(text, 0, len(text)))


@given(MESSAGES, st.data())
def test_a_chain_that_is_hashed_from_a_message_on_is_the_whole_chain_there(messages, data):
    known = data.draw(st.integers(0, len(messages)))
    index = data.draw(st.integers(0, known))
    whole, seen = HashChain(KEY, messages), Counting()
    chain = HashChain(KEY, resumed(messages, known), digests=seen)
    chain.reach(index, data.draw(st.sampled_from([whole.before(index), b"of another one"])))
    for i in data.draw(st.permutations(range(index, len(messages)))):
        assert (chain.link(i), chain.digest(i), chain.before(i)) == (
            whole.link(i),
            whole.digest(i),
            whole.before(i),
        )
    assert chain.end == whole.end
    assert [chain.link(i) for i in range(len(messages))] == whole.links


def test_what_was_cut_is_not_hashed_again():
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"said {i}"} for i in range(101)
    ]
    seen = Counting()
    turn = RequestHistory.of(KEY, resumed(messages, 99), digests=seen)
    tail = UncompactedMessages(turn, TokenCounter(), 79, HashChain(KEY, messages).link(79))
    assert (tail.start, len(tail.sizes), len(tail.links)) == (80, 21, 22)
    assert seen.hashed == 21


class Store:
    """A summary of messages 0 to `upto` that is being made until the store was asked so many
    times.
    """

    def __init__(self, turn, upto, reads):
        self.link, self.left = turn.chain.link(upto), reads

    def _done(self):
        self.left -= 1
        return self.left < 0

    async def coming(self):
        return not self._done()

    async def load(self, links):
        return [(self.link, "SUMMARY")] if self._done() else []

    async def save(self, link, text, count):
        raise AssertionError("a second summary")


def long_turn(count=61):
    return RequestHistory.of(
        KEY,
        [
            {
                "role": "user" if i % 2 == 0 else "assistant",
                "content": f"{i} " + "words about it " * 20,
            }
            for i in range(count)
        ],
    )


def room(turn, store, tokens_share):
    """tokens_share: of the budget that the turn takes."""
    counter = TokenCounter()
    tokens = sum(counter.message(m) for m in turn.messages)
    return ContextBudget(
        counter,
        "m",
        [],
        "tag",
        0,
        int(tokens / tokens_share),
        0,
        None,
        store.load,
        store.save,
        coming=store.coming,
    )


@pytest.mark.parametrize("reads", [0, 1, 2])
async def test_a_summary_that_ends_while_the_store_is_asked_is_not_made_again(reads):
    turn = long_turn()
    plan = PlacementPlan(new_epoch([], "tag", 0), "")
    store = Store(turn, 30, reads)
    assert (
        await plan_summary(
            turn,
            await fit(turn, plan, room(turn, store, 0.8)),
            room(turn, store, 0.8),
            [{"role": "assistant", "content": "so"}],
        )
        is None
    )
    store = Store(turn, 30, reads)
    fitted = await fit(turn, plan, room(turn, store, HARD + 0.05))
    assert fitted.how == ("waits for its summary" if reads else "summary reused")


class Shelf:
    """Summaries of messages 0 to each of these; none is being made."""

    def __init__(self, turn, *upto):
        self.kept, self.saved = [(turn.chain.link(i), f"SUMMARY to {i}") for i in upto], []

    async def coming(self):
        return False

    async def load(self, links):
        return [one for one in self.kept if one[0] in links]

    async def save(self, link, text, count):
        self.saved.append((link, text, count))


async def test_what_a_summary_made_ahead_stands_for_is_evicted_with_the_rest():
    turn = long_turn()
    found = room(turn, Shelf(turn, 9), 4)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), found)
    assert fitted.cut > 9
    assert fitted.how == "dropped, the summariser failed"
    assert fitted.evicted == list(range(fitted.cut + 1))


async def test_a_cut_whose_summary_is_not_kept_gets_another_where_nothing_more_can_go():
    messages = [*long_turn().messages[:30], {"role": "user", "content": "words " * 4000}]
    turn = RequestHistory.of(KEY, messages)
    shelf = Shelf(turn, 9)
    plan = PlacementPlan(new_epoch([], "tag", 0, (turn.chain.link(29), "the fallback's")), "")
    fitted = await fit(turn, plan, room(turn, shelf, 2))
    assert fitted.cut == 29
    assert "SUMMARY to 9" in fitted.plan.epoch.core
    assert [(link, count) for link, _, count in shelf.saved] == [(turn.chain.link(29), 20)]


async def test_what_a_long_tool_loop_was_for_is_in_its_summary():
    """It stays while the cut is inside of that loop, and is left out with the rest of it."""
    loop = [
        m
        for i in range(30)
        for m in (
            {"role": "assistant", "content": f"{i} " + "words about it " * 20},
            {"role": "tool", "content": f"row {i}"},
        )
    ]
    asked = {"role": "user", "content": "compare the two offers"}
    texts = []

    async def complete(messages, tokens):
        texts.append(messages[-1]["content"])
        return "SUMMARY"

    turn = RequestHistory.of(KEY, [asked, *loop])
    shelf = Shelf(turn)
    found = room(turn, shelf, 2)
    found.complete = complete
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), found)
    assert fitted.cut > 0
    assert 0 not in fitted.drop
    assert "compare the two offers" in texts[0]
    later = RequestHistory.of(
        KEY,
        [
            asked,
            *loop,
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "and then?"},
        ],
    )
    assert 0 not in (await fit(later, PlacementPlan(fitted.plan.epoch, ""), found)).drop
    tail = UncompactedMessages(later, TokenCounter(), fitted.cut, fitted.plan.epoch.cut)
    assert tail.kept_indexes(fitted.cut) == [0]
    # All of the loop is before this cut.
    assert tail.kept_indexes(len(loop) + 1) == []


async def test_a_summary_is_asked_for_once(monkeypatch):
    """One that no model makes would be paid for with each turn else."""
    turn, asked = long_turn(), []

    async def nothing(*links):
        asked.append(links)
        return []

    store = Store(turn, 30, 0)
    monkeypatch.setattr(store, "coming", nothing)
    monkeypatch.setattr(store, "load", nothing)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), room(turn, store, 0.8))
    assert await plan_summary(turn, fitted, room(turn, store, 0.8), []) is not None
    asked.clear()
    assert await plan_summary(turn, fitted, room(turn, store, 0.8), []) is None
    assert not asked


def test_no_text_has_more_tokens_than_bytes():
    turn, plan = long_turn(), PlacementPlan(new_epoch([CoreBlock("tea", "x")], "tag", 0), "")
    plan.splices[1] = [{"role": "tool", "content": "4"}]
    counted = sum(TokenCounter().message(m) for m in turn.messages)
    size = len(encode(list(turn.messages)))
    bound = at_most(turn, plan, size, "recalled", True)
    assert bound > size > counted
    assert at_most(turn, plan, size, "", False) < bound
    assert at_most(turn, plan, 0, "", False) is None
    parts = RequestHistory.of(KEY, [{"role": "user", "content": [{"type": "text"}]}])
    assert at_most(parts, plan, size, "", False) is None


async def test_a_turn_that_continues_a_counted_one_counts_what_is_new():
    whole = long_turn()
    shelf = Shelf(whole)
    budget = room(whole, shelf, 0.5)
    plan = PlacementPlan(new_epoch([], "tag", 0), "")
    first = RequestHistory.of(KEY, list(whole.messages)[:40])
    before = await fit(first, plan, budget)
    continued = Messages(first.messages.after, list(whole.messages)[40:])
    continued = RequestHistory.of(KEY, continued)
    assert (
        extend_fitted(continued, plan, before, budget).tokens
        == (await fit(whole, plan, budget)).tokens
    )
    assert (await fit(continued, plan, budget, before)).held == (
        await fit(whole, plan, budget)
    ).held


async def test_a_short_request_is_not_counted():
    turn = long_turn()
    budget = room(turn, Shelf(turn), 0.5)
    budget.token_bound = TokenBound(10)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), budget)
    assert (fitted.tokens, fitted.how) == (0, "")
    assert ensure_counted(turn, fitted, budget).tokens > 0


async def test_a_refusal_is_learned_from():
    turn = long_turn()
    budget = room(turn, Shelf(turn), 0.5)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), budget)
    for least in (None, 2 * budget.budget):
        refused = recount_after_refusal(turn, fitted, budget, least)
        assert refused.tokens >= (least or budget.budget)


@pytest.mark.parametrize("factor", [0.4, 1.0, 1.7, 5.0])
async def test_a_compaction_cuts_to_its_goal_whatever_the_upstream_counts(factor):
    turn = long_turn(401)
    shelf = Shelf(turn)
    budget = room(turn, shelf, 0.1)
    budget.counter.factors.put("m", (factor, False))
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), budget)
    counted = ensure_counted(turn, fitted, budget)
    goal = counted.tokens // 2
    cut = await compact(turn, counted, budget, goal)
    # A summary has 1,200 tokens at most, as they are counted here or there.
    assert abs(goal - cut.tokens) <= 1200 * max(1.0, factor)
    assert cut.evicted


async def test_large_results_of_tools_are_stubbed_before_anything_is_summarised():
    result = {"role": "tool", "tool_call_id": "c", "content": "row of a table " * 2000}
    turn = RequestHistory.of(
        KEY,
        [
            {"role": "user", "content": "look"},
            result,
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "and?"},
        ],
    )
    shelf = Shelf(turn)
    fitted = await compact(
        turn,
        await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), room(turn, shelf, 0.5)),
        room(turn, shelf, 2),
        1000,
    )
    assert fitted.how == "elided"
    assert list(fitted.swap) == fitted.evicted == [1]
    assert not shelf.saved


async def test_where_nothing_can_go_the_request_is_left_as_it_is():
    turn = RequestHistory.of(KEY, [{"role": "user", "content": "words " * 400}])
    shelf = Shelf(turn)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), room(turn, shelf, 2))
    assert (fitted.how, fitted.cut) == ("nothing to evict", -1)


@pytest.mark.parametrize("share", [0.2, None])
async def test_no_summary_is_planned_for_what_is_far_from_the_threshold(share):
    turn = long_turn()
    budget = room(turn, Shelf(turn), share or 0.5)
    if share is None:
        budget.budget = None
    fitted = FittedContext(PlacementPlan(new_epoch([], "tag", 0), ""))
    answers = [{"role": "assistant", "content": "x" * 10}]
    assert await plan_summary(turn, fitted, budget, answers) is None
    budget.budget, budget.token_bound = 10**6, TokenBound(10)
    assert await plan_summary(turn, fitted, budget, answers) is None


@pytest.mark.parametrize(("reported", "is_planned"), [(0, True), (1, False), (10**6, True)])
async def test_what_the_upstream_counted_tells_whether_a_summary_is_due(reported, is_planned):
    turn = long_turn()
    shelf = Shelf(turn)
    budget = room(turn, shelf, 0.8)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), budget)
    fitted.reported = reported
    assert (await plan_summary(turn, fitted, budget, []) is not None) == is_planned


async def test_where_the_upstream_counted_few_tokens_nothing_is_counted_again():
    turn = long_turn()
    budget = room(turn, Shelf(turn), 0.8)
    budget.counter = TokenCounter(lambda text: pytest.fail("counted"))
    budget.token_bound = TokenBound(10**6)
    fitted = FittedContext(PlacementPlan(new_epoch([], "tag", 0), ""), reported=1)
    assert await plan_summary(turn, fitted, budget, []) is None


async def test_no_summary_is_planned_where_one_message_is_all():
    turn = RequestHistory.of(KEY, [{"role": "user", "content": "words " * 400}])
    budget = room(turn, Shelf(turn), 0.8)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), budget)
    answers = [{"role": "assistant", "content": "x" * 2000}]
    assert await plan_summary(turn, fitted, budget, answers) is None
    assert not fitted.coming


def test_a_prompt_goes_on_where_an_answer_follows_it():
    first = Messages.of(list(long_turn().messages)[:1])
    sent = SentPrompt(
        first.after, "t", [], FittedContext(PlacementPlan(new_epoch([], "tag", 0), "")), {}
    )
    answer, user = {"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}
    assert sent.goes_on(Messages(first.after, [answer, user]))
    assert not sent.goes_on(Messages(first.after, [user]))
    assert not sent.goes_on(Messages(first.after, [answer, {"role": "system", "content": "x"}]))


async def test_an_answer_of_many_bytes_and_few_tokens_needs_no_summary():
    turn = long_turn()
    budget = room(turn, Shelf(turn), 0.5)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), budget)
    left = int(SOFT * budget.budget) - fitted.tokens
    answers = [{"role": "assistant", "content": "words " * (left // 6 + 1)}]
    assert await plan_summary(turn, fitted, budget, answers) is None


async def test_a_cut_whose_summary_is_stored_is_built_upon():
    turn = long_turn()
    shelf = Shelf(turn, 9)
    plan = PlacementPlan(new_epoch([], "tag", 0, (turn.chain.link(9), "SUMMARY to 9")), "")
    fitted = await fit(turn, plan, room(turn, shelf, 2))
    assert fitted.cut > 9
    assert [count for _, _, count in shelf.saved] == [fitted.cut - 9]


async def test_a_cut_without_a_summary_falls_back_to_the_last_one_that_has_one():
    turn = long_turn()
    shelf = Shelf(turn, 9)
    first = PlacementPlan(new_epoch([], "tag", 0, (turn.chain.link(9), "SUMMARY to 9")), "")
    marked = await fit(turn, first, room(turn, shelf, 2))
    shelf.kept += [(link, text) for link, text, _ in shelf.saved]
    lost = turn.chain.link(marked.cut + 4)
    plan = PlacementPlan(new_epoch([], "tag", 0, (lost, "a fallback")), "")
    fitted = await compact(
        turn, await fit(turn, plan, room(turn, shelf, 0.5)), room(turn, shelf, 2), 300
    )
    assert fitted.cut > marked.cut
    assert shelf.saved[-1][2] == fitted.cut - marked.cut


async def test_stubs_that_are_not_enough_are_followed_by_a_summary():
    result = {"role": "tool", "tool_call_id": "c", "content": "row of a table " * 2000}
    turn = RequestHistory.of(
        KEY, [*list(long_turn().messages)[:40], result, *list(long_turn().messages)[41:]]
    )
    shelf = Shelf(turn)
    fitted = await fit(turn, PlacementPlan(new_epoch([], "tag", 0), ""), room(turn, shelf, 20))
    assert fitted.how == "dropped, the summariser failed"
    assert shelf.saved


async def test_a_request_that_cannot_wait_for_its_summary_drops_messages_and_stores_nothing():
    turn = long_turn()
    fitted = await fit(
        turn, PlacementPlan(new_epoch([], "tag", 0), ""), room(turn, Store(turn, 30, 9), 2)
    )
    assert fitted.how == "dropped, its summary is being made"


def test_a_history_enters_at_the_cut_of_its_own_scope():
    messages = list(long_turn().messages)
    whole = HashChain(KEY, messages)
    text = encode(messages)
    first = Messages(Messages.of(()).before, messages, source=SourceText(text, 1))
    RequestHistory.of(KEY, first)
    first.mark(KEY, 30, whole.before(30), [])
    known = TextRange(text, 1, len(text) - 1)
    for key in (KEY, b"o" * 32):
        turn = RequestHistory.of(key, Messages(first.after, [messages[0]], lambda: known))
        turn.enter()
        assert (turn.mark is not None) == (key == KEY)
    turn = RequestHistory.of(KEY, Messages(first.after, [messages[0]], lambda: known))
    turn.enter()
    assert turn.messages.first(61) == list(range(30, 61))
    assert turn.chain.link(40) == whole.link(40)
    assert [turn.chain.place(whole.link(i)) for i in (40, 60, 3)] == [40, 60, 3]
    assert turn.chain.place(b"unknown") == turn.chain.place(None) == -1


@pytest.mark.parametrize("is_heavy", [False, True])
async def test_what_takes_long_to_count_is_counted_off_the_event_loop(is_heavy):
    """A message of 100,000 parts held others for .1 s."""
    turn, threads = long_turn(), set()
    turn.messages.heavy = is_heavy

    class Noting(TokenCounter):
        def message(self, message, digest=None):
            threads.add(threading.current_thread() is threading.main_thread())
            return super().message(message, digest)

    budget = ContextBudget(Noting(), "m", [], "tag", 0, 10**9, 0, None, None, None)
    plan = PlacementPlan(new_epoch([], "tag", 0), "")
    assert (await fit(turn, plan, budget)).tokens
    assert threads == {not is_heavy}
