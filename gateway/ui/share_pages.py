"""The page with the graph of who shares what with whom, and the same as a list."""

from __future__ import annotations

from collections.abc import Iterator

from litestar import get
from litestar.response import Template

from gateway.management import shared_blocks as api
from gateway.management.shared_schemas import SharedBlock
from gateway.ui.share_graph import Share, draw_shares
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import AtVisit

# That the picture shows at most.
BLOCKS = 100


@get("/shared/graph")
async def graph_page(visitor: AtVisit) -> Template:
    """Draw the members of shared blocks, as far as the visitor sees them."""
    shared_filter = await api.sharing(visitor.caller, None)
    blocks_list = await api.shared_blocks.fn(visitor.caller, shared_filter, None, BLOCKS)
    shares = [share for block in blocks_list.data for share in _shares_of(block)]
    return visitor.page(
        "share-graph.html",
        graph=draw_shares(shares),
        more_blocks=blocks_list.next_cursor is not None,
        tenant=tenant_link(visitor),
    )


def _shares_of(block: SharedBlock) -> Iterator[Share]:
    for member in block.members:
        kind = "agent"
        name = member.agent
        if member.everyone:
            kind = "everyone"
            name = "everyone"
        elif member.user:
            kind = "user"
            name = member.user
        elif member.team:
            kind = "team"
            name = member.team
        elif member.project:
            kind = "project"
            name = member.project
        yield Share(block.id, block.label, kind, name, member.write)


ROUTES = (graph_page,)
