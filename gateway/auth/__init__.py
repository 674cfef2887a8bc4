"""Authentication and identity: API keys to principals, and the user whom a request is about.

Anything unclear is refused. May import `config`, `http`, `storage` and `errors`.
"""
