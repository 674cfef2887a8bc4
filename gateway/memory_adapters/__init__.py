"""Implements the ports of `memory` (embedding, summaries, background models) with our upstreams.

May import `state`, `accounting`, `routing` and all below them.
"""
