"""Finding things again: search over words and vectors, indexing, automatic recall.

May import `search`, `stores`, `embed` and all below them.
"""
