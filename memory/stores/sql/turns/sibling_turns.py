"""Turns that another turn of the same conversation replaced, where its client names it.

Such a conversation has no forks: its turns are a tree. A turn that was asked behind the same answer
as an earlier one, after that had ended, replaces it once it went on. Two first turns may also be
two talks under one name (a channel whose bot began anew), which replace nothing: there an edit has
most of the words that it replaces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from sqlalchemy import Connection, bindparam, select

from memory.ids import time_of
from memory.search.folding import fold_text
from memory.search.small_talk import is_small_talk
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute

# Of a conversation, the newest, that are looked at.
MAX_NODES = 1000
# First turns, the newest, that are compared.
MAX_FIRST = 20
# Of two first messages: what is compared, in pieces of so many characters, and the share of the
# pieces that an edit leaves.
COMPARED_CHARACTERS = 400
PIECE_CHARACTERS = 3
EDITED_SHARE = 0.5
m = t.messages.c
n = t.nodes.c
NEWEST_NODES = (
    select(n.id, n.parent, n.turn, n.state, n.at)
    .where(n.conversation == bindparam("conversation"))
    .order_by(n.id.desc())
    .limit(MAX_NODES)
)
FIRST_MESSAGES = (
    select(m.node, m.content)
    .where(m.node.in_(bindparam("nodes", expanding=True)), m.role == "user")
    .order_by(m.id)
)
Children = Mapping[int, Sequence[Any]]


def find_lost_nodes(conn: Connection, conversation: int) -> Set[int]:
    """Return the nodes of a conversation that another of its turns replaced."""
    rows = list(execute(conn, NEWEST_NODES, {"conversation": conversation}))
    rows.reverse()
    children: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        children[row.parent or 0].append(row)
    del children[0][:-MAX_FIRST]
    texts: Mapping[int, str] = {}
    if len(children[0]) > 1:
        texts = _first_messages(conn, [row.id for row in children[0]])
    lost: set[int] = set()
    # In the order of time: what was lost with its beginning is not looked at again.
    for parent, siblings in children.items():
        for index, earlier in enumerate(siblings[:-1]):
            if earlier.id in lost:
                continue
            nodes = list(_subtree(children, earlier))
            later_siblings = siblings[index + 1 :]
            winner = next((s for s in later_siblings if _replaces(children, s, nodes)), None)
            if winner and (parent or _is_edit(texts, winner.id, earlier.id, len(nodes))):
                lost.update(row.id for row in nodes)
    return lost


def _first_messages(conn: Connection, nodes: Sequence[int]) -> Mapping[int, str]:
    """Return the user's first message of each node."""
    texts: dict[int, str] = {}
    for node, content in conn.execute(FIRST_MESSAGES, {"nodes": nodes}):
        texts.setdefault(node, content)
    return texts


def _subtree(children: Children, root: Any) -> Iterator[Any]:
    """Yield a node and all that followed it."""
    waiting = [root]
    while waiting:
        row = waiting.pop()
        yield row
        waiting += children.get(row.id, ())


def _replaces(children: Children, later: Any, nodes: Sequence[Any]) -> bool:
    """Tell whether a turn went on that began when an earlier one had ended.

    nodes: of that one, and of what followed it.
    Answers of one request replace nothing, and neither does a turn that was asked beside another.
    """
    if later.turn == nodes[0].turn or not children.get(later.id):
        return False
    newest = max(nodes, key=lambda row: row.id)
    was_answered_later = newest.state == "done" and newest.at > time_of(later.id)
    return newest.id < later.id and not was_answered_later


def _is_edit(texts: Mapping[int, str], later: int, earlier: int, size: int) -> bool:
    """Tell whether a first message is another one, edited. size: the nodes of that one.

    What says the same may be a new talk: only an answer without a sequel was made anew.
    """
    words, earlier_words = (
        fold_text(texts.get(node, "")[:COMPARED_CHARACTERS]) for node in (later, earlier)
    )
    if words == earlier_words:
        return size == 1
    if is_small_talk(words) or is_small_talk(earlier_words):
        return False
    return _shared_part(words, earlier_words) >= EDITED_SHARE


def _shared_part(text: str, other_text: str) -> float:
    """Return the share of two texts' pieces that both have (Dice, Ecology 26, 1945): 0 to 1.

    In linear time, since a search compares many.
    """
    pieces, other_pieces = _count_pieces(text), _count_pieces(other_text)
    total = pieces.total() + other_pieces.total()
    return 2 * (pieces & other_pieces).total() / total if total else 0.0


def _count_pieces(text: str) -> Counter[str]:
    return Counter(
        text[begin : begin + PIECE_CHARACTERS] for begin in range(len(text) - PIECE_CHARACTERS + 1)
    )
