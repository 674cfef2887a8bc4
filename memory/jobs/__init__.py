"""Background jobs: extraction, reflection, summaries, maintenance, and their worker.

May import `retrieval`, `stores` and all below them.
"""
