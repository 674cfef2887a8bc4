"""The `Embed` port: texts to vectors. The gateway implements it over its upstreams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embed(Protocol):
    """An embedding model. `model` names it: vectors of different models are never compared."""

    model: str

    async def __call__(self, tenant: str, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, all of one length.

        tenant: whose credentials may be needed. Raises EmbedUnavailable if it cannot be called now;
        the caller continues without vectors or retries later. Raises EmbedRefused if it refuses one
        of these texts; a retry with the same texts is pointless.
        """
        ...


class EmbedUnavailable(Exception):
    """The embedder cannot be called now: no credential, or its upstream failed."""


class EmbedRefused(Exception):
    """The embedder refuses one of the texts (too long, not allowed), or all, if misconfigured."""
