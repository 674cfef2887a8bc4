"""Registers the room of stored objects: without `gateway.chat.stored` this is None."""

from __future__ import annotations

from gateway.chat.stored.background_booking import book_pending
from gateway.chat.stored.compaction_trigger import begin_compaction, may_ask_for_compaction
from gateway.chat.stored.response_keeper import keeper_of
from gateway.chat.stored.stored_passthrough import StoredPassthrough
from gateway.chat.stored.stored_responses import link_response
from gateway.state import StoredRoom

STORED: StoredRoom | None = StoredRoom(
    link=link_response,
    keep=keeper_of,
    relay=StoredPassthrough,
    may_compact=may_ask_for_compaction,
    compact=begin_compaction,
    book=book_pending,
)
