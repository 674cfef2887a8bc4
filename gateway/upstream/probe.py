"""Test whether an upstream answers at its `base_url`: list its models once, with short timeouts."""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from gateway.config.addresses import has_version
from gateway.config.settings import Settings, TimeoutSettings
from gateway.errors import GatewayError, redact_url

log = logging.getLogger("mnemogate")
PROBE_TIMEOUT_SECONDS = 5.0
ABSENT = (404, 405)


async def status_of(name: str, settings: Settings, base_url: str | None = None) -> int:
    """Return the status with which a provider answers the list of models.

    It is requested as the gateway does, since each kind has its own header for the key. base_url:
    replaces the provider's own. Raises GatewayError, ConfigError.
    """
    from gateway.http.paths import upstream_path
    from gateway.upstream import factory
    from gateway.upstream.base import UpstreamRequest

    provider = settings.providers[name]
    impatient = provider.model_copy(
        update={
            "timeouts": TimeoutSettings(
                connect=PROBE_TIMEOUT_SECONDS,
                first_token=PROBE_TIMEOUT_SECONDS,
                idle=PROBE_TIMEOUT_SECONDS,
                total=PROBE_TIMEOUT_SECONDS,
            ),
            "base_url": base_url or provider.base_url,
        }
    )
    if provider.api_key:
        key = [(b"authorization", b"Bearer " + provider.api_key.get_secret_value().encode())]
    else:
        key = []
    transport = factory.open_provider_transport(
        name, factory.connection_options(provider, os.environ), 1
    )
    try:
        upstream = factory.build_upstreams(
            settings.model_copy(update={"providers": {name: impatient}}), {name: transport}
        )[name]
        incoming = await upstream.send(UpstreamRequest(upstream_path("models"), None, key, "GET"))
        await incoming.close()
        return incoming.status
    finally:
        await transport.aclose()


class FoundAddress(NamedTuple):
    """The address at which a server has its API. status: with which it lists its models."""

    base_url: str
    status: int


async def find_v1(name: str, settings: Settings, status: int) -> FoundAddress | None:
    """Return the address with `/v1` if the API is there, and not at the base URL.

    status: with which the base URL answers. Raises GatewayError.
    """
    provider = settings.providers[name]
    if provider.kind != "openai" or has_version(provider.base_url) or status not in ABSENT:
        return None
    suggestion = f"{provider.base_url.rstrip('/')}/v1"
    suggested_status = await status_of(name, settings, suggestion)
    if suggested_status not in ABSENT:
        return FoundAddress(suggestion, suggested_status)
    return None


async def complete_address(name: str, settings: Settings) -> str:
    """Return the provider's base URL, with the `/v1` that it lacks.

    Raises GatewayError for a server that does not answer.
    """
    base_url = settings.providers[name].base_url
    if has_version(base_url):
        return base_url
    address = await find_v1(name, settings, await status_of(name, settings))
    if address:
        return address.base_url
    return base_url


async def lacks_v1(name: str, settings: Settings, status: int | None = None) -> str | None:
    """Return a warning if the base URL lacks its `/v1`; None if nothing suggests that.

    status: with which the base URL answers, if known. Raises GatewayError.
    """
    provider = settings.providers[name]
    if provider.kind != "openai" or has_version(provider.base_url):
        return None
    if status is None:
        own_status = await status_of(name, settings)
    else:
        own_status = status
    address = await find_v1(name, settings, own_status)
    if address is None:
        return None
    return (
        f"providers.{name}.base_url is {redact_url(provider.base_url)}, where an "
        f"OpenAI-compatible API does not answer ({own_status}); "
        f"{redact_url(address.base_url)} does ({address.status}): use that address"
    )


async def warn_of(settings: Settings) -> None:
    """Log a warning for each provider whose base URL lacks its `/v1`.

    Providers that do not answer are skipped.
    """
    for name in settings.providers:
        try:
            if text := await lacks_v1(name, settings):
                log.warning("%s", text)
        except GatewayError:
            continue
