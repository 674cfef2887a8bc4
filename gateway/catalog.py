"""`/v1/models` from the configuration alone: it works with no upstream up. Pure."""
from __future__ import annotations

from collections.abc import Sequence

from gateway.wire.chat import Json, encode

CREATED = 1_700_000_000  # the field is required and strict clients refuse null; configured names have no birthday


def _card(name: str) -> Json:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "memgate"}


def model_list(names: Sequence[str]) -> bytes:
    return encode({"object": "list", "data": [_card(n) for n in names]})


def model_card(name: str) -> bytes:
    return encode(_card(name))
