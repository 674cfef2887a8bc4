"""A scripted server that speaks Azure OpenAI's dated API: its addresses, its key header, its first
chunk.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.models import Model
from tests.sockets import Seen, Wire

DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/(chat/completions|completions|embeddings)")
FILTERS = [
    {"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}
]


class Azure(Model):
    """See `Model`. deployments: the names that were called."""

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.deployments: list[str] = []

    @property
    def bodies(self) -> list[Any]:
        return [r.json for r in self.requests if "/chat/completions" in r.path]

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        path, _, query = seen.path.removeprefix("/v1").partition("?")
        if seen.header("authorization") or not seen.header("api-key"):
            await wire.json(
                {
                    "error": {
                        "code": "401",
                        "message": "Access denied due to invalid subscription key or wrong API "
                        "endpoint.",
                    }
                },
                401,
            )
        elif not re.fullmatch(
            r"\d{4}-\d\d-\d\d(-preview)?", parse_qs(query).get("api-version", [""])[0]
        ):
            await wire.json({"error": {"code": "404", "message": "Resource not found"}}, 404)
        elif found := DEPLOYMENT.fullmatch(path):
            self.deployments.append(unquote(found[1]))
            await super()._behave(seen, wire)
        elif re.fullmatch(r"/openai/(models|files|responses|batches)(/.*)?", path):
            await wire.json({"data": [], "path": path})
        else:
            await wire.json(
                {
                    "error": {
                        "code": "DeploymentNotFound",
                        "message": "The API deployment for this resource does not exist.",
                    }
                },
                404,
            )

    async def _streamed(self, seen: Seen, wire: Wire, choices: list[Any]) -> None:
        await super()._streamed(seen, _Filtered(wire.writer), choices)


class _Filtered(Wire):
    async def start_stream(self, *headers: str) -> None:
        await super().start_stream(*headers)
        await self.event(
            {
                "choices": [],
                "created": 0,
                "id": "",
                "model": "",
                "object": "",
                "prompt_filter_results": FILTERS,
            }
        )
