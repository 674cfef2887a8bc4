"""The graph of shares: every member and block once, every membership a line between them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.share_graph import MAX_LINES, Share, draw_shares

KINDS = st.sampled_from(["user", "agent", "team", "project", "everyone"])
SHARES = st.lists(
    st.builds(
        Share, st.sampled_from("xyz"), st.just("goals"), KINDS, st.text(max_size=5), st.booleans()
    ),
    unique_by=lambda share: (share.block, share.kind, share.name),
)


@given(SHARES)
def test_each_membership_is_a_line_between_two_boxes(shares):
    graph = draw_shares(shares)
    assert len(graph.lines) == len(shares)
    blocks = {node.ident for node in graph.nodes if node.kind == "block"}
    assert blocks == {share.block for share in shares}
    members = [(node.kind, node.name) for node in graph.nodes if node.kind != "block"]
    assert sorted(members) == sorted({(share.kind, share.name) for share in shares})
    assert len({(node.x, node.y) for node in graph.nodes}) == len(graph.nodes)
    assert all(node.y + 26 <= graph.height for node in graph.nodes)


def test_what_a_line_says():
    graph = draw_shares(
        [Share("b", "goals", "team", "platform", True), Share("b", "goals", "everyone", "", False)]
    )
    assert [line.text for line in graph.lines] == [
        "everyone reads goals",
        "team platform writes goals",
    ]
    assert [line.write for line in graph.lines] == [False, True]


def test_a_picture_has_an_end():
    shares = [Share(str(i), "goals", "user", "ann", True) for i in range(MAX_LINES + 7)]
    graph = draw_shares(shares)
    assert (len(graph.lines), graph.cut) == (MAX_LINES, 7)
