"""Reads a request's body, as far as its mode and its size allow."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from gateway.apis.base import ApiFormat, RequestFacts
from gateway.apis.client_profiles import ClientProfile
from gateway.http.json_thread import run_by_weight
from gateway.http.request_weight import (
    TooHeavy,
    check_values,
    check_weight,
    read_routing_members,
)
from gateway.state import GatewayState
from gateway.wire.chat import Json, decode_weighed
from gateway.wire.chat_request import check_model, parse
from gateway.wire.json_slices import discard
from gateway.wire.json_weight import is_light

log = logging.getLogger("mnemogate")


class ModelMissing(Exception):
    """A request without a model, which its format allows: the provider may know the model.

    body: its bytes, decompressed. members: what they say.
    """

    def __init__(self, body: bytes, members: Json) -> None:
        super().__init__("no model")
        self.body = body
        self.members = members


class BodySource(msgspec.Struct, frozen=True):
    """The origin of a body.

    request: its id, for the log. client: the program that sent it. caller: the caller, whose
    earlier requests may begin with the same bytes.
    """

    request: str
    api: ApiFormat
    client: ClientProfile
    caller: object


class ReadBody(msgspec.Struct, frozen=True):
    """What was read of a body.

    facts: None if it was only read as far as routing needs. too_heavy: why memory cannot inspect it
    in time, "" if it can.
    """

    members: Json
    facts: RequestFacts | None = None
    too_heavy: str = ""


async def read_members(
    gateway: GatewayState, source: BodySource, raw_body: bytes, *, whole: bool
) -> ReadBody:
    """Read a body. whole: memory is used. Raises BadRequest."""
    too_heavy = ""
    if whole:
        try:
            if source.api.is_chat:
                body = await gateway.prefixes.parse_async(source.caller, raw_body)
                return ReadBody(body, source.api.facts(body))
            return await run_by_weight(raw_body, _read_whole, raw_body, source)
        except TooHeavy as e:
            too_heavy = str(e)
            log.warning(
                "a request is too long for memory and goes without it (%s): %s",
                source.request,
                too_heavy,
            )
    if is_light(raw_body):
        members = parse(raw_body, decode_weighed)
        if not source.api.is_chat and members.get("model") is None:
            raise ModelMissing(raw_body, members)
        check_model(members)
        return ReadBody(members, too_heavy=too_heavy)
    return ReadBody(await asyncio.to_thread(read_routing_members, raw_body), too_heavy=too_heavy)


def _read_whole(raw_body: bytes, source: BodySource) -> ReadBody:
    """Read a body without a known beginning. Raises BadRequest, TooHeavy."""
    check_values(raw_body)
    members = parse(raw_body, decode_weighed)
    if not source.api.is_chat and members.get("model") is None:
        raise ModelMissing(raw_body, members)
    check_model(members)
    facts = source.api.facts(members, source.client.summaries)
    try:
        check_weight(len(raw_body), facts.history)
    except TooHeavy:
        # Here, in steps: the event loop would free all of it at once.
        left_over = [*facts.history, members]
        del facts, members
        discard(left_over)
        raise
    facts.history.heavy = facts.history.heavy or not is_light(raw_body)
    return ReadBody(members, facts)
