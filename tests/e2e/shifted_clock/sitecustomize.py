"""Shift this process's clock by the seconds that a file holds, as of each look at it."""

import mmap
import os
import struct
import time

with open(os.environ["SHIFTED_CLOCK"], "rb") as _file:
    _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
_time, _time_ns = time.time, time.time_ns


def _seconds() -> float:
    return struct.unpack_from("d", _shift)[0]


time.time = lambda: _time() + _seconds()
time.time_ns = lambda: _time_ns() + int(_seconds() * 1e9)
