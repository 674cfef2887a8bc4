"""The gateway's own tables, API keys and usage, in the database that the memory keeps.

Their columns stand in the memory's schema, since one chain of migrations makes every table.

May import `memory` and its stores, and nothing of the gateway.
"""
