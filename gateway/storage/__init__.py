"""The gateway's own tables, API keys and usage, in the memory's database.

Their columns are defined in the memory's schema, since one chain of migrations creates all tables.
May import `memory` and its stores, and nothing of the gateway.
"""
