"""Azure OpenAI: OpenAI's API under other URLs and with another header for the key.

Two variants: the v1 API, where base_url ends in `/openai/v1` and the rest is as at OpenAI; and the
dated API, where the model name is a deployment in the path and the API version stands in the query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from gateway.http.paths import below, split_query, upstream_path, with_query
from gateway.upstream.base import Headers, Transport, UpstreamRequest, UpstreamResponse
from gateway.upstream.deadlines import Timeouts
from gateway.upstream.openai import OpenAIUpstream
from gateway.wire.model_field import model_of

# The newest generally available dated version; the v1 API has none.
VERSION = "2024-10-21"
DEPLOYED = re.compile(
    r"/(?:chat/completions|completions|embeddings|audio/(?:transcriptions|translations|speech)|images/(?:generations|edits))"
)
# A Microsoft Entra token, which stays in Authorization.
ENTRA = re.compile(rb"(?i:bearer) +eyJ[^.\s]*\.[^.\s]+\.[^.\s]*")


class AzureUpstream(OpenAIUpstream):
    """One Azure OpenAI resource.

    base_url: `https://NAME.openai.azure.com`, with or without `/openai`; for the v1 API with
    `/openai/v1`. api_version: of the dated API, VERSION if empty; for the v1 API only if one is
    wanted, such as `preview`.
    """

    def __init__(
        self,
        base_url: str,
        transport: Transport,
        timeouts: Timeouts | None = None,
        api_version: str = "",
    ) -> None:
        base, question_mark, query = base_url.partition("?")
        base = base.rstrip("/")
        self._dated = not base.endswith("/openai/v1")
        in_query = re.search(r"(?:^|&)api-version=", query) is not None
        self._version = "" if in_query else api_version or (VERSION if self._dated else "")
        if self._dated:
            base = base.removesuffix("/openai") + "/openai"
        super().__init__(base + question_mark + query, transport, timeouts)

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request, see the port. A client's own api-version is kept."""
        path, query = split_query(request.path)
        if self._dated and DEPLOYED.fullmatch(path) and (model := request.model or _model(request)):
            path = below(upstream_path("deployments", model), path)
        if self._version and not re.search(r"(?:^|&)api-version=", query):
            query = f"{query}&api-version={self._version}".lstrip("&")
        return await super().send(
            replace(
                request,
                path=with_query(path, query),
                headers=_with_api_key(request.headers),
            )
        )


def _with_api_key(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Return the headers with the bearer key in Azure's `api-key` header."""
    return [
        (b"api-key", v.partition(b" ")[2].strip())
        if k == b"authorization" and not ENTRA.fullmatch(v)
        else (k, v)
        for k, v in headers
    ]


def _model(request: UpstreamRequest) -> str | None:
    kind = next((v for k, v in request.headers if k == b"content-type"), b"")
    if request.body:
        return model_of(request.body, kind)
    return None
