"""Checks what the body of a relayed request names, for keys that share the provider's account.

A path without memory reads stored responses, conversations, items and files as well as one with it
does, so it is guarded alike.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import msgspec

from gateway.apis.responses.responses_format import input_items
from gateway.chat.intake.named_objects import place_of
from gateway.chat.intake.owned_responses import (
    conversation_named,
    find_conversation,
    find_own,
)
from gateway.chat.intake.stored_names import (
    NAMING,
    check_items,
    check_members,
    check_names,
    may_name,
)
from gateway.errors import BadRequest
from gateway.http.json_thread import run_by_weight
from gateway.relay.endpoint import RelayedContent
from gateway.state import GatewayState
from gateway.wire.chat import Json, decode
from gateway.wire.item_references import references
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.model_field import URLENCODED
from gateway.wire.multipart import MalformedForm, fields, is_form, may_name_field

# What JSON may begin with, also in the encodings that some servers detect, and where they pass over
# more than JSON's white space.
BEFORE_JSON = bytes(range(0x21)) + b"\xef\xbb\xbf\xff\xfe\xc2\xa0"
CHAINING = ("previous_response_id", "conversation")
NAME_BYTES = 1000
MOST_FIELDS = 1000
# Of a form that is one text of escapes.
FORM_BYTES = 1 << 18
# Of a field that names something, in the head of its part.
NAME_ENDINGS = (b'_id"', b'_ids"', b"_id[", b"_ids[")


async def check_content(gateway: GatewayState, content: RelayedContent) -> None:
    """Raise ResourceNotFound, Forbidden or BadRequest if a body names what is not the caller's."""
    raw_body = content.data
    principal = content.principal
    body = await run_by_weight(raw_body, _body_of, content)
    if body is None:
        return
    user = gateway.names.user(principal, content.headers, content.user, body)
    await check_names(gateway, principal, user, raw_body, body)
    chained = {k.lower(): v for k, v in body.items() if k.lower() in CHAINING}
    if isinstance(name := chained.get("previous_response_id"), str):
        await find_own(gateway, principal, user, name)
    if name := conversation_named(chained):
        await find_conversation(gateway, principal, user, name)
    await check_items(gateway, principal, user, references(input_items(body)))


def _body_of(content: RelayedContent) -> Json | None:
    """Return the members of a body that may name something; None for any other.

    Raises BadRequest for one that a server may read although this gateway cannot.
    """
    raw_body = content.data
    is_json = raw_body.lstrip(BEFORE_JSON).startswith((b"{", b"["))
    if _is_form(content):
        # Which some servers read whatever its type.
        if is_json and _may_lead(content):
            raise _unreadable("it says that it is a form, and begins as JSON")
        return _form_of(content)
    if not is_json or not _may_lead(content):
        return None
    if not is_readable(raw_body):
        raise _unreadable(f"it has {UNREADABLE}")
    try:
        members: Any = decode(raw_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise _unreadable(str(e)[:200]) from e
    check_members(raw_body)
    if isinstance(members, dict):
        return members
    return {"items": members}


def _may_lead(content: RelayedContent) -> bool:
    """Tell whether JSON may name something, before it is read."""
    # What is in UTF-16 names things too.
    text = content.data.replace(b"\x00", b"").lower()
    return may_name(content.principal, text) or any(name in text for name in NAMING)


def _is_form(content: RelayedContent) -> bool:
    kind = content.content_type.partition(b";")[0].strip().lower()
    return kind == URLENCODED or is_form(content.content_type)


def _form_of(content: RelayedContent) -> Json:
    """Return the fields of a form that may name something."""
    data = content.data
    kind = content.content_type
    if not is_form(kind):
        if len(data) > FORM_BYTES:
            raise _unreadable(f"the form has {len(data)} bytes, of which {FORM_BYTES} are read")
        try:
            form_fields = parse_qsl(data.decode("latin-1"), max_num_fields=MOST_FIELDS)
        except ValueError as e:
            raise _unreadable(f"the form has more than {MOST_FIELDS} fields") from e
        return _members(form_fields)
    try:
        parts = list(fields(data, kind))
    except MalformedForm as e:
        if may_name_field(data, NAME_ENDINGS):
            raise _unreadable(str(e)) from e
        return {}
    texts = [part for part in parts if part.end - part.start <= NAME_BYTES]
    return _members(
        [
            (p.name.decode("latin-1"), data[p.start : p.end].decode("utf-8", "replace"))
            for p in texts
        ]
    )


def _members(form_fields: list[tuple[str, str]]) -> Json:
    """Return the fields that name something; several of one name as a list."""
    members: dict[str, Any] = {}
    for name, value in form_fields:
        member = name.strip().partition("[")[0]
        if place_of(member) is not None:
            members.setdefault(member, []).append(value)
        elif member.lower() in CHAINING:
            members[member] = value
    return members


def _unreadable(why: str) -> BadRequest:
    return BadRequest(
        f"The body cannot be checked for what it names: {why}. Send a JSON object in UTF-8, or a "
        "multipart form, as the SDKs do.",
        code="invalid_json",
    )
