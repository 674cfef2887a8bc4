"""The `Embed` port: texts to vectors.

The gateway implements it over its upstreams; `none` is its absence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embed(Protocol):
    """An embedding model. `model` names it: vectors of different models are never compared."""

    model: str

    async def __call__(self, tenant: str, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector a text, all of one length, for this tenant (whose credentials may be
        needed).

        Raises EmbedUnavailable when it cannot be asked now; the caller goes on without vectors or
        tries again later. Raises EmbedRefused when it does not take one of these texts: to ask for
        the same again changes nothing.
        """
        ...


class EmbedUnavailable(Exception):
    """The embedder cannot answer now: no credential at hand, or its upstream failed."""


class EmbedRefused(Exception):
    """The embedder does not take one of the texts (too long, not allowed), or, set up wrongly, none
    at all.
    """
