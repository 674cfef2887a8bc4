"""Every other path of `/v1`, passed on as it came: which paths a key reaches, and the bytes both
ways.

May import `pipeline`, `routing` and all below them.
"""
