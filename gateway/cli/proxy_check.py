"""What `mnemogate doctor` says of proxies: which are used, and whether they can be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.cli.finding import Finding

if TYPE_CHECKING:
    from gateway.config.settings import ProviderSettings, Settings

CONNECT_SECONDS = 3.0
PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_proxies(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each proxy of a provider; one if there is none."""
    from gateway.upstream.factory import find_proxy

    names_by_proxy: dict[tuple[str, str], list[str]] = {}
    for name, provider in settings.providers.items():
        proxy, variable = find_proxy(provider, environ)
        if proxy:
            names_by_proxy.setdefault((proxy, variable or f"providers.{name}.proxy"), []).append(
                name
            )
    for (proxy, setting), names in names_by_proxy.items():
        yield _check(proxy, setting, {name: settings.providers[name] for name in names})
    if not names_by_proxy:
        yield Finding("proxy", "ok", "none is used")


def _check(proxy: str, setting: str, providers: Mapping[str, ProviderSettings]) -> Finding:
    """Check one proxy. setting: what names it."""
    from gateway.config.settings import ConfigError
    from gateway.upstream.factory import ConnectionOptions, check_proxy, redact_proxy

    try:
        check_proxy(next(iter(providers)), ConnectionOptions(proxy))
    except ConfigError as e:
        return Finding("proxy", "failed", str(e))
    url = urlsplit(proxy)
    proxy_text = f"{redact_proxy(proxy)} (from {setting})"
    try:
        address = url.hostname or "", url.port or PORTS[url.scheme]
        socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError as e:
        remedy = "correct it, or set it to 'none' to go without a proxy"
        if "." not in setting:
            remedy = "correct or unset that variable"
        return Finding("proxy", "failed", f"{proxy_text} does not answer: {e}: {remedy}")
    if local_names := [n for n, p in providers.items() if _is_local(p)]:
        return Finding(
            "proxy",
            "note",
            f"{proxy_text} is used for {', '.join(local_names)}, which is on this machine: set "
            f'providers.{local_names[0]}.proxy = "none"',
        )
    return Finding("proxy", "ok", f"{proxy_text} answers; it is used for {', '.join(providers)}")


def _is_local(provider: ProviderSettings) -> bool:
    return urlsplit(provider.base_url).hostname in LOOPBACK
