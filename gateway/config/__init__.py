"""The configuration: settings, how they are read from a file and the environment, validation.

May import `storage`, `wire` and `errors`.
"""
