"""What the rows of messages say, and the bodies of large ones in pieces.

There is one writer, and everybody's small writes wait while it works: a row of 60 MiB takes it 130
ms and more. So the body of a large message is written before its row, in pieces that are
transactions of their own, and others pass between them. The row names the pieces and comes last: a
message is there whole or not at all. Pieces that no row came to name are taken back; those of a
process that ended leave by age.

Nothing is left out for its size: a history that is kept here needs its images again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, exists, select, tuple_

from memory.conversation.harness import SHIPPED_HARNESS, Harness
from memory.conversation.long_json import (
    GROUP_ELEMENTS,
    MOST_CHARACTER_BYTES,
    encode_in_groups,
    encode_part_by_part,
    long_size,
    size_at_most,
)
from memory.conversation.messages import Json, is_system, with_image_addresses
from memory.conversation.steps import holds_text
from memory.conversation.thoughts import spoken_text
from memory.core.screen import Screen
from memory.ids import key_at, new_key
from memory.search.query import excerpt
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import BatchedWork
from memory.stores.sql.engine.sqlite.fts import MAX_DOCUMENT_CHARACTERS
from memory.stores.sql.engine.statements import add_row
from memory.stores.sql.engine.write_lock import WriteLock

# Of a message; one that may take more is kept in pieces.
LARGE_BYTES = 1 << 22
# Of ASCII; each takes several times that while it is written. Of other text a quarter.
PIECE_CHARACTERS = 1 << 19
NO_SECRETS: list[str] = []
# After which no turn will name its pieces any more.
ORPHAN_SECONDS = 3600.0
p = t.message_pieces.c
m = t.messages.c
NAMED = exists().where(m.pieces == p.body)
encode = msgspec.json.encode
decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class LargeBody:
    """A body to be written in pieces. key: what its row names it by."""

    key: int
    parts: Iterable[str]


@dataclass(frozen=True, slots=True)
class LongBody:
    """The body of a message with very long strings, encoded part by part as it is read.

    size: of these strings, in bytes at most.
    """

    message: Json
    size: int

    def __iter__(self) -> Iterator[str]:
        return (part.decode() for part in encode_part_by_part(self.message))


class ContentRules(msgspec.Struct, frozen=True):
    """How messages become rows; see `contents_of`."""

    sliced: bool = False
    screen: Screen | None = None
    keeps_secrets: bool = False
    harness: Harness = SHIPPED_HARNESS


def contents_of(
    digested_messages: Iterable[tuple[Json, bytes]],
    *,
    sliced: bool = False,
    screen: Screen | None = None,
    keeps_secrets: bool = False,
    harness: Harness = SHIPPED_HARNESS,
) -> Iterator[dict[str, Any]]:
    """Return messages with digests as rows store them, wherever they belong.

    System text is left out: it is the app's, not the user's. sliced: a body with very long strings
    is a `LongBody`, for `split_off`. screen: what is left out of the text, which is
    indexed, recalled and shown, and of the body, unless it keeps_secrets, since the conversation
    is made of it again. harness: what its client puts around the user's words.
    """
    rules = ContentRules(sliced, screen, keeps_secrets, harness)
    for message, digest in digested_messages:
        if not is_system(message):
            yield content_of(message, digest, rules)


def content_of(message: Json, digest: bytes, rules: ContentRules) -> dict[str, Any]:
    """Return a message, which is no system text, as a row stores it; see `contents_of`."""
    content = message.get("content")
    role = str(message.get("role") or "")
    if isinstance(content, str) and role == "user":
        words = content
    else:
        words = spoken_text(message)
    if role == "user" and holds_text(words, "</"):
        # What a harness says around them are not the user's words.
        own_text = rules.harness.own_part(words)
        if own_text != words.strip():
            words = own_text
    screen = rules.screen
    if screen is not None:
        if words:
            masked, secrets = screen.mask(words)
        else:
            masked, secrets = (words, NO_SECRETS)
        if (secrets or message.get("tool_calls")) and not rules.keeps_secrets:
            message = _without_secrets(screen, words, masked, message)
        words = masked
    # The usual case: the text is stored once. Of one with NUL, not every store keeps it all.
    is_plain = list(message.items()) == [("role", role), ("content", words)]
    is_plain = is_plain and "\x00" not in words
    return {
        "role": role,
        "body": "" if is_plain else _body_of(message, sliced=rules.sliced),
        "content": words,
        "digest": digest,
        "pieces": None,
    }


def note_speaker(user: str, contents: Sequence[dict[str, Any]]) -> None:
    """Note beside messages which user they are of, where the memory is an agent's own."""
    for content in contents:
        content["said_by"] = user


def _without_secrets(screen: Screen, words: str, masked: str, message: Json) -> Json:
    """Return a message without secrets. masked: its words without them."""
    if message.get("content") is words:
        # It is searched again, but where nothing is replaced there is no other copy of it.
        message = {**message, "content": masked}
    return screen.mask_message(message)


def _body_of(message: Json, *, sliced: bool) -> str | LongBody:
    if sliced and (size := long_size(message)):
        return LongBody(message, size)
    return (encode_in_groups if _has_many(message) else encode)(message).decode()


def _has_many(message: Json) -> bool:
    return any(type(x) is list and len(x) > GROUP_ELEMENTS for x in message.values())


def split_off(contents: Iterable[dict[str, Any]]) -> list[LargeBody]:
    """Take the bodies out of contents (see `contents_of`) that are large.

    Such a row keeps what the search index reads: the speaker's name, and the beginning and the end
    of its words.
    """
    large_bodies: list[LargeBody] = []
    for content in contents:
        body = content["body"]
        words = content["content"]
        is_long = isinstance(body, LongBody)
        if is_long:
            size = body.size
        elif len(words) + len(body) < LARGE_BYTES // (2 * MOST_CHARACTER_BYTES):
            continue
        else:
            size = size_at_most(body or words)
        if size_at_most(words) + size > LARGE_BYTES:
            large_bodies.append(LargeBody(new_key(), body if is_long else [body or words]))
            content["pieces"] = large_bodies[-1].key
            if is_long or body:
                if is_long:
                    name = body.message.get("name")
                else:
                    name = _name_in(body)
                content["body"] = encode({"name": name} if name else {}).decode()
            if len(words) > MAX_DOCUMENT_CHARACTERS:
                content["content"] = excerpt(words, MAX_DOCUMENT_CHARACTERS, "\n[...]\n")
        elif is_long:
            content["body"] = "".join(body)
    return large_bodies


def _name_in(body: str) -> Any:
    """Return the speaker's name in a body."""
    if '"name"' in body:
        return _named(body).name
    return None


class _Named(msgspec.Struct):
    name: Any = None


_named = msgspec.json.Decoder(_Named).decode


async def write(
    db: BatchedWork,
    scope: Callable[[Connection], int],
    bodies: Iterable[LargeBody],
    lock: WriteLock,
) -> None:
    """Write bodies, piece by piece.

    scope: finds the scope's row, and raises ErasedMeanwhile. lock: the owner's. Raises
    StoreUnavailable.
    """
    for body in bodies:
        body_slices = itertools.chain.from_iterable(map(_slices_of, body.parts))
        for position in itertools.count():
            # To encode a piece takes some milliseconds.
            data = await asyncio.to_thread(next, body_slices, None)
            if data is None:
                break
            row = {"body": body.key, "position": position, "data": data}
            await db.write(partial(_put, scope=scope, row=row), piece=True, lock=lock)


def _slices_of(part: str) -> Iterator[str]:
    size = PIECE_CHARACTERS if part.isascii() else PIECE_CHARACTERS // MOST_CHARACTER_BYTES
    return (part[begin : begin + size] for begin in range(0, len(part), size))


def _put(conn: Connection, scope: Callable[[Connection], int], row: dict[str, Any]) -> None:
    add_row(conn, t.message_pieces, scope_id=scope(conn), **row)


def read(conn: Connection, row: Any) -> Json:
    """Return the message of a row that names pieces."""
    piece_rows = conn.execute(select(p.data).where(p.body == row.pieces).order_by(p.position))
    text = "".join(piece_rows.scalars())
    if row.body:
        return with_image_addresses(decode(text))
    return {"role": row.role, "content": text}


def remove(conn: Connection, bodies: Iterable[int]) -> None:
    """Remove the pieces of these bodies."""
    conn.execute(delete(t.message_pieces).where(p.body.in_(list(bodies))))


def remove_unnamed(conn: Connection, bodies: Iterable[int]) -> None:
    """Remove the pieces of those of these bodies that no row names."""
    conn.execute(delete(t.message_pieces).where(p.body.in_(list(bodies)), ~NAMED))


def remove_next(conn: Connection, condition: ColumnElement[bool]) -> bool:
    """Remove one of these pieces. Returns whether there was one."""
    piece_row = conn.execute(select(p.body, p.position).where(condition).limit(1)).first()
    if piece_row is not None:
        conn.execute(delete(t.message_pieces).where(tuple_(p.body, p.position) == tuple(piece_row)))
    return piece_row is not None


def expire_orphans(conn: Connection, now: float) -> bool:
    """Remove a piece that no row names. Returns whether there was one."""
    return remove_next(conn, (p.body < key_at(now - ORPHAN_SECONDS)) & ~NAMED)
