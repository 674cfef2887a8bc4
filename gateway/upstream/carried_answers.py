"""What servers want back of answers whose clients have no place for it, kept in this process.

An answer is known by its tenant, its provider, all that was said before it, and its own words and
calls. Ids of calls only confirm: servers use them again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence

import msgspec

from gateway.apis.translation.accepted_messages import with_carried
from gateway.apis.translation.member_seal import SealedMembers
from gateway.wire.chat import Json
from gateway.wire.json_weight import is_readable
from memory import Cache

MOST_BYTES = 32 << 20
# Of an entry, beside what is sealed.
EACH_BYTES = 300
_encode = msgspec.json.encode


class CarriedAnswer(msgspec.Struct, frozen=True):
    """What a server said beside an answer, encoded. idents: of its calls."""

    sealed: bytes
    idents: tuple[str, ...]


class CarriedAnswers:
    """Bounded in bytes; used from threads too. most: bytes."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._answers: Cache[bytes, CarriedAnswer] = Cache(
            max_bytes,
            EACH_BYTES,
            lambda _, answer: len(answer.sealed) + sum(map(len, answer.idents)),
        )

    def keep(
        self, account: bytes, before: Sequence[Json], answer: Json, sealed: SealedMembers
    ) -> None:
        """Keep what was said beside an answer.

        account: tenant and provider. before: the messages that it answers.
        """
        *_, link = _links(account, before)
        key = _digest(link, answer)
        carried_answer = CarriedAnswer(_encode(sealed), _idents(answer))
        if is_readable(carried_answer.sealed):
            with self._lock:
                self._answers.put(key, carried_answer)

    def restore(self, account: bytes, messages: Sequence[Json]) -> list[Json]:
        """Return messages with what was kept of them; those that have it already stay so."""
        if not len(self._answers):
            return list(messages)
        out = []
        for message, link in zip(messages, _links(account, messages), strict=False):
            if message.get("tool_calls") and not _has_more(message):
                message = self._restored(message, _digest(link, message))
            out.append(message)
        return out

    def _restored(self, message: Json, key: bytes) -> Json:
        with self._lock:
            carried_answer = self._answers.get(key)
        if carried_answer is None or carried_answer.idents != _idents(message):
            return message
        return with_carried(message, msgspec.json.decode(carried_answer.sealed, type=SealedMembers))


def _links(account: bytes, messages: Sequence[Json]) -> Iterator[bytes]:
    """Yield a digest of all that stands before each message, and one of them all.

    System texts are left out: programs change them from one request to the next.
    """
    link = hashlib.blake2b(account, digest_size=32).digest()
    for message in messages:
        yield link
        if message["role"] != "system":
            link = _digest(link, message)
    yield link


def _digest(link: bytes, message: Json) -> bytes:
    calls = [c["function"] for c in message.get("tool_calls") or ()]
    digest_members = [
        message["role"],
        message.get("content"),
        [[f.get("name"), f.get("arguments")] for f in calls],
    ]
    return hashlib.blake2b(_encode(digest_members), key=link, digest_size=32).digest()


def _idents(message: Json) -> tuple[str, ...]:
    return tuple(str(c.get("id")) for c in message.get("tool_calls") or ())


def _has_more(message: Json) -> bool:
    """Tell whether a message has what the server said beside it."""
    usual_members = {"role", "content", "tool_calls"}
    calls = message.get("tool_calls") or ()
    return bool(message.keys() - usual_members) or any(
        len(call) > len(usual_members) for call in calls
    )
