"""Finds the `/v1` that the address of an upstream lacks, for commands that take `--upstream`."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gateway.config.addresses import has_version
from gateway.errors import GatewayError, redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.cli.options import Serving
    from gateway.config.settings import Settings
    from gateway.server.middleware import GatewayMiddleware

log = logging.getLogger("mnemogate")
# Until a server answers that is started later.
RETRY_SECONDS, MAX_RETRY_SECONDS = 2.0, 60.0


def complete_address(settings: Settings) -> str:
    """Return the first provider's address, with the `/v1` that it lacks, and say so.

    A server that does not answer keeps its own.
    """
    from gateway.upstream import probe

    name = next(iter(settings.providers))
    try:
        address = asyncio.run(probe.complete_address(name, settings))
    except GatewayError:
        return settings.providers[name].base_url
    if address != settings.providers[name].base_url:
        click.echo(f"The API is at {redact_url(address)}.", err=True)
    return address


async def check_upstreams(serving: Serving, app: GatewayMiddleware) -> None:
    """Find the `/v1` that the named upstream lacks, and warn of configured ones without it."""
    from gateway.upstream.probe import warn_of

    settings = app.gateway.settings
    completed_settings = await complete_settings(serving, settings, waits=True)
    if completed_settings is not settings:
        app.reload(completed_settings)
    await warn_of(completed_settings)


async def complete_settings(
    serving: Serving, settings: Settings, env: Mapping[str, str] = os.environ, *, waits: bool
) -> Settings:
    """Return the settings of `serve`, with the address at which its upstream has its API.

    It is looked for where the option or the variable names an upstream without a version. waits:
    until the server answers; else one that does not keeps its own. Raises ConfigError.
    """
    name, provider = next(iter(settings.providers.items()))
    upstream = serving.upstream or env.get("MNEMOGATE_UPSTREAM")
    if provider.base_url != upstream or has_version(upstream):
        return settings
    address = await _find_address(name, settings, waits=waits)
    if address == upstream:
        return settings
    log.info("the API of %s is at %s: requests go there", *map(redact_url, (upstream, address)))
    return await asyncio.to_thread(replace(serving, upstream=address).settings)


async def _find_address(name: str, settings: Settings, *, waits: bool) -> str:
    from gateway.upstream import probe

    pause = RETRY_SECONDS
    while True:
        try:
            return await probe.complete_address(name, settings)
        except GatewayError:
            if not waits:
                return settings.providers[name].base_url
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)
