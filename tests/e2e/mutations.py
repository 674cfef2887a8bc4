"""A value that is right, and every value that is wrong in one place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Path = tuple[Any, ...]
JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**30,
    -(10**30),
    1e300,
    "",
    "x",
    "\x00\u2028 \U0001f600",
    "tool_calls",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"a": 1},
    {"": None},
    [1, "x", {"role": 5}],
    {"type": "text", "text": 5},
    {"function": "x"},
    [{"function": {"name": 5}}],
    [{"index": "x"}],
    [{"type": {"a": 1}}],
]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every node, the whole first."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: Path, junk: Any) -> Any:
    """A copy with `junk` at the path."""
    if not path:
        return junk
    out = copy.deepcopy(value)
    at = out
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = junk
    return out


def removed(value: Any, path: Path) -> Any:
    """A copy without what is at the path."""
    out = copy.deepcopy(value)
    at = out
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return out


def wrong(value: Any, junk: list[Any] = JUNK) -> Iterator[tuple[str, Any]]:
    """Every variant with one node replaced or taken out, and its name."""
    for path in places(value):
        if path:
            yield f"without {path}", removed(value, path)
        for item in junk:
            yield f"{path} = {item!r}", replaced(value, path, item)
