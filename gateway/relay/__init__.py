"""Every other path of `/v1`, forwarded unchanged, and which paths a key reaches.

May import `pipeline`, `routing` and all below them.
"""
