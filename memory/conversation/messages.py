"""Messages as the memory sees them: normalised bytes, searchable text, hash chain. Pure.

Normalised are role, content parts (images by their bytes or their URL without its query) and
canonical tool arguments, with runs of white space as one space. Left out are tool call ids,
reasoning and system text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from memory.cache import Cache
from memory.conversation.foreign_json import decode_foreign
from memory.conversation.long_json import LONG_CHARACTERS
from memory.conversation.steps import end_step

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="sorted").encode
_THINK = re.compile(r"^\s*<think(?:ing)?>")
_END_OF_THOUGHT = "</think"
_rest_of_end = re.compile(r"(?:ing)?>").match
# A tuple, since `type` may be unhashable.
_REASONING = (
    "reasoning",
    "thinking",
    "redacted_thinking",
    "reasoning_text",
)
SYSTEM = frozenset({"system", "developer"})
EMPTY = b"\x00" * 16
# In place of a text; no role holds it, as JSON writes it.
FILLER = "\x00"
# Normalised at once.
SLICE_CHARACTERS = 1 << 16
# Of a call, compared as they are written: shorter ones by what they say.
LONG_ARGUMENTS = 1 << 20
# By the interpreter: some 0.5 ms.
HASHED_AT_ONCE = 1 << 19
DIGEST_BYTES = 16
# Whose words are split as fast as anything else is done.
SHORT_CHARACTERS = 200
# A `bytes.translate` table: what `str.split` takes for white space, as spaces.
AS_SPACE = bytes(ord(" ") if chr(i).isspace() and i < 128 else i for i in range(256))
# White space beyond ASCII in UTF-8, by its first byte, which is looked for a hundred times faster.
# That of the block "general punctuation" begins as quotes do.
WIDE_SPACE = {
    b"\xc2": (b"\xc2\x85", b"\xc2\xa0"),
    b"\xe1": (b"\xe1\x9a\x80",),
    b"\xe3": (b"\xe3\x80\x80",),
}
_general_space = re.compile(rb"\xe2\x80[\x80-\x8a\xa8\xa9\xaf]")
_thin_space = re.compile(rb"\xe2\x81\x9f")
# Of objects in a part in which such a string is looked for.
MEDIA_DEPTH = 3
# Size of the cache: some 10,000 messages.
SEEN_BYTES, SEEN_EACH = 3 << 20, 320


def is_system(message: Json) -> bool:
    return message.get("role") in SYSTEM


def text_of(message: Json) -> str:
    """Return the text of a message: its string, or its text parts one per line."""
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
    """Return the text with runs of white space as one space, and none at its ends."""
    if len(text) > SLICE_CHARACTERS:
        return "".join(_collapse_slices(text))
    if len(text) > SHORT_CHARACTERS:
        # Prose has hardly any runs but of two, and then no list of its words is needed.
        try:
            utf8_bytes = text.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair.
            return " ".join(text.split())
        spaced = utf8_bytes.translate(AS_SPACE)
        if b"  " in spaced:
            # Such as the empty line between two paragraphs.
            spaced = spaced.replace(b"  ", b" ")
        if b"  " not in spaced and (text.isascii() or not _holds_wide_space(spaced)):
            collapsed = spaced.strip(b" ")
            if collapsed == utf8_bytes:
                return text
            return collapsed.decode()
    return " ".join(text.split())


def _without_thought(text: str) -> str:
    """Return a text without the thought that it begins with.

    A search for its end is short, where a pattern would hold the interpreter for 8 MiB.
    """
    begin = _THINK.match(text)
    if begin is None:
        return text
    search_start = begin.end()
    while (search_start := text.find(_END_OF_THOUGHT, search_start)) >= 0:
        search_start += len(_END_OF_THOUGHT)
        if end := _rest_of_end(text, search_start):
            return text[end.end() :]
    return text


def _holds_wide_space(utf8_bytes: bytes) -> bool:
    """Tell whether UTF-8 holds white space beyond ASCII, as `str.split` knows it."""
    for lead, characters in WIDE_SPACE.items():
        if lead in utf8_bytes:
            for character in characters:
                if character in utf8_bytes:
                    return True
    # A pattern finds two bytes sooner than `in` does.
    return b"\xe2" in utf8_bytes and bool(
        _general_space.search(utf8_bytes) or _thin_space.search(utf8_bytes)
    )


def _collapse_slices(text: str) -> Iterator[str]:
    """Yield a long text normalised, slice by slice.

    A list of a million words would take a hundred bytes each, and no other thread could run until
    it is made.
    """
    gap = has_text = False
    for offset in range(0, len(text), SLICE_CHARACTERS):
        part = text[offset : offset + SLICE_CHARACTERS]
        if words := collapse_whitespace(part):
            if has_text and (gap or part[0].isspace()):
                yield " "
            yield words
            has_text = True
            gap = part[-1].isspace()
        else:
            gap = True
        end_step()


def canonical(message: Json) -> bytes:
    """Return the normalised bytes of a message; equal for messages with the same content."""
    role = message.get("role")
    if role in SYSTEM:
        role = "system"
    if (
        len(message) == 2
        and "role" in message
        and type(text := message.get("content")) is str
        and "<think" not in text
    ):
        # The usual case.
        return _encode([str(role), None, [text] if (text := collapse_whitespace(text)) else [], []])
    message_parts = _parts(message)
    if (
        role == "assistant"
        and message_parts
        and isinstance(message_parts[0], str)
        and "<think" in message_parts[0]
    ):
        message_parts[0] = collapse_whitespace(_without_thought(message_parts[0]))
        message_parts = [s for s in message_parts if s]
    calls = [_call(c) for c in message.get("tool_calls") or [] if isinstance(c, dict)]
    if isinstance(message.get("function_call"), dict):
        calls.append(_call({"function": message["function_call"]}))
    return _sorted([str(role), message.get("name"), message_parts, calls])


def condense_media(message: Json) -> Json:
    """Return the message with each very long string of its images, audio and files as its digest.

    To encode and hash 60 MiB in one step holds the interpreter lock for a tenth of a second; the
    digest is made in slices. A message without such strings is returned itself.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [p if _text_part(p) is not None else _condense_part(p) for p in content]
    is_unchanged = all(
        condensed_part is content_part
        for condensed_part, content_part in zip(parts, content, strict=True)
    )
    if is_unchanged:
        return message
    return {**message, "content": parts}


def _condense_part(part: Any) -> Any:
    """Return a part as `_condense` does; a long image as its address, in whichever form it is."""
    if (source := _held_image(part)) is None:
        return _condense(part)
    return _image_at(_digest_of(source["data"], address_before(source)))


def _held_image(part: Any) -> Json | None:
    """Return the source of an image that is held as Anthropic's API has it, None for others."""
    if not isinstance(part, dict) or part.get("type") != "image":
        return None
    source = part.get("source")
    if not isinstance(source, dict) or source.get("url"):
        return None
    if is_long_text(source.get("data")):
        return source
    return None


def is_long_text(text: object) -> bool:
    """Tell whether a text is so long that no copy of it should be made."""
    return isinstance(text, str) and len(text) > LONG_CHARACTERS


def address_before(source: Json) -> str:
    """Return the data: address of an image, up to its data."""
    return f"data:{source.get('media_type')};base64,"


def _image_at(url: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


def with_image_addresses(message: Json) -> Json:
    """Return a message with its images as chat completions have them."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    sources = [_held_image(part) for part in content]
    return {
        **message,
        "content": [
            part if source is None else _image_at(address_before(source) + source["data"])
            for part, source in zip(content, sources, strict=True)
        ],
    }


def _condense(value: Any, depth: int = MEDIA_DEPTH) -> Any:
    """Return the value with each very long string in it as its digest; itself if there is none."""
    if isinstance(value, str):
        if len(value) > LONG_CHARACTERS:
            return _digest_of(value)
        return value
    if isinstance(value, dict) and depth:
        items = {k: _condense(v, depth - 1) for k, v in value.items()}
        if any(items[k] is not v for k, v in value.items()):
            return items
        return value
    return value


def _digest_of(text: str, prefix: str = "") -> str:
    """Return the length and BLAKE2b digest of a long string, made in slices.

    prefix: what stands before it in the string.
    """
    hasher = hashlib.blake2b(prefix.encode("utf-8", "surrogatepass"), digest_size=32)
    for offset in range(0, len(text), SLICE_CHARACTERS):
        hasher.update(text[offset : offset + SLICE_CHARACTERS].encode("utf-8", "surrogatepass"))
        end_step()
    return f"blake2b:{len(prefix) + len(text)}:{hasher.hexdigest()}"


def _parts(message: Json) -> list[Any]:
    content = message.get("content")
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    if isinstance(message.get("refusal"), str):
        parts = [*parts, message["refusal"]]
    canonical_parts: list[Any] = []
    # Adjacent texts count as one.
    run: list[str] = []
    for part in parts:
        text = part if isinstance(part, str) else _text_part(part)
        if text is None:
            _end_run(run, canonical_parts)
            if (other_part := _other_part(part)) is not None:
                canonical_parts.append(other_part)
        elif text := collapse_whitespace(text):
            run.append(text)
    _end_run(run, canonical_parts)
    return canonical_parts


def _end_run(run: list[str], canonical_parts: list[Any]) -> None:
    """Append a run of texts to `canonical_parts`, joined."""
    if run:
        canonical_parts.append(" ".join(run))
        run.clear()


def _text_part(part: Any) -> str | None:
    if isinstance(part, dict) and part.get("type") in (
        "text",
        "input_text",
        "output_text",
        "refusal",
    ):
        text = part.get("text") or part.get("refusal") or ""
        if isinstance(text, str):
            return text
        return None
    return None


def _other_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("type") in _REASONING:
        return None
    part = _condense_part(part)
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
    if isinstance(arguments, str) and len(arguments) > LONG_ARGUMENTS:
        # To read and write 12 MB of them holds the interpreter lock for 40 ms.
        arguments = hash_content(arguments).hex()
    elif isinstance(arguments, str):
        try:
            arguments = decode_foreign(arguments)
        except (msgspec.DecodeError, RecursionError):
            arguments = collapse_whitespace(arguments)
    return [function.get("name"), arguments]


def keyed_hash(key: bytes, *parts: bytes) -> bytes:
    """Return 16 bytes of keyed BLAKE2b over the parts."""
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=DIGEST_BYTES).digest()


def hash_content(content: Any) -> bytes:
    """Return the hash of a message's content as JSON; of a long text slice by slice."""
    if not (isinstance(content, str) and len(content) > SLICE_CHARACTERS):
        return keyed_hash(b"", _sorted(content))
    digest = hashlib.blake2b(b'"', digest_size=DIGEST_BYTES)
    for offset in range(0, len(content), SLICE_CHARACTERS):
        digest.update(_encode(content[offset : offset + SLICE_CHARACTERS])[1:-1])
        end_step()
    digest.update(b'"')
    return digest.digest()


def digest_of(key: bytes, message: Json) -> bytes:
    """Return the keyed hash of a message's normalised bytes; of a long text slice by slice.

    So no copies of it are made, and other threads run in between.
    """
    text = message.get("content")
    is_plain = len(message) == 2 and "role" in message
    if not (is_plain and isinstance(text, str) and len(text) > SLICE_CHARACTERS):
        return keyed_hash(key, canonical(message))
    if "<think" in text:
        return keyed_hash(key, canonical(message))
    slices = _collapse_slices(text)
    # Nothing but white space.
    if (first_slice := next(slices, None)) is None:
        return keyed_hash(key, canonical(message))
    head, tail = canonical({**message, "content": FILLER}).split(_encode(FILLER))
    digest = hashlib.blake2b(head + b'"', key=key, digest_size=DIGEST_BYTES)
    for words in chain([first_slice], slices):
        digest.update(_encode(words)[1:-1])
    digest.update(b'"' + tail)
    return digest.digest()


def extend_chain(key: bytes, link: bytes, message: Json) -> tuple[bytes, bytes]:
    """Return the message's digest, and the link of the history that ends in it.

    link: of the history before it.
    """
    digest = digest_of(key, message)
    return digest, keyed_hash(key, link, digest)


class DigestCache:
    """Caches digests of messages, since apps resend the same ones with every request.

    A message is recognised by the interpreter's 64-bit hash (SipHash with a secret of the process)
    and its length, under the key of the scope: no content is stored, and scopes are kept apart.
    """

    def __init__(self) -> None:
        self.cached_digests: Cache[tuple[bytes, int, int], bytes] = Cache(SEEN_BYTES, SEEN_EACH)

    def extend_chain(self, key: bytes, link: bytes, message: Json) -> tuple[bytes, bytes]:
        """See the function of the same name."""
        content = message.get("content")
        message_key: str | bytes
        if type(content) is str and len(message) == 2:
            message_key = content
        elif "tool_calls" in message and any(map(_has_long_arguments, message["tool_calls"] or ())):
            # To recognise it takes as long as to make its digest, and in longer steps.
            return extend_chain(key, link, message)
        else:
            message = condense_media(message)
            message_key = _encode(message)
        size = len(message_key)
        key_hash = hash(message_key) if size <= HASHED_AT_ONCE else _hash_in_steps(message_key)
        # A string and its bytes have the same hash.
        name = (key, hash((message.get("role"), type(message_key), key_hash)), size)
        if (digest := self.cached_digests.get(name)) is None:
            self.cached_digests.put(name, digest := digest_of(key, message))
        return digest, keyed_hash(key, link, digest)


def _has_long_arguments(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return isinstance(arguments, str) and len(arguments) > LONG_ARGUMENTS


def _hash_in_steps(text: str | bytes) -> int:
    """Return the interpreter's hash of the hashes of a long text's slices; others run meanwhile."""
    slice_hashes: list[int] = []
    for offset in range(0, len(text), HASHED_AT_ONCE):
        slice_hashes.append(hash(text[offset : offset + HASHED_AT_ONCE]))
        end_step()
    return hash(tuple(slice_hashes))


def hash_chain(
    key: bytes, link: bytes, messages: Iterable[Json], digest_cache: DigestCache
) -> tuple[list[bytes], list[bytes]]:
    """Return the links and digests of messages that follow `link`.

    System messages have no digest and do not change the link.
    """
    links: list[bytes] = []
    digests: list[bytes] = []
    for message in messages:
        if message.get("role") in SYSTEM:
            digest = EMPTY
        else:
            digest, link = digest_cache.extend_chain(key, link, message)
        digests.append(digest)
        links.append(link)
    return links, digests


def system_text(system: Iterable[Json]) -> bytes:
    """Return the seed of an unnamed user's chain, made of its system messages."""
    return b"\x00".join(map(canonical, system))
