"""Model servers: a small port (`base`), one class for each kind of provider, and connections.

The only package that opens connections for requests. May import `config`, `models`, `wire`, `http`
and `errors`.
"""
