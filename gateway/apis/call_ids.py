"""Ids of calls that the client does not see: none is another call's in the same request. Pure.

Some servers number the calls of each answer from the beginning (`call_0`), and strict ones refuse
two calls of one id.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence

from gateway.wire.chat import Json
from memory import Messages

# Ids that JSON spells in one way, nearly always.
PLAIN_ID = re.compile(r"[\w.:-]+", re.ASCII).fullmatch
# So many ids are looked for in all the bytes of a request.
SEARCHED_IDS = 4
# Where the parts of an answer have the id of a call, by their type.
CALL_MEMBERS = {"function_call": "call_id", "custom_tool_call": "call_id", "tool_use": "id"}
RESULT_MEMBERS = {"function_call_output": "call_id", "tool_result": "tool_use_id"}
ID_MEMBERS = {**CALL_MEMBERS, **RESULT_MEMBERS}


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def calls_in(messages: Iterable[Json]) -> list[Json]:
    """Return the calls in these messages."""
    return [c for m in messages for c in m.get("tool_calls") or []]


def find_taken_ids(ids: set[str], messages: Messages) -> set[str]:
    """Find which of these ids the client's messages may hold.

    They are found in the messages' bytes, so that none of them is decoded for it.
    """
    if len(ids) > SEARCHED_IDS or not messages.text:
        return ids & {str(c.get("id")) for c in calls_in(messages)}
    return {i for i in ids if not PLAIN_ID(i) or f'"{i}"'.encode() in messages.text}


def ids_in(parts: Iterable[Json]) -> set[str]:
    """Return the ids of calls in parts, or in messages that hold parts."""
    ids: set[str] = set()
    for part in parts:
        if (member := CALL_MEMBERS.get(str(part.get("type")))) is not None:
            ids.add(str(part.get(member)))
        elif isinstance(content := part.get("content"), list):
            ids |= ids_in(p for p in content if isinstance(p, dict))
    return ids


def with_new_ids(parts: Sequence[Json], new_ids: Mapping[str, str]) -> list[Json]:
    """Return parts, or messages that hold parts, in which these calls have new ids.

    Our results are changed where they stand: pictures in them are known by the object.
    """
    changed_parts: list[Json] = []
    for part in parts:
        kind = str(part.get("type"))
        member = ID_MEMBERS.get(kind)
        if member is not None and (new_id := new_ids.get(str(part.get(member)))) is not None:
            if kind in RESULT_MEMBERS:
                part[member] = new_id
            else:
                part = {**part, member: new_id}
        elif isinstance(content := part.get("content"), list) and "role" in part:
            part = {**part, "content": with_new_ids(content, new_ids)}
        changed_parts.append(part)
    return changed_parts


def with_own_ids(
    parts: Sequence[Json], own_calls: Sequence[Json], taken_ids: set[str]
) -> tuple[list[Json], list[str]]:
    """Return the parts of an answer with new ids for calls of ours whose id is taken, and our ids.

    taken_ids: grows by ours.
    """
    own_ids = {id(c): str(c.get(CALL_MEMBERS[c["type"]]) or "") for c in own_calls}
    changed_parts: list[Json] = []
    for part in parts:
        key = id(part)
        if key in own_ids:
            call_id = own_ids[key]
            if not call_id or call_id in taken_ids:
                call_id = new_call_id()
                part = {**part, CALL_MEMBERS[part["type"]]: call_id}
            taken_ids.add(call_id)
            own_ids[key] = call_id
        changed_parts.append(part)
    return changed_parts, [own_ids[id(call)] for call in own_calls]
