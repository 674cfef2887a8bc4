"""The graph of who shares what with whom: its nodes and lines as a template draws them. Pure.

Shared blocks stand in the middle. On their left are the users and agents that see them, on their
right teams, projects and everyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_LINES = 400
# Between nodes, in the picture's units.
ROW = 34.0
TOP = 24.0
WIDTH = 900.0
PLACES = {"left": 0.0, "middle": 330.0, "right": 660.0}
# Width of a node.
BOX = 240.0
CURVE = 45.0
LEFT = ("user", "agent")
RIGHT = ("team", "project", "everyone")


@dataclass(frozen=True, slots=True)
class Share:
    """A member of a shared block. kind: of the member. block, label: of the block."""

    block: str
    label: str
    kind: str
    name: str
    write: bool


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box of the picture. ident: of a block, its id. x, y: of its upper left corner."""

    kind: str
    name: str
    ident: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class GraphLine:
    """A line from a member to a block. path: of the SVG. text: what it says."""

    path: str
    write: bool
    text: str


@dataclass(frozen=True, slots=True)
class ShareGraph:
    """The picture. cut: how many memberships are left out."""

    nodes: Sequence[GraphNode]
    lines: Sequence[GraphLine]
    height: float
    cut: int = 0
    width: float = WIDTH
    box: float = BOX


def draw_shares(shares: Sequence[Share]) -> ShareGraph:
    """Return the picture of memberships, each node once, in the order of kind and name."""
    drawn_shares = sorted(
        shares, key=lambda share: (share.label, share.block, share.kind, share.name)
    )
    drawn_shares = drawn_shares[:MAX_LINES]
    blocks = list(dict.fromkeys((share.block, share.label) for share in drawn_shares))
    members = sorted({(share.kind, share.name) for share in drawn_shares})
    nodes = [
        *_column("left", [("", *member) for member in members if member[0] in LEFT]),
        *_column("middle", [(ident, "block", label) for ident, label in blocks]),
        *_column("right", [("", *member) for member in members if member[0] in RIGHT]),
    ]
    places = {(node.kind, node.ident or node.name): node for node in nodes}
    lines = [
        _connect(places[share.kind, share.name], places["block", share.block], share)
        for share in drawn_shares
    ]
    rows = max((node.y for node in nodes), default=0.0)
    return ShareGraph(nodes, lines, rows + ROW + TOP, len(shares) - len(drawn_shares))


def _column(place: str, rows: Sequence[tuple[str, str, str]]) -> list[GraphNode]:
    """Return the nodes of a column. rows: ident, kind and name of each."""
    return [
        GraphNode(kind, name, ident, PLACES[place], TOP + number * ROW)
        for number, (ident, kind, name) in enumerate(rows)
    ]


def _connect(member: GraphNode, block: GraphNode, share: Share) -> GraphLine:
    """Return a curve between the facing edges of two boxes."""
    half_row = ROW * 0.38
    if member.x < block.x:
        left_node, right_node = (member, block)
    else:
        left_node, right_node = (block, member)
    x1 = left_node.x + BOX
    y1 = left_node.y + half_row
    x2 = right_node.x
    y2 = right_node.y + half_row
    path = f"M{x1:g},{y1:g} C{x1 + CURVE:g},{y1:g} {x2 - CURVE:g},{y2:g} {x2:g},{y2:g}"
    verb = "writes" if share.write else "reads"
    name = "everyone"
    if share.kind != "everyone":
        name = f"{share.kind} {share.name}"
    return GraphLine(path, share.write, f"{name} {verb} {share.label}")
