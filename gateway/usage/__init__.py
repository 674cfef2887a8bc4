"""Usage of requests: counted on the way, priced, and written in the background.

May import `auth`, `config`, `storage`, `wire` and `errors`.
"""
