"""What a server says beside the model's words, gathered from the deltas of one answer. Pure.

Of a message: what is named like reasoning, thoughts or signatures (`reasoning_content`,
`reasoning_details`, `extra_content`). Of a call: every member that chat completions do not define.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gateway.apis.translation.member_seal import CallMembers, SealedMembers
from gateway.wire.chat import Json
from gateway.wire.merge import merge, plain_text

BESIDE = re.compile(r"reason|think|thought|signature|encrypted|extra_content|provider_specific")
OF_CALLS = frozenset({"id", "type", "function", "index"})
OF_FUNCTIONS = frozenset({"name", "arguments"})
NOTHING: tuple[Any, ...] = (None, "", [], {})


class CarriedMembers:
    """Gathers what an answer's deltas say beside the words.

    A call is any object with an `ident`; it is the same object in every method.
    """

    def __init__(self) -> None:
        self._pending_members: Json = {}
        self._pending_calls: list[tuple[Any, Json]] = []
        # Places are those in the whole message.
        self._sealed: list[SealedMembers] = []

    def take(self, delta: Json) -> None:
        """Take what a delta says beside the message's words."""
        extra_members = {k: v for k, v in delta.items() if v not in NOTHING and BESIDE.search(k)}
        if extra_members:
            merge(self._pending_members, extra_members)

    def take_call(self, call: Any, delta: Json) -> None:
        """Take what a delta says beside a call."""
        extra_members = {k: v for k, v in delta.items() if k not in OF_CALLS and v not in NOTHING}
        function = delta.get("function")
        if isinstance(function, dict):
            function_members = {k: v for k, v in function.items() if k not in OF_FUNCTIONS}
            extra_members |= {"function": function_members} if function_members else {}
        if extra_members:
            self._pending_calls.append((call, extra_members))

    @property
    def is_pending(self) -> bool:
        """Whether anything came since it was last sealed."""
        return bool(self._pending_members or self._pending_calls)

    def close(self, calls: Sequence[Any]) -> SealedMembers:
        """Return what came since the last time. calls: those that have begun, in their order.

        Places are counted from the call that begins next.
        """
        places = {id(call): place - len(calls) for place, call in enumerate(calls)}
        coming: dict[int, int] = {}
        members_by_place: dict[int, CallMembers] = {}
        for call, extra_members in self._pending_calls:
            place = places.get(id(call))
            if place is None:
                place = coming.setdefault(id(call), len(coming))
            members = members_by_place.setdefault(
                id(call), CallMembers(place, str(call.ident), {})
            ).members
            merge(members, extra_members)
        sealed_calls = [
            c._replace(members=plain_text(c.members)) for c in members_by_place.values()
        ]
        sealed = SealedMembers(plain_text(self._pending_members), sealed_calls)
        self._pending_members = {}
        self._pending_calls = []
        self._sealed.append(SealedMembers(sealed.members, [c.at(len(calls)) for c in sealed_calls]))
        return sealed

    def whole(self) -> SealedMembers | None:
        """Return all that was closed, with places in the whole message; None for nothing."""
        members: Json = {}
        for sealed in self._sealed:
            merge(members, sealed.members)
        calls = [call for sealed in self._sealed for call in sealed.calls]
        if members or calls:
            return SealedMembers(plain_text(members), calls)
        return None
