"""Requests read and responses sent over ASGI: bodies, streams, keep-alives, the access log.

Knows no route and no provider. May import `wire` and `errors`.
"""
