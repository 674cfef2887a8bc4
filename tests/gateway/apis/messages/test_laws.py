"""The laws of the format, whatever a model says, however it is cut, whoever echoes it."""

from __future__ import annotations

import copy
import itertools
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.base import FORMAT, RoundParts
from gateway.apis.messages.messages_format import MESSAGES
from gateway.apis.messages.messages_reply import MessagesMask, lift
from gateway.wire.own_marks import ORPHANED, has_mark
from gateway.wire.placement import BY
from gateway.wire.sse import SseFramer
from memory import Messages
from memory.context.window import NOTHING_LEFT_OUT
from memory.core.tool_definitions import ALL, OURS
from tests.e2e.messages.client import MARK, events_of, fold, result, unmarked, user
from tests.wire_models import MessagesModel

NAMES = st.sampled_from(["alpha", "beta", "x-1"])
WORDS = st.text(max_size=12)
SOME_WORDS = st.text(min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
INPUTS = st.dictionaries(NAMES, VALUES, max_size=2)
THINKING = st.builds(lambda t: {"type": "thinking", "thinking": t}, WORDS)
TEXTS = st.builds(lambda t: {"type": "text", "text": t}, SOME_WORDS)
OTHERS = st.sampled_from(
    [
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "hologram", "beam": {"w": [1, None]}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"a": 1}]},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}},
    ]
)
PLAIN = THINKING | TEXTS | OTHERS


def calls_of(names):
    return st.builds(
        lambda name, given: {"type": "tool_use", "name": name, "input": given},
        st.sampled_from(names),
        INPUTS,
    )


MINE, THEIRS = calls_of(sorted(OURS)), calls_of(["weather", "Read"])


def mixed(*needed, also=PLAIN):
    """Blocks in any order, of each of these at least one."""
    some = st.tuples(*(st.lists(n, min_size=1, max_size=2) for n in needed))
    return st.tuples(some, st.lists(also, max_size=3)).flatmap(
        lambda found: st.permutations([*itertools.chain(*found[0]), *found[1]])
    )


HIDDEN = mixed(MINE)
LAST = mixed(TEXTS) | mixed(MINE, THEIRS) | mixed(THEIRS)
TURNS = st.tuples(st.lists(HIDDEN, max_size=3), LAST).map(lambda t: [*t[0], t[1]])
EXTRA = st.dictionaries(st.sampled_from(["stop_details", "container", "unheard_of"]), VALUES)


def replies(turn):
    """The rounds of a turn as whole answers, each block with what the API gives it."""
    out, model = [], MessagesModel()
    for n, round_ in enumerate(turn):
        blocks = []
        for block in copy.deepcopy(round_):
            ident = f"{n}_{len(blocks)}"
            if block["type"] == "thinking":
                block["signature"] = f"sig_{ident}"
                model.signed[block["signature"]] = block["thinking"]
            if block["type"] == "tool_use":
                block = {"type": "tool_use", "id": f"toolu_{ident}", **block}
            blocks.append(block)
        calls = any(b["type"] == "tool_use" for b in blocks)
        out.append(
            {
                "id": f"msg_{n}",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": blocks,
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 9 + n, "output_tokens": n},
            }
        )
    return out, model


def played(rounds, *, sizes=(), whole=False):
    """What a turn shows of its rounds, and what it keeps of them.

    sizes: of the pieces that the bytes arrive in; whole: the rounds come whole.
    """
    mask, ledger, shown = MessagesMask(OURS, None), MESSAGES.hidden_rounds(), b""
    for n, reply in enumerate(rounds):
        if whole:
            found = mask.take_whole(copy.deepcopy(reply))
        else:
            for event in framed(reply, sizes):
                shown += mask.take(json.loads(event.data), event.event_bytes)
            found = mask.close()[1]
        if found.ours:
            ledger.add_round(
                found, [f"Done {i}." for i, _ in enumerate(found.ours)], Messages.of([]), ""
            )
        if not found.ours:
            ledger.record_last(found, "")
        elif found.theirs:
            ledger.record_mixed()
        if n + 1 < len(rounds):
            mask.start_next_round()
    return mask, ledger, shown + mask.finish() + mask.end(mask.usage)


def framed(reply, sizes):
    """The events of a stream that arrives in pieces of these sizes."""
    told = MessagesModel().events(reply)
    data = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in told).encode()
    framer, found = SseFramer(), []
    for size in sizes or (len(data),):
        found += framer.feed(data[:size])
        data = data[size:]
    return [*found, *framer.feed(data)]


@given(LAST, EXTRA)
def test_to_fold_what_was_lifted_is_the_reply(round_, extra):
    (reply,), _ = replies([round_])
    reply |= extra
    found = MessagesMask((), None).take_whole(copy.deepcopy(reply))
    assert found.reply == reply
    # The same in the words of a client.
    told = [{**e, "delta": e.get("delta") or {}} for e in lift(reply)]
    assert fold(told) | {"usage": reply["usage"]} == reply


@given(TURNS, st.lists(st.integers(1, 40), max_size=40))
def test_however_a_stream_is_cut_it_shows_the_same(turn, sizes):
    rounds, _ = replies(turn)
    assert played(rounds, sizes=sizes)[2] == played(rounds)[2]


@given(TURNS)
def test_a_streamed_turn_and_a_plain_one_are_one_message(turn):
    rounds, _ = replies(turn)
    _, _, shown = played(rounds)
    mask, _, _ = played(rounds, whole=True)
    assert fold(events_of(shown.decode())) == mask.merged()


@given(TURNS)
def test_nothing_owned_is_visible_and_everything_else_is(turn):
    rounds, _ = replies(turn)
    _, _, shown = played(rounds)
    # Which takes no index out of order.
    message = fold(events_of(shown.decode()))
    blocks = [b for r in rounds for b in r["content"]]
    owned = [b for b in blocks if b.get("name") in OURS]
    assert [_unmarked(b) for b in message["content"]] == [b for b in blocks if b not in owned]
    assert not [b["id"] for b in owned if f'"{b["id"]}"' in shown.decode()]
    assert message["id"] == "msg_0"
    visible = any(b["type"] == "tool_use" for b in message["content"])
    assert message["stop_reason"] == ("tool_use" if visible else "end_turn")


def _unmarked(block):
    """A block as it came: thinking that led to a call of ours is marked, and nothing else."""
    signature = block.get("signature")
    return {**block, "signature": signature.removeprefix(ORPHANED)} if signature else block


@given(TURNS)
def test_thinking_that_led_to_a_call_of_ours_is_marked_and_no_other(turn):
    rounds, _ = replies(turn)
    _, _, shown = played(rounds)
    marks = [has_mark(b, ORPHANED) for b in fold(events_of(shown.decode()))["content"]]
    wanted = [
        b["type"] == "thinking" and bool(b["signature"]) and follower.get("name") in OURS
        for r in rounds
        for b, follower in zip(r["content"], [*r["content"][1:], {}], strict=False)
        if b.get("name") not in OURS
    ]
    assert marks == wanted


@given(LAST.filter(lambda r: not any(b.get("name") in OURS for b in r)))
def test_a_turn_of_one_round_leaves_as_it_came(round_):
    (reply,), _ = replies([round_])
    _, _, shown = played([reply])
    came = b"".join(e.event_bytes for e in framed(reply, ()))
    assert (
        shown[: shown.index(b"event: message_delta")]
        == (came[: came.index(b"event: message_delta")])
    )


ECHOES = (
    lambda blocks: blocks,
    lambda blocks: [dict(reversed(b.items())) for b in blocks],
    lambda blocks: [b for b in blocks if "thinking" not in b["type"]],
    lambda blocks: [
        {**b, **MARK} if b["type"] == "text" and b is blocks[-1] else b for b in blocks
    ],
    lambda blocks: [{k: v for k, v in b.items() if k != "caller"} for b in blocks],
)


@given(TURNS, st.sampled_from(ECHOES), st.booleans())
def test_an_echo_is_restored_to_what_happened(turn, echo, apart):
    rounds, model = replies(turn)
    mask, ledger, _ = played(rounds, whole=True)
    theirs = [b for b in mask.shown if b["type"] == "tool_use"]
    answers = [result(b, f"Their {b['id']}.") for b in theirs]
    after = [user(a) for a in answers] if apart else [user(*answers)]
    after = after if answers else [user("And?")]
    said = {"role": "assistant", "content": echo(copy.deepcopy(mask.shown))}
    body = {"model": "m", "max_tokens": 9, "messages": [user("Go"), said, *after]}
    sent = composed(body, {1: ledger.recorded} if ledger.recorded else {})
    assert not list(model.check({**sent, "tools": [{"name": "t", "type": "t"}]}))
    if ledger.recorded is None:
        assert sent["messages"] == body["messages"]
        return
    replied = [m["content"] for m in sent["messages"] if m["role"] == "assistant"]
    assert unmarked(replied) == [r["content"] for r in rounds]
    told = [b for m in sent["messages"] if m["role"] == "user" for b in m["content"]]
    order = [b["id"] for r in rounds for b in r["content"] if b["type"] == "tool_use"]
    assert [b["tool_use_id"] for b in told if isinstance(b, dict) and "tool_use_id" in b] == order


def composed(body, splices=None, notes=None, core="", tools=False, swap=None):
    """A body with memory in its places."""
    facts = MESSAGES.facts(body, {})
    prompt = SimpleNamespace(
        messages=facts.history,
        notes=notes or {},
        splices=splices or {},
        recall="",
        core=core,
        tools=ALL,
        drop=NOTHING_LEFT_OUT,
        swap=swap or {},
    )
    parts = RoundParts(body, prompt, MESSAGES.hidden_rounds(), tools, view=facts.view)
    return MESSAGES.compose(parts, "a/m")


BLOCKS = st.lists(TEXTS | OTHERS, min_size=1, max_size=3)
SYSTEMS = st.none() | SOME_WORDS | st.lists(TEXTS, min_size=1, max_size=3)
TALKS = st.lists(SOME_WORDS | BLOCKS, min_size=1, max_size=4)


@given(SYSTEMS, TALKS, st.booleans(), st.booleans())
def test_what_is_placed_can_be_taken_out_again(system, talk, tools, noted):
    roles = ("user", "assistant")
    # The last is the user's.
    messages = [{"role": roles[(len(talk) - 1 - i) % 2], "content": c} for i, c in enumerate(talk)]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "unheard_of": 1}
    body |= {} if system is None else {"system": system}
    body |= {"tools": [{"name": "weather", "input_schema": {}}]} if tools else {}
    before = copy.deepcopy(body)
    lead = len(system) if isinstance(system, list) else int(system is not None)
    notes = {lead + len(messages) - 1: "<note>"} if noted else {}
    sent = composed(body, notes=notes, core="CORE", tools=True)
    assert sent == composed(body, notes=notes, core="CORE", tools=True)
    assert body == before
    assert stripped(sent, before) == before


def stripped(sent, before):
    out = copy.deepcopy(sent)
    out["tools"] = [t for t in out["tools"] if t["name"] not in OURS]
    if not out["tools"]:
        del out["tools"]
    system = out.pop("system")
    if isinstance(system, list):
        assert system[-1] == {"type": "text", "text": "CORE"}
        out["system"] = system[:-1]
    elif system != "CORE":
        out["system"] = system.removesuffix("\n\nCORE")
    last = out["messages"][-1]
    if last["content"][-1] == {"type": "text", "text": "<note>"}:
        last["content"] = last["content"][:-1]
        if isinstance(before["messages"][-1]["content"], str):
            last["content"] = last["content"][0]["text"]
    return {k: out[k] for k in before} if out.keys() == before.keys() else out


@given(TALKS, st.integers(0, 3))
def test_a_moving_mark_changes_nothing_that_the_memory_sees(talk, at):
    messages = [{"role": "user", "content": c} for c in talk]
    moved = copy.deepcopy(messages)
    content = moved[at % len(moved)]["content"]
    if isinstance(content, str):
        moved[at % len(moved)]["content"] = [{"type": "text", "text": content, **MARK}]
    else:
        content[-1] |= MARK
    plain, marked = (list(MESSAGES.facts({"messages": m}, {}).history) for m in (messages, moved))
    assert marked == plain
    assert unmarked(moved) is not moved


@pytest.mark.parametrize("ident", ["toolu_1", None, 5, [], {}, ["a"]])
def test_a_long_result_is_cut_whatever_its_id_is_and_words_beside_it_stay(ident):
    use = {"type": "tool_use", "id": ident, "name": "f", "input": {}}
    long_result = {"type": "tool_result", "tool_use_id": ident, "content": "long"}
    words = {"type": "text", "text": "And now?"}
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [long_result, words]},
        ],
    }
    hidden = [{"role": "assistant", "content": [{**use, "id": "toolu_2"}]}]
    splices = {1: [{FORMAT: "messages", BY: "a/m"}, *hidden]}
    sent = composed(body, splices, swap={2: {"role": "tool", "content": "stub"}})["messages"]
    assert sent[1]["content"] == [use]
    assert sent[2]["content"] == [{**long_result, "content": "stub"}, words]
