"""The configuration: every setting, how file and environment become it, and what is said of a bad
value.

May import `storage`, `wire` and `errors`.
"""
