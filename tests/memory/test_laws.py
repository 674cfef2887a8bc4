"""The laws of placement, over random lives of conversations: edits, regenerations, trims, tool
loops, API edits, evictions, idle gaps, two users and strangers at once. A model client keeps its
history; a model store keeps the nodes.
"""

from __future__ import annotations

import itertools
import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gateway.wire.placement import Placement, place_memory
from memory.context.epoch import CurrentMemory, EpochPolicy, PreviousTurn, new_epoch, new_node, plan
from memory.context.window import SummarizedGap
from memory.conversation.matching import RequestHistory, TurnNode, complete_node, recognise
from memory.conversation.messages import extend_chain
from memory.core.blocks import CoreBlock, append_line, apply_note, compile_core, unescape
from memory.scope import Scope

OUR_CALL = "core_memory_append"


class Store:
    """One scope's nodes, epochs and blocks (by branch), in dicts."""

    def __init__(self, user):
        self.scope = Scope("t", user, "default", b"s" * 32)
        self.nodes: dict[int, TurnNode] = {}
        self.epochs = {}
        self.blocks = {0: {"human": CoreBlock("human"), "persona": CoreBlock("persona", "kind")}}
        self.edits = 0

    def by_digest(self, digests):
        return [n for n in self.nodes.values() if n.digest in digests and n.state != "open"]

    def by_chain(self, chain, digest):
        return [n for n in self.nodes.values() if n.chain == chain and n.state == "done"]

    def aborted(self, asked, parent):
        return [
            n
            for n in self.nodes.values()
            if n.state == "aborted" and (n.asked == asked or (parent and n.parent == parent))
        ]

    def past(self, turn):
        node, at = recognise(turn, self.scope.is_named, self)
        if node is None:
            return PreviousTurn()
        ids = [*node.carriers, node.id]
        held = [self.nodes[i] for i in ids if self.nodes[i].note or self.nodes[i].hidden]
        return PreviousTurn(
            node, at, self.epochs.get(node.epoch), [n for n in held if n.epoch == node.epoch]
        )

    def ancestors(self, node):
        while node is not None:
            yield node.id
            node = self.nodes.get(node.parent)


class Life(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.ids = itertools.count(1)
        self.clock = 0.0
        self.stores = {u: Store(u) for u in ("ada", "bob", None)}
        self.chats: list[tuple[str | None, list]] = []
        # Epoch and node line -> messages sent last.
        self.sent: dict[str, list] = {}
        # Node -> what only its branch may know.
        self.secrets: dict[int, str] = {}

    @rule(user=st.sampled_from(["ada", "bob", None]))
    def open_chat(self, user):
        self.chats.append((user, [{"role": "system", "content": "be brief"}]))

    @rule(data=st.data())
    def say(self, data):
        if chat := self._chat(data):
            chat[1].append(
                {"role": "user", "content": data.draw(st.sampled_from(["hi", "more", "why?"]))}
            )
            self._request(chat, data)

    @rule(data=st.data())
    def regenerate_or_edit(self, data):
        chat = self._chat(data)
        users = [i for i, m in enumerate(chat[1]) if m["role"] == "user"] if chat else []
        if not users:
            return
        at = data.draw(st.sampled_from(users))
        history = chat[1][: at + 1]
        if data.draw(st.booleans()):
            history[at] = {"role": "user", "content": "edited"}
        self.chats.append((chat[0], history))
        self._request(self.chats[-1], data)

    @rule(data=st.data())
    def trim(self, data):
        chat = self._chat(data)
        if chat and len(chat[1]) > 3:
            turns = [i for i, m in enumerate(chat[1]) if m["role"] == "user"]
            cut = data.draw(st.sampled_from(turns or [1]))
            del chat[1][1:cut]

    @rule(data=st.data())
    def edit_from_outside(self, data):
        store = self.stores[data.draw(st.sampled_from(["ada", "bob"]))]
        store.blocks[0]["human"] = CoreBlock(
            "human", data.draw(st.sampled_from(["", "set by API", "a\nb"]))
        )
        store.edits += 1

    @rule(seconds=st.sampled_from([1, 400]))
    def wait(self, seconds):
        self.clock += seconds

    def _chat(self, data):
        return data.draw(st.sampled_from(self.chats)) if self.chats else None

    def _request(self, chat, data):
        user, history = chat
        store = self.stores[user]
        turn = RequestHistory.of(store.scope.key, history, not user)
        past = store.past(turn)
        branch = past.node.branch if past.node and not user else 0
        blocks = store.blocks[branch]
        made = plan(
            turn,
            past,
            CurrentMemory(list(blocks.values()), store.scope.tag, store.edits, self.clock),
            EpochPolicy(note_chars=300),
        )
        drop = SummarizedGap()
        # Eviction: a fresh epoch that stands for a beginning.
        if len(history) > 8 and data.draw(st.booleans()):
            last = max(i for i, m in enumerate(history[:-2]) if m["role"] == "user" and i > 0)
            made.epoch = new_epoch(
                list(blocks.values()),
                store.scope.tag,
                store.edits,
                (turn.chain.before(last), "so far"),
            )
            made.reason, made.notes, made.splices, made.places, made.note, made.told = (
                "compaction",
                {},
                {},
                {},
                "",
                {},
            )
        if made.epoch.cut in turn.chain.links:
            last = turn.chain.links.index(made.epoch.cut)
            drop = SummarizedGap(
                last, tuple(i for i in range(last + 1) if i == 0 or history[i]["role"] == "system")
            )
        body = place_memory(
            {"messages": history}, Placement(made.epoch.core, made.notes, made.splices, drop)
        )
        self._check_invariant(store, body, made, blocks, turn)
        self._check_valid(body["messages"])
        self._check_prefix(made, body["messages"], past, turn)
        self._check_hidden(store, body, turn, past)
        self._answer(chat, data, (store, turn, past, made, branch))

    def _check_invariant(self, store, body, made, blocks, turn):
        told = dict(made.epoch.blocks)
        assert made.epoch.core in body["messages"][0]["content"]
        frozen = compile_core(
            [CoreBlock(k, v, blocks[k].description) for k, v in made.epoch.blocks.items()],
            store.scope.tag,
        )
        assert made.epoch.core.startswith(frozen)
        for m in body["messages"]:
            if m["role"] == "user":
                for span in re.findall(
                    r"<memory_updates tag=.*?</memory_updates>", m["content"], re.DOTALL
                ):
                    told = apply_note(told, span)
        waiting = turn.messages[-1]["role"] != "user"
        assert told == {k: b.value for k, b in blocks.items()} or waiting

    def _check_valid(self, messages):
        pending: list[str] = []
        for m in messages:
            if m["role"] == "tool":
                assert m["tool_call_id"] in pending
                pending.remove(m["tool_call_id"])
            else:
                assert not pending
                pending = [c["id"] for c in m.get("tool_calls") or []]
        assert not pending

    def _check_prefix(self, made, messages, past, turn):
        """What an epoch sent down one line is a prefix of what it sends later down that line."""
        if (
            not made.reason
            and past.node
            and (before := self.sent.get((made.epoch.id, past.node.id)))
        ):
            own, out = before
            # The client itself kept its past as it was.
            if turn.messages[: len(own)] == own:
                assert messages[: len(out)] == out

    def _check_hidden(self, store, body, turn, past):
        line = set(store.ancestors(past.node)) if past.node else set()
        for m in body["messages"]:
            for found in re.findall(r"hidden by (\d+)", str(m.get("tool_calls"))):
                assert int(found) in line
                assert store.nodes[int(found)].digest in turn.chain.digests
        if not store.scope.is_named:
            for node, word in self.secrets.items():
                assert word not in str(body["messages"][0]) or node in line

    def _answer(self, chat, data, made_of):
        store, turn, past, made, branch = made_of
        node = new_node(next(self.ids), 1, turn, past, made)
        kind = data.draw(st.sampled_from(["text", "text", "edit", "mixed", "fail"]))
        if kind == "fail":
            return
        answer = {
            "role": "assistant",
            "content": data.draw(st.sampled_from(["ok", f"answer {node.id}"])),
        }
        if kind in ("edit", "mixed"):
            self._edit(store, node, branch)
        if kind == "mixed":
            theirs = {
                "id": f"call_{node.id}",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
            }
            ours = {
                "id": "call_0",
                "type": "function",
                "function": {"name": OUR_CALL, "arguments": f"hidden by {node.id}"},
            }
            answer["tool_calls"] = [theirs]
            node.hidden = [
                {**answer, "tool_calls": [ours, theirs]},
                {"role": "tool", "tool_call_id": "call_0", "content": "Saved."},
            ]
        complete_node(node, past.node, *extend_chain(store.scope.key, node.asked, answer))
        node.at = self.clock
        store.nodes[node.id] = node
        store.epochs[made.epoch.id] = made.epoch
        last = turn.chain.links.index(made.epoch.cut) if made.epoch.cut in turn.chain.links else 0
        sent = place_memory(
            {"messages": turn.messages},
            Placement(made.epoch.core, made.notes, made.splices, SummarizedGap(last, (0,))),
        )
        self.sent[made.epoch.id, node.id] = list(turn.messages), sent["messages"]
        chat[1].append(answer)
        if kind == "mixed":
            chat[1].append({"role": "tool", "tool_call_id": theirs["id"], "content": "42"})
            if data.draw(st.booleans()):
                self._request(chat, data)

    def _edit(self, store, node, branch):
        word = f"secret{node.id}."
        if store.scope.is_named:
            store.blocks[0]["human"] = append_line(store.blocks[0]["human"], word)
        else:
            self.secrets[node.id] = word
            store.blocks[node.id] = {
                **store.blocks[branch],
                "human": append_line(store.blocks[branch]["human"], word),
            }
            node.branch = node.id


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_escaped_text_survives_the_note():
    told, now = {"human": "x"}, {"human": "x\n</human>"}
    from memory.core.blocks import note

    assert "</human></human>" not in note(told, now, "t")
    assert apply_note(told, note(told, now, "t")) == now
    assert unescape("&lt;") == "<"
