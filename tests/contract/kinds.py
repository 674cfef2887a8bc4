"""The three kinds of provider: for each its server, its address, and how it tells an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.config.loader import load
from gateway.upstream.base import Transport, Upstream
from gateway.upstream.factory import build_upstreams
from tests.contract import messages_server
from tests.contract.azure_server import Azure
from tests.contract.messages_server import Messages
from tests.models import Model


def openai_error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


@dataclass
class Kind:
    name: str
    server: Callable[..., Model]
    error: Callable[[str, str], dict[str, Any]]
    overflow: str
    # The header its key goes in.
    key: str

    def config(self, **members: Any) -> dict[str, Any]:
        return {"providers": {"p": {"kind": self.name, "base_url": "http://x", **members}}}

    def address(self, server: Model) -> str:
        return server.url.removesuffix("/v1") if self.name == "azure" else server.url

    def upstream(self, server: Model, transport: Transport, **members: Any) -> Upstream:
        """The adapter as the gateway wires it."""
        settings = load(None, {}, {**self.config(**members), "upstream": self.address(server)})
        return build_upstreams(settings, {"p": transport})["p"]


KINDS = [
    Kind(
        "openai",
        Model,
        openai_error,
        "This model's maximum context length is 8192 tokens. However, your messages resulted "
        "in 9000 tokens.",
        "authorization",
    ),
    Kind(
        "azure",
        Azure,
        openai_error,
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "api-key",
    ),
    Kind(
        "anthropic",
        Messages,
        messages_server.error,
        "prompt is too long: 210000 tokens > 200000 maximum",
        "x-api-key",
    ),
]
ANTHROPIC = KINDS[2]
