"""What `mnemogate doctor` says of a provider: whether it answers, and takes the configured key."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

from gateway.cli.finding import Finding

if TYPE_CHECKING:
    from gateway.config.settings import Settings

PROXY_STATUS = 407
PROXY_REFUSED = re.compile(r"proxy .*\(407\)")
PROXY_STEP = "put the proxy's user and password into its URL, http://USER:PASSWORD@HOST:PORT"


def check_upstream(name: str, settings: Settings) -> Finding:
    """Ask a provider for its models; say whether it answers, and what mends it."""
    from gateway.config.settings import ConfigError
    from gateway.errors import GatewayError, redact_url
    from gateway.upstream.connection_errors import absent
    from gateway.upstream.factory import connection_options

    provider = settings.providers[name]
    at = f"{name}: {redact_url(provider.base_url)} ({connection_options(provider, os.environ)})"
    try:
        status, misplaced = asyncio.run(_ask_for_models(name, settings))
    except GatewayError as e:
        why = e.__cause__ or e
        step = "check base_url and the network"
        if absent(e):
            step = "start it, or correct base_url"
        if PROXY_REFUSED.search(str(e)):
            step = PROXY_STEP
        return Finding("upstream", "failed", f"{at} does not answer: {why}: {step}")
    except ConfigError as e:
        return Finding("upstream", "failed", str(e))
    if misplaced:
        return Finding("upstream", "failed", misplaced)
    return _judge(name, settings, status, f"{at} answers {status}")


def _judge(name: str, settings: Settings, status: int, message: str) -> Finding:
    """Say what the status means with which a provider answers."""
    from gateway.upstream.probe import ABSENT

    if status == PROXY_STATUS:
        return Finding("upstream", "failed", f"{message}: {PROXY_STEP}")
    if status in (401, 403) and settings.providers[name].api_key:
        return Finding(
            "upstream", "failed", f"{message}: it refuses providers.{name}.api_key: correct it"
        )
    if status == 401 and settings.mode != "own-key":
        return Finding(
            "upstream",
            "failed",
            f"{message}: it needs a key, and clients send none in this mode: set "
            f"providers.{name}.api_key",
        )
    if status in ABSENT:
        step = "check its base_url, which usually ends in /v1"
        return Finding("upstream", "note", f"{message} to /models: {step}")
    if status == 401:
        return Finding("upstream", "ok", f"{message}: it needs a key; none was sent")
    if status >= 500:
        return Finding("upstream", "note", f"{message}: look at that server's log")
    return Finding("upstream", "ok", message)


async def _ask_for_models(name: str, settings: Settings) -> tuple[int, str | None]:
    """Return the status of the list of models, and why the URL is wrong, if it is.

    Raises GatewayError.
    """
    from gateway.upstream.probe import lacks_v1, status_of

    status = await status_of(name, settings)
    return status, await lacks_v1(name, settings, status)
