"""Reads the body of a request on a conversation object, and writes its answer.

Both may hold megabytes, and are worked on in a thread then.
"""

from __future__ import annotations

from gateway.apis.responses.response_items import without_owned
from gateway.chat.stored import kept_responses
from gateway.chat.stored.stored_responses import client_items
from gateway.errors import BadRequest
from gateway.http.json_thread import run_by_weight, run_heavy
from gateway.wire.chat import Json, encode
from gateway.wire.chat_request import parse
from gateway.wire.item_references import is_reference
from gateway.wire.json_weight import UNREADABLE, is_readable

# Items in one request, as the API has it.
MAX_ADDED = 20
# Of metadata.
MAX_MEMBERS, MAX_NAME, MAX_VALUE = 16, 64, 512


async def read_conversation_body(raw_body: bytes) -> Json:
    """Return a body. Raises BadRequest."""
    return await run_by_weight(raw_body, _read, raw_body)


async def measure_items(raw_body: bytes, items: list[Json]) -> int:
    """Return how many bytes the items of a body have as they are kept."""
    return await run_by_weight(raw_body, lambda: len(encode(items)))


async def encode_whole(answer: Json) -> bytes:
    """Return a provider's answer as it is."""
    return await run_heavy(encode, answer)


async def encode_page(page: Json, owned: frozenset[str], tag: str) -> bytes:
    """Return a provider's page of items as its client sees it. owned: names of tools run here."""
    return await run_heavy(lambda: encode(client_items(without_owned(page, owned), tag)))


async def encode_asked(items: list[Json], query: str) -> bytes:
    """Return the page of items that a query asks for. Raises BadRequest."""
    return await run_heavy(lambda: encode(kept_responses.asked_page(items, query)))


async def encode_added(items: list[Json]) -> bytes:
    """Return items that were added as one page."""
    return await run_heavy(
        lambda: encode(kept_responses.page_of(items, len(items), "", newest=False))
    )


def _read(raw_body: bytes) -> Json:
    if len(raw_body) > kept_responses.MAX_KEPT_BYTES:
        raise BadRequest(
            f"The body has more than {kept_responses.MAX_KEPT_BYTES >> 20} MiB: that is the limit "
            "of what is added to a conversation at once. Send less."
        )
    if not is_readable(raw_body):
        raise BadRequest(f"The body has {UNREADABLE}: that is the limit. Send fewer.")
    return parse(raw_body or b"{}")


def items_in(body: Json) -> list[Json]:
    """Return the items that a request adds. Raises BadRequest."""
    items = body.get("items", [])
    if items is None:
        items = []
    if not isinstance(items, list) or not all(isinstance(i, dict) for i in items):
        raise BadRequest("`items` must be a list of items.", param="items")
    if len(items) > MAX_ADDED:
        raise BadRequest(
            f"`items` has {len(items)} items; the limit is {MAX_ADDED} in one request. Send the "
            "others in another.",
            param="items",
        )
    if any(kept_responses.is_deleted(i) or is_reference(i) for i in items):
        raise BadRequest("`items` must hold the items themselves.", param="items")
    return items


def metadata_in(body: Json) -> Json:
    """Return a conversation's metadata. Raises BadRequest."""
    metadata = body.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise BadRequest("`metadata` must be an object of texts.", param="metadata")
    longest_value = max((len(v) for v in metadata.values()), default=0)
    if (
        len(metadata) > MAX_MEMBERS
        or longest_value > MAX_VALUE
        or any(len(k) > MAX_NAME for k in metadata)
    ):
        raise BadRequest(
            f"`metadata` may have {MAX_MEMBERS} members, with names of {MAX_NAME} characters and "
            f"texts of {MAX_VALUE}.",
            param="metadata",
        )
    return metadata
