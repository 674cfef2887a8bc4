"""Search over keywords and vectors, indexing, automatic recall.

May import `search`, `stores`, `embed` and all below them.
"""
