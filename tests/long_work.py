"""Notes on which thread functions that cost with size were given long texts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gateway.wire import chat, lone_surrogates, long_content
from gateway.wire.json_weight import LIGHT_BYTES

# What reads or writes a whole JSON text.
JSON_WORK = (
    chat.decode,
    chat.decode_weighed,
    lone_surrogates.encode_json,
    lone_surrogates.encode_json_in_parts,
    long_content.encode_json_late,
    msgspec.json.decode,
    msgspec.json.encode,
)
PACKAGES = ("gateway", "memory", "msgspec.json")


class LongWork:
    """What was done with long texts: on the thread of the event loop, which made this, or beside.

    Each piece of work is a name with the size of the longest text that it was given or returned.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.on_loop: list[tuple[str, int]] = []
        self.beside: list[tuple[str, int]] = []

    def note(self, name: str, size: int) -> None:
        if size > LIGHT_BYTES:
            is_own = threading.get_ident() == self._thread
            (self.on_loop if is_own else self.beside).append((name, size))

    def clear(self) -> None:
        self.on_loop.clear()
        self.beside.clear()

    @property
    def names_beside(self) -> set[str]:
        return {name for name, _ in self.beside}


@contextlib.contextmanager
def noted(*functions: Callable[..., Any]) -> Iterator[LongWork]:
    """Note what these functions and those of `JSON_WORK` do, under whatever name a module has them.

    Enter it on the thread of the event loop.
    """
    work = LongWork()
    watching = {function: _watching(function, work) for function in (*JSON_WORK, *functions)}
    _replace(watching)
    try:
        yield work
    finally:
        # Also in modules that were loaded meanwhile.
        _replace({watched: function for function, watched in watching.items()})


def _replace(functions: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Put one function in another's place in all modules that name it."""
    by_id = {id(old): new for old, new in functions.items()}
    for name, module in [*sys.modules.items()]:
        if name.startswith(PACKAGES):
            for attribute, value in [*vars(module).items()]:
                if id(value) in by_id:
                    setattr(module, attribute, by_id[id(value)])


def _watching(function: Callable[..., Any], work: LongWork) -> Callable[..., Any]:
    @functools.wraps(function)
    def watching(*arguments: Any, **options: Any) -> Any:
        work.note(function.__name__, max(map(_size, arguments), default=0))
        result = function(*arguments, **options)
        work.note(function.__name__, _size(result))
        return result

    return watching


def _size(value: Any) -> int:
    """Return the length of a text, or of the texts that an object holds."""
    if isinstance(value, str | bytes | bytearray | memoryview | msgspec.Raw):
        return len(memoryview(value)) if isinstance(value, msgspec.Raw) else len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    if dataclasses.is_dataclass(value):
        return sum(_size(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0
