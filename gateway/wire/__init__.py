"""What stands in the bytes: chat completions, their streams, headers and bodies.

Everything here is pure.

No I/O, no clock, no event loop. May import `gateway.errors`, and of `memory` only pure modules.
"""
