"""Parses and checks the body of a request on a conversation object."""

from __future__ import annotations

from gateway.chat import kept_responses
from gateway.errors import BadRequest
from gateway.wire.chat import Json
from gateway.wire.chat_request import parse
from gateway.wire.json_weight import UNREADABLE, is_readable

MAX_ADDED = 20  # items in one request, as the API has it
MAX_MEMBERS, MAX_NAME, MAX_VALUE = 16, 64, 512  # of metadata


def read_conversation_body(raw: bytes) -> Json:
    """Return a body. Raises BadRequest."""
    if len(raw) > kept_responses.MAX_KEPT_BYTES:
        raise BadRequest(
            f"The body has more than {kept_responses.MAX_KEPT_BYTES >> 20} MiB: that is the limit "
            "of what is added to a conversation at once. Send less."
        )
    if not is_readable(raw):
        raise BadRequest(f"The body has {UNREADABLE}: that is the limit. Send fewer.")
    return parse(raw or b"{}")


def items_in(body: Json) -> list[Json]:
    """Return the items that a request adds. Raises BadRequest."""
    items = body.get("items", [])
    items = [] if items is None else items
    if not isinstance(items, list) or not all(isinstance(i, dict) for i in items):
        raise BadRequest("`items` must be a list of items.", param="items")
    if len(items) > MAX_ADDED:
        raise BadRequest(
            f"`items` has {len(items)} items; the limit is {MAX_ADDED} in one request. Send the "
            "others in another.",
            param="items",
        )
    if any(kept_responses.is_deleted(i) or i.get("type") == "item_reference" for i in items):
        raise BadRequest("`items` must hold the items themselves.", param="items")
    return items


def metadata_in(body: Json) -> Json:
    """Return a conversation's metadata. Raises BadRequest."""
    told = body.get("metadata")
    told = {} if told is None else told
    if not isinstance(told, dict) or not all(isinstance(v, str) for v in told.values()):
        raise BadRequest("`metadata` must be an object of texts.", param="metadata")
    longest = max((len(v) for v in told.values()), default=0)
    if len(told) > MAX_MEMBERS or longest > MAX_VALUE or any(len(k) > MAX_NAME for k in told):
        raise BadRequest(
            f"`metadata` may have {MAX_MEMBERS} members, with names of {MAX_NAME} characters and "
            f"texts of {MAX_VALUE}.",
            param="metadata",
        )
    return told
