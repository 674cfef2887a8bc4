"""The dashboard's main navigation: which pages a visitor may open."""

from __future__ import annotations

from gateway.ui.visitor import Visitor

PAGES = (
    ("Users", ""),
    ("Agents", "/agents"),
    ("Shared", "/shared"),
    ("Tools", "/tools"),
    ("Approvals", "/approvals"),
    ("Live", "/feed"),
    ("Monitors", "/monitors"),
    ("Usage", "/usage"),
    ("Jobs", "/jobs"),
    ("Keys", "/keys"),
    ("Why?", "/why"),
    ("Connect", "/connect"),
)


def list_pages(visitor: Visitor) -> list[tuple[str, str]]:
    """Return the pages of the main navigation, each with its path."""
    caller = visitor.caller
    closed_pages = set()
    if not caller.runs_it:
        closed_pages.add("Keys")
        if not caller.principal.approve:
            closed_pages.add("Approvals")
    return [(name, path) for name, path in PAGES if name not in closed_pages]
