"""Compacts input items at servers that cannot: a summary in place of all but the users' words.

The summary is made as one of an overflowing conversation is, and sealed in an item that this
gateway can read later. The client gets the messages back as they were.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.apis.translation.sealed_compaction import (
    COMPACTION,
    SummarySeal,
    earlier_summary,
    kept_items,
    output_message,
    transcript,
)
from gateway.chat.stored.named_items import resolve_all
from gateway.errors import BadRequest, UpstreamUnreachable
from gateway.http.json_thread import run_heavy
from gateway.memory_adapters.summarizer import Summarizer
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.wire.chat import Json
from memory import TooLong, Unusable, write_summary

# Of a summary; a small window gets a shorter one.
SUMMARY_TOKENS = 2000
JSON = [(b"content-type", b"application/json")]


class Compaction(NamedTuple):
    """What a compaction comes to.

    kept_items: items that stay as they are. item: what stands for all others. usage: of the model
    that made the summary, as the Responses API has it.
    """

    kept_items: list[Json]
    item: Json
    usage: Json


class _CompactedInput(NamedTuple):
    """What a compaction is made of. spoken_items: all that was said and done, to be summarised."""

    kept_items: list[Any]
    earlier: str
    spoken_items: list[Json]


class Compactor:
    """Compacts for one request. forward: carries its calls, and meters them. user: who asks."""

    def __init__(
        self, gateway: GatewayState, forward: Dispatcher, tenant: str, user: str | None
    ) -> None:
        self._gateway = gateway
        self._forward = forward
        self._tenant = tenant
        self._user = user
        self._seal = SummarySeal(gateway.secret, tenant)

    async def compact(self, model: str, items: Sequence[Any]) -> Compaction:
        """Return the compaction of input items. Raises GatewayError.

        model: as the client names it.
        """
        if not items:
            raise BadRequest("There is nothing to compact: `input` is empty.", param="input")
        items = await resolve_all(self._gateway, self._tenant, self._user, list(items))
        compacted_input = await run_heavy(self._read, items)
        summary = await self._summarise(model, compacted_input)
        usage = self._forward.meter.bill().tokens
        sealed_item = {"type": COMPACTION, "encrypted_content": self._seal.close(summary)}
        return Compaction(
            [output_message(item, new_ident("msg")) for item in compacted_input.kept_items],
            {"id": new_ident("cmp"), **sealed_item},
            {
                "input_tokens": usage.input,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_input,
                    "cache_write_tokens": usage.cache_write,
                },
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input + usage.output,
            },
        )

    def _read(self, items: Sequence[Any]) -> _CompactedInput:
        items_to_keep = list(kept_items(items, self._seal))
        return _CompactedInput(items_to_keep, earlier_summary(items, self._seal), transcript(items))

    async def _summarise(self, model: str, compacted_input: _CompactedInput) -> str:
        """Return a model's summary. Raises GatewayError: without one, nothing may be left out."""
        complete = Summarizer(self._gateway, self._forward, model)
        try:
            return await write_summary(
                complete, compacted_input.earlier, compacted_input.spoken_items, SUMMARY_TOKENS
            )
        except TooLong as e:
            raise BadRequest(
                "The input cannot be compacted: one of its pieces exceeds the context window of "
                "the model that summarises. Send less, or name a model with a larger window in "
                "memory.summarizer.",
                code="context_length_exceeded",
                param="input",
            ) from e
        except (Unusable, msgspec.DecodeError, LookupError, TypeError) as e:
            raise UpstreamUnreachable(
                "The input was not compacted: the model answered with no summary. Try again."
            ) from e


def new_ident(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"
