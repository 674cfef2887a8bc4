"""The ways through the gateway that an invariant holds on: a chat with memory, one without, and the
relay.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Live

WAYS = ("full", "off", "relay")
each_way = pytest.mark.parametrize("way", WAYS)
each_mode = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


async def ask(
    live: Live, way: str, stream: bool = False, headers: dict[str, str] | None = None, **body: Any
) -> httpx.Response:
    """One request by that way. body: members beside the model and what is asked."""
    if way == "relay":
        return await live.http.post(
            f"{live.url}/responses",
            json={"model": "m", "input": "hi", "stream": stream, **body},
            # As every path without memory.
            headers={"x-memory": "off", **(headers or {})},
        )
    return await live.chat("hi", {"x-memory": way, **(headers or {})}, stream=stream, **body)


def provider(**more: Any) -> dict[str, Any]:
    """Configuration of the one provider that a test's upstream stands for."""
    return {"providers": {"openai": {"base_url": "x", **more}}}


PROVIDER_KEY = "sk-provider-9e"
GATEWAY_KEY = "mg-sentinel-77"


def managed(**more: Any) -> dict[str, Any]:
    """Configuration with a key of the operator's, and one of the provider's."""
    return {
        "keys": [{"name": "app", "key": GATEWAY_KEY, "tenant": "acme"}],
        **provider(api_key=PROVIDER_KEY, **more),
    }
