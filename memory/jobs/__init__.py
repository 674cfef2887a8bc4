"""Work in the background: extraction, reflection, summaries, maintenance, and the worker that runs
it.

May import `retrieval`, `stores` and all below them.
"""
