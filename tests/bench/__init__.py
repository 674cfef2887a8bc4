"""Benchmarks: ratios in one run with variants interleaved.

Start with `make bench`, or `python -m tests.bench`.
"""
