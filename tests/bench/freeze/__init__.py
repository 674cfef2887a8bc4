"""Does one request hold the others?

A table of dimensions, the exchanges that stretch them, and a stopwatch beside them.
"""
