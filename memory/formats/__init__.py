"""Reads files of other programs, and folders of Markdown, as lines of an export.

One module per format, made of pure functions from values to lines; `files` opens what they read.
May import `memory.export_format` and `memory.search`, and no store.
"""
