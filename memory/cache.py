"""A cache bounded in bytes. Pure.

An entry is weighed when it is added: by the usual size of its objects, and by its texts. An
estimate is never too low, so that the bound holds for the real memory (a test fills every cache and
measures).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values by key, in two generations.

    What is added or found is in the newer one. When that reaches half of the bound, the older one
    is dropped with everything not used meanwhile.

    most: bytes in total. each: bytes of an entry, including its key and table slots. more: further
    bytes of an entry; a value must weigh the same as long as it is cached.
    """

    __slots__ = ("_before", "_each", "_held", "_held_before", "_more", "_now", "most")

    def __init__(self, most: int, each: int, more: Callable[[K, V], int] | None = None) -> None:
        self.most, self._each, self._more = most, each, more
        self._now: dict[K, V] = {}
        self._before: dict[K, V] = {}
        self._held = self._held_before = 0

    @property
    def held(self) -> int:
        """The estimated size in bytes."""
        return self._held + self._held_before

    def __len__(self) -> int:
        return len(self.names())

    def names(self) -> set[K]:
        """Return the keys of all values."""
        return self._now.keys() | self._before.keys()

    def get(self, name: K) -> V | None:
        """Return the value of this key, or None."""
        found = self._now.get(name)
        if found is None and self._before and (found := self._before.get(name)) is not None:
            self.put(name, found)
        return found

    def put(self, name: K, value: V) -> None:
        """Add or replace a value.

        One larger than half of the bound is not kept.
        """
        more, each = self._more, self._each
        weight = each if more is None else each + more(name, value)
        if (former := self._now.pop(name, None)) is not None:
            self._held -= each if more is None else each + more(name, former)
        if self._held + weight > self.most // 2:
            self._before, self._held_before = self._now, self._held
            self._now, self._held = {}, 0
        if weight <= self.most // 2:
            self._now[name] = value
            self._held += weight
        else:
            self.pop(name)

    def pop(self, name: K) -> V | None:
        """Remove and return a value, or None."""
        more, each = self._more, self._each
        former = self._before.pop(name, None)
        if former is not None:
            self._held_before -= each if more is None else each + more(name, former)
        found = self._now.pop(name, None)
        if found is not None:
            self._held -= each if more is None else each + more(name, found)
        return former if found is None else found

    def clear(self) -> None:
        """Remove everything."""
        self._now, self._before, self._held, self._held_before = {}, {}, 0, 0
