"""Messages as the memory sees them: normalised bytes, searchable text, and the chain that names a
history. Pure.

Normalised (MEMORY.md 5): role, every content part (images by their bytes or their URL without its
query), canonical tool arguments, white-space runs as one space. Left out: tool-call ids, reasoning,
system text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from memory.cache import Cache

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="sorted").encode
_THINK = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_REASONING = (
    "reasoning",
    "thinking",
    "redacted_thinking",
    "reasoning_text",
)  # a tuple: a type may be anything
SYSTEM = frozenset({"system", "developer"})
EMPTY = b"\x00" * 16
SLICE_CHARACTERS = 1 << 16  # characters that are squeezed at once
SEEN_BYTES, SEEN_EACH = 3 << 20, 320  # of messages that are known again: some 10,000 of them


def is_system(message: Json) -> bool:
    return message.get("role") in SYSTEM


def text_of(message: Json) -> str:
    """Return the words of a message: its string, or its text parts one per line."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return message["refusal"] if isinstance(message.get("refusal"), str) else ""
    texts = [
        p.get("text") or p.get("refusal")
        for p in content
        if isinstance(p, dict) and p.get("type") not in _REASONING
    ]
    return "\n".join(t for t in texts if isinstance(t, str))


def collapse_whitespace(text: str) -> str:
    """Return the text with each run of white space as one space, and none at its ends."""
    return (
        " ".join(text.split()) if len(text) <= SLICE_CHARACTERS else "".join(_collapse_slices(text))
    )


def _collapse_slices(text: str) -> Iterator[str]:
    """Squeeze a long text slice by slice.

    A million words in one list would take a hundred bytes each, and no other thread could run
    until the list is made.
    """
    gap = said = False
    for at in range(0, len(text), SLICE_CHARACTERS):
        part = text[at : at + SLICE_CHARACTERS]
        if words := " ".join(part.split()):
            if said and (gap or part[0].isspace()):
                yield " "
            yield words
            said, gap = True, part[-1].isspace()
        else:
            gap = True


def canonical(message: Json) -> bytes:
    """Return the normalised bytes of one message; equal for messages that say the same."""
    role = message.get("role")
    role = "system" if role in SYSTEM else role
    if (
        len(message) == 2
        and "role" in message
        and type(text := message.get("content")) is str
        and "<think" not in text
    ):
        return _encode(
            [str(role), None, [text] if (text := collapse_whitespace(text)) else [], []]
        )  # what nearly every message is
    said = _parts(message)
    if role == "assistant" and said and isinstance(said[0], str) and "<think" in said[0]:
        said[0] = collapse_whitespace(_THINK.sub("", said[0]))
        said = [s for s in said if s]
    calls = [_call(c) for c in message.get("tool_calls") or [] if isinstance(c, dict)]
    if isinstance(message.get("function_call"), dict):
        calls.append(_call({"function": message["function_call"]}))
    return _sorted([str(role), message.get("name"), said, calls])


def _parts(message: Json) -> list[Any]:
    content = message.get("content")
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    if isinstance(message.get("refusal"), str):
        parts = [*parts, message["refusal"]]
    out: list[Any] = []
    run: list[str] = []  # texts that follow each other say the same as one
    for part in parts:
        text = part if isinstance(part, str) else _text_part(part)
        if text is None:
            _end_run(run, out)
            if (other := _other_part(part)) is not None:
                out.append(other)
        elif text := collapse_whitespace(text):
            run.append(text)
    _end_run(run, out)
    return out


def _end_run(run: list[str], out: list[Any]) -> None:
    """Move a run of texts to the end of `out`, as one."""
    if run:
        out.append(" ".join(run))
        run.clear()


def _text_part(part: Any) -> str | None:
    if isinstance(part, dict) and part.get("type") in (
        "text",
        "input_text",
        "output_text",
        "refusal",
    ):
        text = part.get("text") or part.get("refusal") or ""
        return text if isinstance(text, str) else None
    return None


def _other_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("type") in _REASONING:
        return None
    if isinstance(image := part.get("image_url"), dict) and isinstance(
        url := image.get("url"), str
    ):
        return ["image", url if url.startswith("data:") else url.split("?", 1)[0]]
    return {k: v for k, v in part.items() if k != "cache_control"}


def _call(call: Json) -> list[Any]:
    function = call.get("function")
    if not isinstance(function, dict):
        return [call.get("type"), {k: v for k, v in call.items() if k not in ("id", "index")}]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            arguments = collapse_whitespace(arguments)
    return [function.get("name"), arguments]


def keyed_hash(key: bytes, *parts: bytes) -> bytes:
    """16 bytes of keyed BLAKE2b over the parts."""
    h = hashlib.blake2b(key=key, digest_size=16)
    for part in parts:
        h.update(part)
    return h.digest()


def extend_chain(key: bytes, link: bytes, message: Json) -> tuple[bytes, bytes]:
    """Return the message's digest, and the link that names the history which ends in it; link: of
    the history before it.
    """
    digest = keyed_hash(key, canonical(message))
    return digest, keyed_hash(key, link, digest)


class DigestCache:
    """What messages hash to: one that is resent with every request is normalised once.

    A message is known again by the interpreter's own 64-bit hash (SipHash under a secret of the
    process) and its length, under the key of the scope: nothing of what was said is kept, and
    nobody is taken for another.
    """

    def __init__(self) -> None:
        self.known: Cache[tuple[bytes, int, int], bytes] = Cache(SEEN_BYTES, SEEN_EACH)

    def extend_chain(self, key: bytes, link: bytes, message: Json) -> tuple[bytes, bytes]:
        """See the function of this name."""
        content = message.get("content")
        said: str | bytes = (
            content if type(content) is str and len(message) == 2 else _encode(message)
        )
        name = (
            key,
            hash((message.get("role"), type(said), said)),
            len(said),
        )  # a text hashes to what its bytes do
        if (digest := self.known.get(name)) is None:
            self.known.put(name, digest := keyed_hash(key, canonical(message)))
        return digest, keyed_hash(key, link, digest)


def hash_chain(
    key: bytes, link: bytes, messages: Iterable[Json], seen: DigestCache
) -> tuple[list[bytes], list[bytes]]:
    """Return the links and digests of messages that follow what `link` names.

    System messages have no digest and leave the link as it was.
    """
    links: list[bytes] = []
    digests: list[bytes] = []
    for message in messages:
        digest, link = (
            (EMPTY, link)
            if message.get("role") in SYSTEM
            else seen.extend_chain(key, link, message)
        )
        digests.append(digest)
        links.append(link)
    return links, digests


def system_text(system: Iterable[Json]) -> bytes:
    """Return what seeds the chain of a request that names nobody, of its system messages."""
    return b"\x00".join(map(canonical, system))
