"""Model servers: one small port (`base`), a wire a kind of provider, and the connections to them.

The only package that opens connections for requests. May import `config`, `models`, `wire`, `http`
and `errors`.
"""
