"""What is evicted: whole groups, oldest first, as few as will do; never the newest message of the
user.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.context.tokens import TokenCounter, estimate
from memory.context.window import (
    CORE_SHARE,
    LARGE_RESULT_TOKENS,
    SummarizedGap,
    budget,
    elidable,
    eviction_index,
    fit_blocks,
    groups,
    groups_within_turn,
    protected_groups,
    reserved_output,
    stub,
)
from memory.core.blocks import CoreBlock, compile_core, elements


def long_block(label, size):
    return CoreBlock(label, "x" * size)


@st.composite
def chats(draw):
    """A valid history: turns of a user's message, any tool rounds, an answer; it ends in a user's
    message or in results.
    """
    out = [{"role": "system", "content": "s"}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 5))):
        out.append({"role": "user", "content": f"u{turn}"})
        for step in range(draw(st.integers(0, 2))):
            n = draw(st.integers(1, 2))
            out.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"{turn}.{step}.{i}"} for i in range(n)],
                }
            )
            out += [
                {"role": "tool", "tool_call_id": f"{turn}.{step}.{i}", "content": "r"}
                for i in range(n)
            ]
        out.append({"role": "assistant", "content": f"a{turn}"})
    return [*out, {"role": "user", "content": "newest"}] if draw(st.booleans()) else out


@given(chats(), st.data())
def test_a_cut_takes_whole_groups_and_leaves_the_newest(messages, data):
    sizes = [data.draw(st.integers(1, 50)) for _ in messages]
    room = data.draw(st.integers(0, 400))
    at = eviction_index(messages, sizes, room)
    found = groups(messages)
    assert at == 0 or at in {g.end for g in found}
    assert all(g.start >= at for g in protected_groups(messages, found))
    rest = [m for m in messages[at:] if m["role"] != "system"]
    called = {c["id"] for m in rest for c in m.get("tool_calls") or []}
    assert {m["tool_call_id"] for m in rest if m["role"] == "tool"} <= called
    left = sum(s for m, s in zip(messages[at:], sizes[at:], strict=True) if m["role"] != "system")
    stuck = next(g for g in found if g.start >= at) in protected_groups(messages, found)
    assert left <= room or stuck
    assert at == 0 or rest[0]["role"] == "user" or stuck


@given(chats(), st.data())
def test_the_last_resort_keeps_the_newest_group(messages, data):
    sizes = [data.draw(st.integers(1, 50)) for _ in messages]
    gone = groups_within_turn(messages, sizes, data.draw(st.integers(0, 100)), 0)
    assert not set(gone) & protected_groups(messages, groups(messages))
    assert gone == sorted(gone, key=lambda g: g.start)


@given(chats(), st.integers(0, 20))
def test_only_large_old_results_become_stubs(messages, until):
    sizes = [LARGE_RESULT_TOKENS + i for i in range(len(messages))]
    for i in elidable(messages, sizes, until):
        assert i < until
        assert messages[i]["role"] == "tool"
        assert stub(messages[i], sizes[i])["tool_call_id"] == messages[i]["tool_call_id"]


@given(st.integers(100, 2_000_000), st.none() | st.integers(1, 100_000))
def test_the_budget_is_the_window_without_the_answer_and_never_nothing(window, asked):
    assert 0 < budget(window, asked) <= window
    assert reserved_output(8000, None) == 2000
    assert reserved_output(200_000, None) == 4096


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_is_never_fewer_tokens(a, b):
    assert estimate(a + " " + b) + 2 >= max(estimate(a), estimate(b))


def test_images_and_calls_count_and_known_messages_are_counted_once():
    counter = TokenCounter()
    image = {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "data:" + "x" * 100_000, "detail": "low"}}
        ],
    }
    assert counter.message(image) < 200
    assert (
        counter.message(
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "x " * 100}}]}
        )
        > 50
    )
    assert counter.message({"role": "user", "content": "a b c"}, b"d") == counter.message(
        {"role": "user", "content": "x-y-z"[:5]}, b"d"
    )


def test_what_an_upstream_reports_corrects_the_estimate():
    counter = TokenCounter()
    for _ in range(30):
        counter.correct("m", 1000, 700)
    assert 690 <= counter.scale("m", 1000) <= 730
    assert counter.scale("other", 1000) == 1000


def test_no_messages_have_no_protected_groups_and_none_to_evict():
    assert protected_groups([], []) == set()
    system = [{"role": "system", "content": "x"}]
    assert eviction_index(system, [9], 0) == 0
    assert groups_within_turn(system, [9], 0, 0) == []


def test_a_gap_counts_and_holds_what_is_left_out():
    gap = SummarizedGap(4, (1,))
    assert (len(gap), 0 in gap, 1 in gap, 5 in gap) == (4, True, False, False)
    assert list(gap.remaining_indexes(0, 7)) == [1, 5, 6]


def test_a_reservation_follows_the_client_or_the_window():
    assert (reserved_output(8000, None), reserved_output(8000, 9)) == (2000, 9)
    assert reserved_output(128_000, None) == 4096


blocks = st.lists(
    st.builds(long_block, st.text("abc", min_size=1, max_size=4), st.integers(0, 3000)),
    max_size=8,
    unique_by=lambda b: b.label,
)


@given(blocks, st.none() | st.integers(0, 20_000))
def test_blocks_take_at_most_half_of_a_window_and_the_others_are_named(found, window):
    fitting, left_out = fit_blocks(found, window, len)
    assert {b.label for b in fitting} | {*left_out} == {b.label for b in found}
    assert [b for b in found if b in fitting] == fitting
    if window is None:
        assert left_out == []
    else:
        assert sum(len(elements([b])) for b in fitting) <= CORE_SHARE * window or not left_out
        # What is left out has no place beside those before it.
        for label in left_out:
            before = [b for b in fitting if b.label < label]
            (missing,) = [b for b in found if b.label == label]
            taken = sum(len(elements([b])) for b in [*before, missing])
            assert taken > int(CORE_SHARE * window)


@given(blocks, st.integers(0, 20_000), st.randoms(use_true_random=False))
def test_the_same_blocks_give_the_same_core_text(found, window, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    texts = {compile_core(fit_blocks(b, window, len)[0], "t") for b in (found, shuffled)}
    assert len(texts) == 1
