"""Whether an upstream answers where its `base_url` says: asked for the list of models, once, with
little patience.
"""

from __future__ import annotations

import logging
import os

from gateway.config.addresses import has_version
from gateway.config.settings import Settings, TimeoutSettings
from gateway.errors import GatewayError, redact_url

log = logging.getLogger("mnemogate")
PROBE_TIMEOUT_SECONDS = 5.0
ABSENT = (404, 405)


async def status_of(name: str, settings: Settings, base_url: str | None = None) -> int:
    """Return what the list of models is answered with, asked for as the gateway asks: each kind of
    provider has its own header for the key.

    base_url: another address than the provider's own. Raises GatewayError, ConfigError.
    """
    from gateway.upstream.base import UpstreamRequest
    from gateway.upstream.factory import build_upstreams, connection_options, open_provider_wire

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
    key = (
        [(b"authorization", b"Bearer " + provider.api_key.get_secret_value().encode())]
        if provider.api_key
        else []
    )
    wire = open_provider_wire(name, connection_options(provider, os.environ), 1)
    try:
        upstream = build_upstreams(
            settings.model_copy(update={"providers": {name: impatient}}), {name: wire}
        )[name]
        incoming = await upstream.send(UpstreamRequest("/models", None, key, "GET"))
        await incoming.close()
        return incoming.status
    finally:
        await wire.aclose()


async def lacks_v1(name: str, settings: Settings, status: int | None = None) -> str | None:
    """Why no call will succeed, where it would with `/v1` behind the address; None where nothing
    speaks for that.

    status: what the address itself answers, where that is known. Raises GatewayError.
    """
    provider = settings.providers[name]
    if provider.kind != "openai" or has_version(provider.base_url):
        return None
    found = await status_of(name, settings) if status is None else status
    better = f"{provider.base_url.rstrip('/')}/v1"
    if found not in ABSENT or (there := await status_of(name, settings, better)) in ABSENT:
        return None
    return (
        f"providers.{name}.base_url is {redact_url(provider.base_url)}, where an "
        f"OpenAI-compatible API does not answer ({found}); {redact_url(better)} does ({there}): "
        "use that address"
    )


async def warn_of(settings: Settings) -> None:
    """Warn in the log of each provider whose address needs a `/v1`.

    One that does not answer now is no matter of this.
    """
    for name in settings.providers:
        try:
            if text := await lacks_v1(name, settings):
                log.warning("%s", text)
        except GatewayError:
            continue
