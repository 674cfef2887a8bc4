"""The objects of a user's policy in the management API."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

LayerKinds = Annotated[list[Literal["tenant", "team", "project"]], msgspec.Meta(max_length=3)]


class PolicyPut(msgspec.Struct, forbid_unknown_fields=True):
    """memory: what the memory may do for the user, at most. timezone: an IANA name, null for that
    of the memory. layers: the layers that the user's requests read beside their own memory. A
    member that is left out stays as it is.
    """

    memory: Literal["full", "read", "write", "off"] | msgspec.UnsetType = msgspec.UNSET
    timezone: str | msgspec.UnsetType | None = msgspec.UNSET
    layers: LayerKinds | msgspec.UnsetType = msgspec.UNSET


class UserPolicy(msgspec.Struct):
    """timezone: left out where the user has none of their own. layers: left out for all."""

    memory: str
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    layers: list[str] | msgspec.UnsetType = msgspec.UNSET
    object: str = "policy"
