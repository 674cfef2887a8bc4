"""Paths: the canonical spelling of a request's, and those of requests to an upstream. Pure.

Servers and proxies read a path in many ways: they decode it once or twice, merge slashes, take a
backslash for one, cut parameters and final dots, ignore case. So a path is folded here as far as
any of them goes. What folds to a path that this gateway serves is served there, or is 404; it is
never forwarded. A name becomes part of an upstream's path in `upstream_path` alone, which quotes
it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NewType
from urllib.parse import quote, unquote

from gateway.errors import ResourceNotFound

# A path below an upstream's base URL, with its query. Only this module makes one (a test looks).
UpstreamPath = NewType("UpstreamPath", str)

# What may stand in a segment as it is (RFC 3986, 3.3), and what of a query is not encoded again.
SEGMENT_SAFE = "-._~!$&'+*(),;=:@"
PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
# Rounds of percent-decoding; what is encoded more often is no path of anybody's.
DECODINGS = 4
BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
# Parameters, or what a server takes for its end.
ENDS_OF_NAME = re.compile(r"[;?#\x00]")
SEPARATORS = re.compile(r"[/\\]")
# An encoding that some servers of old know.
WIDE = re.compile(r"%u([0-9A-Fa-f]{4})")
PLAIN = re.compile(r"/[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")

# The paths below `/v1` that this gateway serves itself; "*" is a name.
SERVED = (
    ("chat", "completions"),
    ("responses",),
    ("responses", "input_tokens"),
    ("responses", "compact"),
    ("responses", "*"),
    ("responses", "*", "cancel"),
    ("responses", "*", "input_items"),
    ("conversations",),
    ("conversations", "*"),
    ("conversations", "*", "items"),
    ("conversations", "*", "items", "*"),
    ("messages",),
    ("messages", "count_tokens"),
    ("models",),
    ("models", "*"),
)
FAMILIES = frozenset(pattern[0] for pattern in SERVED)
# Whose names may have slashes.
MODELS = "models"


def segment(text: str) -> str:
    """Return a path segment with the encodings that `normalize_path` left in it decoded."""
    return unquote(text)


def upstream_path(*segments: str, query: str = "") -> UpstreamPath:
    """Return the path of these segments, each quoted.

    Raises ResourceNotFound for a segment that is empty or leads elsewhere.
    """
    for name in segments:
        if name in ("", ".", ".."):
            raise ResourceNotFound(f"{name!r} is no name of anything. Give the object's id.")
    path = "".join("/" + quote(name, safe="", errors="replace") for name in segments)
    return with_query(UpstreamPath(path), query)


def with_query(path: UpstreamPath, query: str) -> UpstreamPath:
    """Return a path with a query as the client sent it, "" for none."""
    if query:
        return UpstreamPath(f"{path}?{quote(query, safe=PRINTABLE)}")
    return path


def split_query(path: UpstreamPath) -> tuple[UpstreamPath, str]:
    """Return a path without its query, and the query."""
    bare_path, _, query = path.partition("?")
    return UpstreamPath(bare_path), query


def below(parent: UpstreamPath, path: UpstreamPath) -> UpstreamPath:
    """Return a path below another, which has no query."""
    return UpstreamPath(parent + path)


def relayed_path(path: str, query: str, *, folded: bool) -> UpstreamPath:
    """Return a canonical path as it is forwarded.

    path: below `/v1`, see `canonical_path`. folded: a slash that is encoded in it separates.
    """
    if folded:
        names = folded_segments(path)
        relayed = "".join("/" + quote(name, safe=SEGMENT_SAFE, errors="replace") for name in names)
    else:
        relayed = quote(path, safe=f"/%{SEGMENT_SAFE}")
    return with_query(UpstreamPath(relayed or "/"), query)


def canonical_path(path: str) -> str:
    """Return the canonical spelling of a path, whose `%2F` and `%25` are not decoded.

    Paths that are not below `/v1` or `/u/{user}/v1` are returned as they are. Raises
    ResourceNotFound for one that leads upwards, and for another spelling of a path served here.
    """
    parts = [part for part in path.split("/") if part]
    skip = _prefix_length(parts)
    if not skip:
        return path
    tail = [part for part in parts[skip:] if part != "."]
    if PLAIN.fullmatch(path):
        names = tail
    else:
        names = folded_segments("/".join(tail))
    if _is_other_spelling(names) if names == tail else _leads_to_ours(names, tail):
        raise _missing(path)
    return "/" + "/".join([*parts[:skip], *tail])


def tail_of(path: str) -> str:
    """Return the part of a canonical path that is below `/v1`."""
    parts = path.split("/")[1:]
    return "".join(f"/{part}" for part in parts[_prefix_length(parts) :])


def user_in(path: str) -> str | None:
    """Return the user that a canonical path names, None for none."""
    parts = path.split("/")[1:]
    if _prefix_length(parts) > 1:
        return segment(parts[1])
    return None


def folded_segments(path: str) -> list[str]:
    """Return the segments of a path as the most lenient server reads them.

    Raises ResourceNotFound for one that leads upwards, or is encoded too often.
    """
    text = path
    for _ in range(DECODINGS):
        decoded_text = WIDE.sub(lambda m: chr(int(m[1], 16)), unquote(text))
        if decoded_text == text:
            break
        text = decoded_text
    else:
        raise _missing(path)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    names = []
    for part in SEPARATORS.split(text):
        name = ENDS_OF_NAME.split(part, 1)[0].strip(BLANKS)
        if name in ("", "."):
            continue
        name = name.rstrip(f".{BLANKS}")
        if not name:
            raise _missing(path)
        names.append(name)
    return names


def _prefix_length(parts: Sequence[str]) -> int:
    """Return how many segments lead to the API, 0 for another path."""
    if parts[:1] == ["v1"]:
        return 1
    if parts[:1] == ["u"] and parts[2:3] == ["v1"]:
        return 3
    return 0


def _leads_to_ours(names: Sequence[str], tail: Sequence[str]) -> bool:
    """Tell whether a path that folds to these names may be one of ours."""
    if not names or names[0].lower() not in FAMILIES:
        return False
    return tail[0] != MODELS


def _is_other_spelling(names: Sequence[str]) -> bool:
    """Tell whether a path is one of ours in other capitals."""
    if not names or names[0].lower() not in FAMILIES:
        return False
    if names[0] not in FAMILIES:
        return True
    for pattern in SERVED:
        words = [(name, word) for name, word in zip(names, pattern, strict=False) if word != "*"]
        matches = len(pattern) == len(names) and all(n.lower() == word for n, word in words)
        if matches and any(name != word for name, word in words):
            return True
    return False


def _missing(path: str) -> ResourceNotFound:
    return ResourceNotFound(f"There is nothing at {path[:200]!r}.")
