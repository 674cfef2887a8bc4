"""Files of other programs, and folders of Markdown, as lines of an export.

A module a format, each of pure functions from values to lines; `files` opens what they read. It
imports `memory.export_format`, the words of `memory.search` and nothing of a store.
"""
