"""The operator's tools: what is granted, offered, run and kept.

A kind of tool (`kind.py`) knows no API format, and no API format knows a kind. What a turn asks of
this room stands behind a port that memory owns. May import `config`, `http`, `upstream` and what
is below them.
"""
