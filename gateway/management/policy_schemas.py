"""The objects of users' policies in the management API."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

ToolPattern = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
LayerKinds = Annotated[list[Literal["tenant", "team", "project"]], msgspec.Meta(max_length=3)]


class PolicyPut(msgspec.Struct, forbid_unknown_fields=True):
    """memory: what the memory may do for the user, at most. timezone: an IANA name, null for that
    of the memory. tools: patterns of the operator's tools that the user may have, at most; ["*"]
    for all. layers: the layers that the user's requests read beside their own memory. A member
    that is left out stays as it is.
    """

    memory: Literal["full", "read", "write", "off"] | msgspec.UnsetType = msgspec.UNSET
    timezone: str | msgspec.UnsetType | None = msgspec.UNSET
    tools: list[ToolPattern] | msgspec.UnsetType = msgspec.UNSET
    layers: LayerKinds | msgspec.UnsetType = msgspec.UNSET


class UserPolicy(msgspec.Struct):
    """timezone, tools: left out where the user has none of their own. layers: left out for all."""

    memory: str
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    tools: list[str] | msgspec.UnsetType = msgspec.UNSET
    layers: list[str] | msgspec.UnsetType = msgspec.UNSET
    object: str = "policy"
