"""Reads a client's headers: the agent, the conversation, and signs of a retry."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.apis.client_profiles import CONVERSATION_CHARACTERS, ClientProfile
from gateway.auth.authenticator import Principal
from gateway.auth.user_resolver import header_text
from gateway.errors import BadRequest, Forbidden
from memory import KIND_MARK, parse_zone

AGENT_CHARACTERS = 256
CONVERSATION = b"x-memory-conversation"
TIMEZONE = b"x-memory-timezone"

Headers = Mapping[bytes, bytes]


def agent_of(headers: Headers) -> str:
    """Return the request's agent. Raises BadRequest."""
    agent = (header_text(headers, b"x-memory-agent") or "default").lstrip(KIND_MARK) or "default"
    if len(agent) > AGENT_CHARACTERS:
        raise BadRequest(
            f"X-Memory-Agent has {len(agent)} characters; at most {AGENT_CHARACTERS} are allowed.",
            param="x-memory-agent",
        )
    return agent


def conversation_of(
    headers: Headers, principal: Principal, user: str | None, program: ClientProfile | None
) -> tuple[str | None, bool]:
    """Return the named conversation, and whether the client's program named it by its own header.

    program: None if its headers are ignored. Raises BadRequest, Forbidden.
    """
    nobody = user is None and not principal.trusted
    name = header_text(headers, CONVERSATION)
    if not name:
        if program is None or nobody:
            program_name = ""
        else:
            program_name = program.conversation(headers)
        return program_name or None, bool(program_name)
    if len(name) > CONVERSATION_CHARACTERS:
        raise BadRequest(
            f"X-Memory-Conversation has {len(name)} characters; at most "
            f"{CONVERSATION_CHARACTERS} are allowed.",
            param="x-memory-conversation",
        )
    if nobody:
        raise Forbidden("X-Memory-Conversation needs a named user or a trusted key.")
    return name, False


def zone_of(headers: Headers) -> str:
    """Return the user's time zone by its IANA name, "" if the client names none.

    Raises BadRequest.
    """
    name = header_text(headers, TIMEZONE)
    if not name:
        return ""
    try:
        parse_zone(name)
    except ValueError as e:
        raise BadRequest(
            f"X-Memory-Timezone is {name[:60]!r}: give an IANA name, like Europe/Berlin.",
            param="x-memory-timezone",
        ) from e
    return name


def retry_signals(headers: Headers) -> tuple[str, bool]:
    """Return the idempotency key, and whether the client says that it tried before.

    A key says so, and so does the count that OpenAI's SDKs send.
    """
    key = headers.get(b"idempotency-key", b"").decode("latin-1")
    count = headers.get(b"x-stainless-retry-count", b"0")
    return key, bool(key) or (count.isdigit() and bool(count.strip(b"0")))
