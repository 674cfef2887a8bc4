"""The answer of `/v1/models`, from the configuration: works without an upstream. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.wire.chat import Json, encode

# the member is required and strict clients refuse null; configured names have no creation time
CREATED = 1_700_000_000


def _card(name: str) -> Json:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "mnemogate"}


def model_list(names: Sequence[str], more: Sequence[Json] = ()) -> bytes:
    """Return the configured models, then those that the upstream lists, as strict clients need
    them.
    """
    others = [_whole(m) for m in more if m["id"] and m["id"] not in names]
    return encode({"object": "list", "data": [*map(_card, names), *others]})


def _whole(listed: Json) -> Json:
    """Return an upstream's entry, with ours for a member that is missing or of a wrong type."""
    own = _card(listed["id"])
    created, owner = listed.get("created"), listed.get("owned_by")
    if isinstance(created, (int, float)) and not isinstance(created, bool):
        own["created"] = int(created)
    if isinstance(owner, str):
        own["owned_by"] = owner
    return {**listed, **own}


def model_card(name: str) -> bytes:
    return encode(_card(name))
