"""The management API, `/memory/v1`: users, blocks, passages, conversations, keys, usage and jobs.

May import `state`, `auth`, `http` and all below them, and `memory` by its public names.
"""
