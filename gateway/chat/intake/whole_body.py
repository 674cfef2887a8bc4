"""All members of a body, also where only a few were read before."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.chat.intake.request import TurnInput
from gateway.wire.chat import Json
from gateway.wire.chat_request import parse_readable
from gateway.wire.json_weight import is_light


async def read_input(request: TurnInput) -> TurnInput:
    """Return a request with all members of its body, also where only a few were read before.

    Raises BadRequest for a body that cannot be read in time.
    """
    if request.whole_facts is not None or is_light(request.raw_body):
        return request
    body = await asyncio.to_thread(read_whole, request.raw_body)
    return msgspec.structs.replace(request, body=body)


def read_whole(raw_body: bytes) -> Json:
    """Return all members of a body. Raises BadRequest for one that cannot be read in time."""
    return parse_readable(raw_body, "a request that names what is stored")
