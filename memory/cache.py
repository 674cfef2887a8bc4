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

    max_bytes: bytes in total. each: bytes of an entry, including its key and table slots. more:
    further bytes of an entry; a value must weigh the same as long as it is cached.
    """

    __slots__ = (
        "_before",
        "_each",
        "_newer_bytes",
        "_now",
        "_older_bytes",
        "_weigh_more",
        "max_bytes",
    )

    def __init__(
        self, max_bytes: int, each: int, weigh_more: Callable[[K, V], int] | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self._each = each
        self._weigh_more = weigh_more
        self._now: dict[K, V] = {}
        self._before: dict[K, V] = {}
        self._newer_bytes = self._older_bytes = 0

    @property
    def byte_count(self) -> int:
        """The estimated size in bytes."""
        return self._newer_bytes + self._older_bytes

    def __len__(self) -> int:
        return len(self.names())

    def names(self) -> set[K]:
        """Return the keys of all values."""
        return self._now.keys() | self._before.keys()

    def get(self, name: K) -> V | None:
        """Return the value of this key, or None."""
        value = self._now.get(name)
        if value is None and self._before and (value := self._before.get(name)) is not None:
            self.put(name, value)
        return value

    def put(self, name: K, value: V) -> None:
        """Add or replace a value.

        One larger than half of the bound is not kept.
        """
        weigh_more = self._weigh_more
        weight = self._each
        if weigh_more is not None:
            weight += weigh_more(name, value)
        elif name in self._now:
            # It weighs the same.
            self._now[name] = value
            return
        if (former_value := self._now.pop(name, None)) is not None:
            self._newer_bytes -= self._each
            if weigh_more is not None:
                self._newer_bytes -= weigh_more(name, former_value)
        if self._newer_bytes + weight > self.max_bytes // 2:
            self._before = self._now
            self._older_bytes = self._newer_bytes
            self._now = {}
            self._newer_bytes = 0
        if weight <= self.max_bytes // 2:
            self._now[name] = value
            self._newer_bytes += weight
        else:
            self.pop(name)

    def pop(self, name: K) -> V | None:
        """Remove and return a value, or None."""
        weigh_more = self._weigh_more
        each = self._each
        older_value = self._before.pop(name, None)
        if older_value is not None:
            self._older_bytes -= each
            if weigh_more is not None:
                self._older_bytes -= weigh_more(name, older_value)
        value = self._now.pop(name, None)
        if value is not None:
            self._newer_bytes -= each
            if weigh_more is not None:
                self._newer_bytes -= weigh_more(name, value)
        if value is None:
            return older_value
        return value

    def clear(self) -> None:
        """Remove everything."""
        self._now = {}
        self._before = {}
        self._newer_bytes = 0
        self._older_bytes = 0
