"""The objects of the management API, in requests and responses.

Unknown members of a request are refused with their path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody

from gateway.errors import BadRequest, TooLarge, quote_value
from gateway.management.sent_bodies import parse_body
from gateway.wire.chat import decode_weighed
from gateway.wire.json_weight import count
from gateway.wire.long_strings import cut_long_strings, restore, takes_long
from memory import CoreBlock, end_step, iso
from memory.export_format import (
    MARKS,
    VALUES,
    Content,
    Description,
    Limit,
    Tags,
    has_many_values,
    moment,
)

T = TypeVar("T")
Json = dict[str, Any]


class Page(msgspec.Struct, Generic[T]):
    """A list. next_cursor: what `?cursor=` takes for the rest, null at the end."""

    data: list[T]
    next_cursor: str | None = None
    object: str = "list"


class User(msgspec.Struct):
    id: str
    tenant: str
    blocks: int
    passages: int
    messages: int
    conversations: int
    created_at: str
    last_active_at: str
    object: str = "user"


class Block(msgspec.Struct):
    """limit in characters. id and updated_at are null while nobody edited the operator's block.

    hidden_by: id of the shared block that is shown in its place, else null.
    """

    id: str | None
    label: str
    description: str
    value: str
    limit: int
    read_only: bool
    version: int
    shared_with: list[str]
    updated_at: str | None
    hidden_by: str | None
    object: str = "block"


class Gone(msgspec.Struct):
    """What was deleted."""

    id: str
    object: str
    deleted: bool = True


class Version(msgspec.Struct):
    """tool_call_id: of extraction the id of the message. quote: what it was taken from."""

    version: int
    before: str | None
    after: str | None
    actor: str
    request_id: str | None
    tool_call_id: str | None
    created_at: str
    quote: str | None = None


class Passage(msgspec.Struct):
    """source: the message it was taken from. quote: its words there. speaker: who of several.

    forgotten_at, forgotten_by, superseded_by: when and by whom it was set aside, and for what; else
    null. fades_at: when it is set aside unless it is found before; null for never. is_fading:
    whether more than half of that time is over. written_by: the user, where others read it too.
    """

    id: str
    content: str
    tags: list[str]
    type: str
    importance: float
    actor: str
    created_at: str
    source: str | None
    quote: str | None
    speaker: str | None
    forgotten_at: str | None
    forgotten_by: str | None
    superseded_by: str | None
    fades_at: str | None = None
    is_fading: bool = False
    written_by: str | msgspec.UnsetType = msgspec.UNSET
    object: str = "passage"


class Undone(msgspec.Struct):
    """The change that was undone. kind: block, or of a passage: edited, forgotten, added.

    name: the block's label, or the passage's id. text: what it says now, or said if it was added;
    null for a block that is gone.
    """

    kind: str
    name: str
    text: str | None
    object: str = "undone"


class PassageHit(msgspec.Struct):
    """why: the parts of the score. layer: where it is, where several were searched."""

    id: str
    content: str
    score: float
    created_at: str
    why: Json
    tags: list[str]
    type: str
    layer: str | msgspec.UnsetType = msgspec.UNSET
    object: str = "passage"


class MessageHit(msgspec.Struct):
    """why: the parts of the score.

    speaker: the name that the message came with. replaced: its turn was edited or made anew.
    """

    id: str
    content: str
    score: float
    created_at: str
    why: Json
    role: str
    conversation: str
    speaker: str | None = None
    replaced: bool = False
    object: str = "message"


class Message(msgspec.Struct):
    """content, tool_calls and the rest as the message was said.

    aborted: the client left before its end.
    """

    id: str
    role: str
    content: Any
    conversation: str
    created_at: str
    aborted: bool
    name: str | None = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    object: str = "message"


class Conversation(msgspec.Struct):
    """user is null where nobody was named. project: left out outside of projects."""

    id: str
    user: str | None
    agent: str
    forked_from: str | None
    message_count: int
    created_at: str
    updated_at: str
    project: str | msgspec.UnsetType = msgspec.UNSET
    object: str = "conversation"


class WholeConversation(Conversation, kw_only=True):
    messages: Page[Message]


class Erased(msgspec.Struct):
    """A receipt: rows removed by kind.

    agents: those with one memory to which the user had talked; their blocks may still name them.
    shared: what was removed of shared blocks: memberships, lines, texts of versions.
    """

    id: str
    erased: dict[str, int]
    agents: list[str]
    shared: dict[str, int]
    object: str = "user.erased"


class Merged(msgspec.Struct):
    """What a merge does, or did. id: the user who has both memories then.

    merged: how much of the other one, by kind. joined_blocks: by agent, labels that both had.
    renamed_conversations: by agent, the other one's whose name was taken, with their new names.
    dry_run: nothing was changed.
    """

    id: str
    source: str
    merged: dict[str, int]
    joined_blocks: dict[str, list[str]]
    renamed_conversations: dict[str, dict[str, str]]
    dry_run: bool
    object: str = "user.merged"


class Imported(msgspec.Struct):
    """imported: rows made by kind.

    skipped: what was left as it is, with its line and the reason.
    """

    imported: dict[str, int]
    skipped: list[dict[str, str | int]]
    object: str = "import"


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    pass


class BlockPut(_Asked):
    """What is left out stays as it is, or has its default in a new block."""

    value: str
    description: Description | None = None
    limit: Limit | None = None
    read_only: bool | None = None


class BlockPatch(_Asked):
    value: str | None = None
    description: Description | None = None
    limit: Limit | None = None
    read_only: bool | None = None


class MergePost(_Asked):
    """into: whose memory takes it. tenant: of that user, for admin keys. dry_run: only tell."""

    into: str
    tenant: str | None = None
    dry_run: bool = False


class PassagePost(_Asked):
    """Long content becomes several passages.

    type: identity, preference, fact, context or trivial. importance: 0 to 1.
    """

    content: Content
    tags: Tags = []
    type: str = "fact"
    importance: float = 0.5
    created_at: str | None = None


class PassagePatch(_Asked):
    """What is left out stays as it is. The older wording is set aside; `undo` brings it back."""

    content: Content | None = None
    tags: Tags | None = None
    type: str | None = None
    importance: float | None = None


class ConversationPost(_Asked):
    """messages: as OpenAI's API has them, each with an optional `created_at`.

    id: a name of the app's own, for X-Memory-Conversation.
    """

    messages: Annotated[list[Json], msgspec.Meta(min_length=1)]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None


def describe_body(model: type[msgspec.Struct], media: str = "application/json") -> type[Operation]:
    """Describe a body that the handler reads itself, with the gateway's limits and errors."""
    schema = msgspec.json.schema(model)
    inlined = _inline_reference(schema["$ref"], schema["$defs"])
    body = RequestBody({media: OpenAPIMediaType(schema=inlined)}, required=True)

    @dataclass
    class Taking(Operation):
        def __post_init__(self) -> None:
            self.request_body = body

    return Taking


def _inline_reference(ref: str, defs: Mapping[str, Any]) -> Any:
    return {k: v for k, v in defs[ref.rsplit("/", 1)[1]].items() if k != "title"}


class _Brought(_Asked):
    """A `ConversationPost` whose messages are not parsed yet, since that would take long."""

    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None


class BroughtChat(NamedTuple):
    """An imported conversation. messages: JSON texts. id: None for none."""

    messages: Sequence[msgspec.Raw | bytes]
    id: str | None


# Limits the number of values before a body is parsed.
MARKED = 1_000_000
_brought = msgspec.json.Decoder(_Brought).decode


def brought(body: bytes, max_messages: int | None) -> BroughtChat:
    """Return an imported conversation of at most `max_messages` messages (None: any number).

    Raises BadRequest, TooLarge.
    """
    if (mark_count := sum(count(body, json_mark) for json_mark in MARKS)) > MARKED:
        raise BadRequest(
            f"The body has {mark_count} commas and opening brackets; at most {MARKED} are allowed. "
            "Import the conversation in several parts.",
            code="too_many_values",
        )
    end_step()
    if takes_long(body):
        cut_text, spans = cut_long_strings(body)
    else:
        cut_text, spans = (body, {})
    try:
        chat = _brought(cut_text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        # Raises a precise error.
        parse_body(body, ConversationPost)
        raise BadRequest(f"The body cannot be read: {e}", code="invalid_json") from e
    messages: Sequence[msgspec.Raw | bytes] = chat.messages
    if spans:
        messages = [restore(bytes(m), body, spans) for m in messages]
    end_step()
    if max_messages is not None and len(messages) > max_messages:
        raise TooLarge(
            f"`messages` has {len(messages)} messages, and this key may import {max_messages} at "
            "once. Bring the conversation in several "
            "parts, use an admin key, or raise memory.import_rows.",
            param="messages",
            code="too_many_rows",
        )
    return BroughtChat(messages, chat.id)


def message_of(message_text: msgspec.Raw | bytes, where: str) -> Json:
    """Parse one message. Raises BadRequest."""
    is_copied = isinstance(message_text, bytes | bytearray)
    if is_copied:
        message_bytes = message_text
    else:
        message_bytes = bytes(message_text)
    end_step()
    if has_many_values(message_bytes):
        raise BadRequest(f"`{where}` has over {VALUES} values: leave some out.", param=where)
    end_step()
    try:
        value = decode_weighed(message_bytes)
        end_step()
        return msgspec.convert(value, Json)
    except msgspec.ValidationError as e:
        text = str(e)
        raise BadRequest(
            f"`{where}` is {quote_value(value)}: {text[:1].lower()}{text[1:]}.", param=where
        ) from e
    except (msgspec.DecodeError, RecursionError) as e:
        raise BadRequest(
            f"`{where}` is not valid JSON: {str(e)[:200]}", param=where, code="invalid_json"
        ) from e


def block(core_block: CoreBlock) -> Block:
    return Block(
        core_block.id or None,
        core_block.label,
        core_block.description,
        core_block.value,
        core_block.limit,
        core_block.read_only,
        core_block.version,
        list(core_block.shared_with),
        iso(core_block.updated_at) if core_block.updated_at else None,
        core_block.hidden_by or None,
    )


def time_of(value: str | None, name: str) -> float | None:
    """Return a Unix time. Raises BadRequest naming the member and its value."""
    if value is None:
        return None
    try:
        return moment(value)
    except (ValueError, OverflowError, OSError) as e:
        raise BadRequest(
            f"`{name}` is {value[:60]!r}: give an ISO 8601 date or time, like "
            "2026-03-01T12:00:00Z.",
            param=name,
        ) from e


def cursor_of(value: Any) -> str:
    """Encode a position in a list as an opaque text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def place_of(cursor: str | None, kind: type[T]) -> T | None:
    """Decode a cursor. Raises BadRequest for one that this list did not return."""
    if cursor is None:
        return None
    try:
        place = msgspec.json.decode(
            base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True), type=kind
        )
        # Range of a row key.
        if isinstance(place, int) and not 0 <= place < 2**63:
            raise ValueError("not a position in a list")
        return place
    except (msgspec.DecodeError, binascii.Error, ValueError) as e:
        raise BadRequest(
            f"`cursor` is {cursor[:60]!r}: send the `next_cursor` of the previous page.",
            param="cursor",
        ) from e
