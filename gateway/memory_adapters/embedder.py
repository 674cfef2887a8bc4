"""The memory's `Embed` port over our upstreams."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.auth.authenticator import Principal
from gateway.auth.credential_cache import CredentialCache
from gateway.errors import GatewayError
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import upstream_path
from gateway.routing.router import Router
from gateway.upstream.base import UpstreamRequest
from gateway.wire.chat import decode
from gateway.wire.headers import upstream_headers
from gateway.wire.lone_surrogates import without_halves
from memory import EmbedRefused, EmbedUnavailable, Postponed

BATCH = 96
# Of an answer: 96 vectors of 4,096 numbers have some 9 MB.
VECTOR_BYTES = 16 << 20

# Errors of the input; other errors concern the moment, the key or the URL.
REFUSALS = (
    400,
    413,
    422,
)


class NoCredential(EmbedUnavailable, Postponed):
    """The tenant has sent no credential yet.

    A search continues without vectors; a job waits for the tenant's next request.
    """


class UpstreamEmbedder:
    """Embeds texts with a configured model.

    model: its name in the router. own_key: each tenant pays, with its own credentials.
    """

    def __init__(
        self, model: str, router: Router, credentials: CredentialCache, *, own_key: bool = False
    ) -> None:
        self.model = model
        self.own_key = own_key
        self.router = router
        self._credentials = credentials

    async def __call__(self, tenant: str, texts: Sequence[str]) -> list[list[float]]:
        out: list[list[float]] = []
        for i in range(0, len(texts), BATCH):
            out += await self._batch(tenant, texts[i : i + BATCH])
        return out

    async def _batch(self, tenant: str, texts: Sequence[str]) -> list[list[float]]:
        target = self.router.route(self.model, Principal(tenant, "embedder")).targets[0]
        key = target.settings.api_key
        authorization = (
            b"Bearer " + key.get_secret_value().encode()
            if key
            else self._credentials.get(tenant)
            if self.own_key
            else None
        )
        if authorization is None and self.own_key:
            raise NoCredential("no request of the tenant has brought a credential since the start")
        body = msgspec.json.encode(
            {
                "model": target.model,
                "input": [without_halves(text) for text in texts],
                "encoding_format": "float",
            }
        )
        try:
            incoming = await target.upstream.send(
                UpstreamRequest(
                    upstream_path("embeddings"), body, upstream_headers([], authorization)
                )
            )
            data = await incoming.read(VECTOR_BYTES)
            await incoming.close()
            if incoming.status in REFUSALS:
                raise EmbedRefused(f"the embedder refused with {incoming.status}")
            if incoming.status != 200:
                raise EmbedUnavailable(f"the embedder answered {incoming.status}")
            return await run_by_weight(data, _vectors_in, data)
        except (GatewayError, msgspec.DecodeError, KeyError, TypeError, ValueError) as e:
            raise EmbedUnavailable(f"the embedder failed: {type(e).__name__}") from e


def _vectors_in(data: bytes) -> list[list[float]]:
    """Return the vectors of an answer, in order."""
    rows = sorted(decode(data)["data"], key=lambda r: r["index"])
    return [[float(x) for x in r["embedding"]] for r in rows]
