"""What a server of chat completions says beside the model's words, sealed for another format. Pure.

Such servers want some of it back: reasoning, signatures of thoughts, details of reasoning. Other
formats have no place for these but the opaque members of their own reasoning (`signature` of a
thinking block, `encrypted_content` of a reasoning item), which every client returns as it came.

A token is made for one tenant and one provider. It is authenticated, so that no client can make
one, change one, or use one that another tenant was given.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.wire.chat import Json
from gateway.wire.json_weight import is_readable
from gateway.wire.own_marks import ORPHANED, SEALED

MAC_BYTES = 16
# A place that no call has.
NOWHERE = -(1 << 60)
# Of what is sealed in some 40 ms; more is not carried.
MOST_BYTES = 4 << 20


class CallMembers(NamedTuple):
    """What a server said beside one call.

    place: counted from the call that follows the token. ident: the call's id, "" for none: it only
    tells which of several it is, where the client was not shown all of them.
    """

    place: int
    ident: str
    members: Json

    def at(self, count: int) -> CallMembers:
        """Return it with its place in a message that has so many calls before the token."""
        return self._replace(place=self.place + count)


class SealedMembers(NamedTuple):
    """What a server said beside the words of a message, and beside each of its calls."""

    members: Json
    calls: Sequence[CallMembers] = ()


class MemberSeal:
    """Makes and opens the tokens of one tenant and one provider. secret: the server's."""

    def __init__(self, secret: bytes, tenant: str, provider: str) -> None:
        scope = msgspec.json.encode([tenant, provider])
        self._key = hashlib.blake2b(scope, key=secret[:64], person=b"member-seal").digest()

    def close(self, sealed: SealedMembers) -> str:
        """Return a token; "" for what is too much for one."""
        data = msgspec.json.encode(sealed)
        if len(data) > MOST_BYTES or not is_readable(data):
            return ""
        data = zlib.compress(data, 1)
        return SEALED + base64.urlsafe_b64encode(self._mac(data) + data).decode().rstrip("=")

    def open(self, token: Any) -> SealedMembers | None:
        """Return what a token holds; None for one that is not of this tenant and provider."""
        if not isinstance(token, str):
            return None
        sealed_text = token.removeprefix(ORPHANED)
        sealed = self._open(sealed_text)
        if sealed is None or sealed_text is token:
            return sealed
        # A call of ours followed, which is not there: only an id tells which call is meant.
        return sealed._replace(calls=[c._replace(place=NOWHERE) for c in sealed.calls])

    def _open(self, token: str) -> SealedMembers | None:
        if not token.startswith(SEALED):
            return None
        text = token.removeprefix(SEALED)
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        mac = data[:MAC_BYTES]
        data = data[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(data)):
            return None
        return msgspec.json.decode(zlib.decompress(data), type=SealedMembers)

    def _mac(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=MAC_BYTES).digest()
