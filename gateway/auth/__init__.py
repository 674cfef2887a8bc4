"""Who calls, and whose memory it is: keys to principals, users as the key allows.

Identity fails closed.

May import `config`, `http`, `storage` and `errors`.
"""
