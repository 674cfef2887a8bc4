"""What requests used and what that costs: counted on the way, priced, and written down in the
background.

May import `auth`, `config`, `storage`, `wire` and `errors`.
"""
