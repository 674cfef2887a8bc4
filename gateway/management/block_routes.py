"""The routes of blocks: of a user, shared, and who sees these."""

from __future__ import annotations

from gateway.management import blocks, shared_blocks, shared_members

ROUTES = (*blocks.ROUTES, *shared_blocks.ROUTES, *shared_members.ROUTES)
