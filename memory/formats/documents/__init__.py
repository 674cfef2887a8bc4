"""What a file says: its type, its text by page and line, passages, symbols, and trigrams.

A file is read in a child process with limits; the package that reads PDF and office files, and the
grammars, are loaded there alone. May import `search` and `errors`.
"""
