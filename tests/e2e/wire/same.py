"""Comparing what crossed the gateway: JSON with its order, duplicates and kinds of number kept, and
what memory may add.
"""

from __future__ import annotations

import json
from typing import Any

from memory.core.tool_definitions import OURS

KEPT_ALIKE = ("model", "messages", "tools", "stream_options")


def exact(data: bytes | str) -> Any:
    """JSON for comparing: members in order and doubled ones kept; 1, 1.0 and -0.0 differ, however
    they are spelt.
    """
    return repr(json.loads(data, object_pairs_hook=lambda pairs: ("object", pairs)))


def ordered(value: Any) -> str:
    return exact(json.dumps(value))


def assert_only_memory_added(sent: dict[str, Any], got: dict[str, Any]) -> None:
    """Every difference between the client's body and the upstream's is one that the documentation
    names.
    """
    assert ordered({k: v for k, v in got.items() if k not in KEPT_ALIKE}) == ordered(
        {k: v for k, v in sent.items() if k not in KEPT_ALIKE}
    )
    assert list(sent) == list(got)[: len(sent)]
    assert set(got) - set(sent) <= {"tools", "stream_options"}
    theirs = sent.get("tools") or []
    assert ordered(got.get("tools", [])[: len(theirs)]) == ordered(theirs)
    assert {t["function"]["name"] for t in got.get("tools", [])[len(theirs) :]} <= OURS
    options = got.get("stream_options")
    assert ordered(
        {**(sent.get("stream_options") or {}), "include_usage": True}
        if sent.get("stream")
        else sent.get("stream_options")
    ) == ordered(options)
    assert_messages(sent["messages"], got["messages"])


def assert_messages(sent: list[Any], got: list[Any]) -> None:
    """Messages arrive as sent; the first system message may end in memory's text, or be memory's
    own.
    """
    if len(got) == len(sent) + 1:
        assert got[0]["role"] == "system"
        assert "memory" in got[0]["content"]
        got = got[1:]
    assert len(got) == len(sent)
    first = next((i for i, m in enumerate(sent) if m["role"] in ("system", "developer")), None)
    for i, (ours, theirs) in enumerate(zip(got, sent, strict=True)):
        assert ordered(_plain(ours, theirs) if i == first else ours) == ordered(theirs), i


def _plain(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The system message without what memory put behind the client's text."""
    was, now = theirs.get("content"), ours.get("content")
    if isinstance(now, str):
        assert isinstance(was, str | None)
        assert now.startswith(was or "")
        return (
            {**ours, "content": was}
            if "content" in theirs
            else {k: v for k, v in ours.items() if k != "content"}
        )
    return {**ours, "content": now[: len(was or [])]} if isinstance(now, list) else ours
