"""The ports of `memory` (embedding, summaries, background models) over our upstreams.

May import `state`, `accounting`, `routing` and all below them.
"""
