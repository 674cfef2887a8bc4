"""Which stored answer a request continues."""

from __future__ import annotations

from memory.conversation.history import Messages, TextRange, encode
from memory.conversation.matching import (
    HashChain,
    RequestHistory,
    TurnNode,
    best_match,
    complete_node,
    find_half_answer,
    locate_node,
    recognise,
    trail_after,
)
from memory.conversation.messages import extend_chain

KEY = b"k" * 32


def user(text):
    return {"role": "user", "content": text}


def says(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


def history(*messages, seeded=False):
    return RequestHistory.of(KEY, list(messages), seeded)


def answered(turn, ident, answer, parent=None, **members):
    """The node of an answer to a request."""
    node = TurnNode(ident, 1, parent.id if parent else None, asked=turn.chain.end, **members)
    complete_node(node, parent, *extend_chain(KEY, node.asked, answer))
    return node


class Nodes:
    """The nodes of one scope."""

    def __init__(self, *nodes):
        self.nodes, self.asked = nodes, []

    def by_digest(self, digests):
        self.asked.append(len(digests))
        return [n for n in self.nodes if n.digest in digests and n.state != "open"]

    def by_chain(self, chain, digest):
        return [n for n in self.nodes if n.chain == chain and n.digest == digest]

    def find_aborted(self, asked, parent):
        return [
            n
            for n in self.nodes
            if n.state == "aborted" and (n.asked == asked or (parent and n.parent == parent))
        ]


def test_a_chain_names_a_history_and_a_message():
    one, two = history(user("a"), says("b")), history(user("x"), says("b"))
    assert one.chain.digest(1) == two.chain.digest(1)
    assert one.chain.link(1) != two.chain.link(1)
    assert one.chain.end == one.chain.link(1)


def test_a_system_message_is_no_part_of_a_named_users_history():
    assert history(system("be brief"), user("a")).chain.end == history(user("a")).chain.end
    seeded = history(system("be brief"), user("a"), seeded=True)
    assert seeded.chain.end != history(user("a"), seeded=True).chain.end


def test_a_link_is_placed_at_the_last_message_that_it_covers():
    chain = HashChain(KEY, [user("a"), says("b"), user("c")])
    assert [chain.place(chain.link(i)) for i in range(3)] == [0, 1, 2]
    assert (chain.place(None), chain.place(b"another")) == (-1, -1)
    assert (chain.before(0), chain.before(2)) == (chain.origin, chain.link(1))


def test_what_a_request_adds_follows_the_last_answer():
    turn = history(user("a"), says("b"), user("c"), user("d"))
    assert (turn.newest, turn.suffix) == (1, 2)
    assert list(turn.answers()) == [1]
    assert (history(user("a")).newest, history(user("a")).suffix) == (-1, 0)


def test_a_request_without_an_answer_continues_nothing():
    assert recognise(history(user("a")), True, Nodes()) == (None, -1)


def test_the_newest_answer_is_recognised():
    first = answered(history(user("a")), 1, says("b"))
    turn = history(user("a"), says("b"), user("c"))
    assert recognise(turn, True, Nodes(first)) == (first, 1)
    assert recognise(turn, True, Nodes()) == (None, -1)


def test_an_answer_that_the_client_changed_leaves_the_one_before():
    first = answered(history(user("a")), 1, says("b"))
    turn = history(user("a"), says("b"), user("c"), says("changed"), user("d"))
    assert recognise(turn, True, Nodes(first)) == (first, 1)


def test_a_trimmed_history_is_recognised_by_its_answer_where_the_user_is_named():
    first = answered(history(user("a"), says("b"), user("c")), 1, says("d"))
    trimmed = history(user("c"), says("d"), user("e"))
    assert recognise(trimmed, True, Nodes(first)) == (first, 1)
    assert recognise(trimmed, False, Nodes(first)) == (None, -1)


def test_nobody_is_known_by_the_exact_history_alone():
    first = answered(history(user("a"), seeded=True), 1, says("b"))
    turn = history(user("a"), says("b"), user("c"), seeded=True)
    assert recognise(turn, False, Nodes(first)) == (first, 1)


def test_an_answer_that_says_nothing_is_known_by_what_came_before_it():
    silent = answered(history(user("a")), 1, says(""))
    other = history(user("z"), says(""), user("c"))
    assert recognise(history(user("a"), says(""), user("c")), True, Nodes(silent)) == (silent, 1)
    assert recognise(other, True, Nodes(silent)) == (None, -1)


def test_among_equal_answers_the_exact_history_wins_then_the_longest_run_then_the_newest():
    here, elsewhere = history(user("a")), history(user("z"))
    exact, newer = answered(here, 1, says("ok")), answered(elsewhere, 2, says("ok"))
    turn = history(user("a"), says("ok"), user("c"))
    assert best_match(turn, 1, [newer, exact]) is exact
    run = answered(history(user("p"), says("x"), user("q")), 3, says("ok"), exact)
    lone = answered(history(user("r")), 4, says("ok"))
    trimmed = history(says("ok"), user("b"), says("ok"), user("c"))
    assert best_match(trimmed, 2, [lone, run]) is run
    assert best_match(history(says("ok")), 0, [newer, lone]) is lone
    assert best_match(history(says("ok")), 0, [newer, lone], head=2) is newer


def test_an_open_node_is_no_answer():
    turn = history(user("a"), says("b"))
    node = answered(history(user("a")), 1, says("b"))
    node.state = "open"
    assert best_match(turn, 1, [node]) is None


def test_the_beginning_of_an_aborted_answer_is_known():
    begun = answered(history(user("a")), 1, says("It was a dark night"))
    begun.state, begun.text = "aborted", "It was a dark night"
    turn = history(user("a"), says("It was"), user("go on"))
    assert find_half_answer(turn, 1, [begun]) is begun
    assert recognise(turn, True, Nodes(begun)) == (begun, 1)
    assert find_half_answer(history(user("a"), says("")), 1, [begun]) is None
    assert find_half_answer(history(user("a"), says("Another")), 1, [begun]) is None


def test_an_earlier_node_stands_at_its_history_or_as_many_answers_before():
    first = answered(history(user("a")), 1, says("b"))
    second = answered(history(user("a"), says("b"), user("c")), 2, says("d"), first)
    whole = history(user("a"), says("b"), user("c"), says("d"), user("e"))
    assert locate_node(whole, second, 3, first) == 1
    edited = history(user("A"), says("b"), user("c"), says("d"), user("e"))
    assert locate_node(edited, second, 3, first) == 1
    assert locate_node(history(user("c"), says("d"), user("e")), second, 1, first) is None
    changed = history(user("a"), says("B"), user("c"), says("d"), user("e"))
    assert locate_node(changed, second, 3, first) is None
    assert locate_node(edited, first, 3, second) is None


def test_a_node_knows_the_answers_before_it():
    first = answered(history(user("a")), 1, says("b"))
    second = answered(history(user("a"), says("b"), user("c")), 2, says("d"), first)
    assert (first.depth, second.depth, second.state) == (1, 2, "done")
    assert second.trail == first.digest[:4] + second.digest[:4]
    assert trail_after(None, b"12345678") == b"1234"


def test_an_old_answer_is_found_by_looking_further():
    first = answered(history(user("a")), 1, says("b"))
    said = [m for i in range(40) for m in (says(f"edited {i}"), user(f"{i}"))]
    nodes = Nodes(first)
    assert recognise(history(user("a"), says("b"), user("c"), *said), True, nodes) == (first, 1)
    assert len(nodes.asked) > 1


def test_digests_of_what_came_before_are_found_too():
    messages = [user("a"), says("b"), user("c")]
    whole, before = history(*messages), Messages.of(messages[:2])
    HashChain(KEY, before)
    text = encode(messages[:2])
    known = TextRange(text, 1, len(text) - 1)
    chain = HashChain(KEY, Messages(before.after, messages[2:], lambda: known))
    assert [chain.digest(i) for i in (2, 0, 1)] == [whole.chain.digest(i) for i in (2, 0, 1)]
