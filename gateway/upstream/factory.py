"""Choose how a provider is reached: the built-in HTTP/1.1 client, or httpx.

httpx serves providers with a proxy, own certificates or HTTP/2. Proxies come from the provider's
`proxy`, otherwise from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY in either case of letters,
read as httpx reads them. `proxy = "none"` means no proxy, whatever the environment says.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gateway.config.settings import ConfigError, Settings
from gateway.models.facts import ModelFacts
from gateway.upstream.anthropic import AnthropicUpstream, Facts
from gateway.upstream.azure import AzureUpstream
from gateway.upstream.base import Transport, Upstream
from gateway.upstream.bridge_translation import BridgeOptions, Carrying
from gateway.upstream.bridged import BridgedUpstream, SpokenFormats
from gateway.upstream.deadlines import Timeouts
from gateway.upstream.openai import OpenAIUpstream
from gateway.upstream.redaction import RedactedUpstream, secrets_of
from gateway.upstream.responses import ResponsesUpstream

if TYPE_CHECKING:
    import httpx
import contextlib
import ssl
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from gateway.config.settings import ProviderSettings
from gateway.models.facts import facts_file
from gateway.upstream.http1 import Http1Client
from gateway.upstream.tls_trust import trust

if TYPE_CHECKING:
    import httpx

SCHEMES = ("http", "https", "socks5", "socks5h")
PORTS = {"http": 80, "https": 443}
OWN = "built-in HTTP/1.1 client"
NONE = "none"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How a provider is reached. proxy: its URL, "" for none."""

    proxy: str = ""
    ca_file: str = ""
    client_cert: str = ""
    http2: bool = False

    @property
    def own(self) -> bool:
        """Whether the built-in client serves."""
        return self == ConnectionOptions()

    def __str__(self) -> str:
        """Describe the client, without a proxy's password."""
        if self.own:
            return OWN
        if self.proxy:
            descriptions = [f"through proxy {redact_proxy(self.proxy)}"]
        else:
            descriptions = []
        options = {"ca_file": self.ca_file, "client_cert": self.client_cert, "HTTP/2": self.http2}
        descriptions += [f"with {name}" for name, is_set in options.items() if is_set]
        return f"httpx {' '.join(descriptions)}"


def connection_options(provider: ProviderSettings, environ: Mapping[str, str]) -> ConnectionOptions:
    """Return how a provider is reached, considering the environment's proxies."""
    proxy, _ = find_proxy(provider, environ)
    return ConnectionOptions(proxy, provider.ca_file, provider.client_cert, provider.http2)


def find_proxy(provider: ProviderSettings, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the proxy of a provider, and the variable that names it; "" for none.

    The variable is "" where the provider's own setting names the proxy.
    """
    if provider.proxy == NONE:
        return "", ""
    if provider.proxy:
        return (provider.proxy, "")
    return _environment(provider.base_url, environ)


def open_provider_transport(
    name: str, options: ConnectionOptions, max_connections: int
) -> Transport:
    """Return the transport of a provider.

    Raises ConfigError for options that cannot be used, naming the setting.
    """
    if options.own:
        return Http1Client(max_connections)
    check_proxy(name, options)
    try:
        context = trust(options.ca_file, options.client_cert)
    except OSError as e:
        # Ssl.SSLError is one, and does not name the file.
        files = " and ".join(
            f"{k} {v!r}"
            for k, v in (("ca_file", options.ca_file), ("client_cert", options.client_cert))
            if v
        )
        why = "not a readable PEM file" if isinstance(e, ssl.SSLError) else e.strerror
        raise ConfigError(
            f"providers.{name}: {files} cannot be used ({why}). Give PEM files; client_cert "
            "must contain its key too."
        ) from e
    return _httpx_transport(options, context, max_connections)


def _httpx_transport(
    options: ConnectionOptions, context: ssl.SSLContext, max_connections: int
) -> Transport:
    import httpx

    from gateway.upstream.httpx_transport import HttpxTransport

    def transport() -> httpx.AsyncHTTPTransport:
        proxy = None
        if options.proxy:
            proxy = httpx.Proxy(
                options.proxy, ssl_context=context if options.proxy.startswith("https:") else None
            )
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)
        return httpx.AsyncHTTPTransport(
            verify=context, http2=options.http2, proxy=proxy, limits=limits
        )

    return HttpxTransport(
        transport, max_connections, redact_proxy(options.proxy) if options.proxy else ""
    )


def check_proxy(name: str, options: ConnectionOptions) -> None:
    """Check the proxy's URL and the packages it needs. Raises ConfigError."""
    if options.proxy:
        url = urlsplit(options.proxy)
        try:
            usable = url.scheme in SCHEMES and bool(url.hostname) and (url.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                f"providers.{name}.proxy, or the environment's proxy, is "
                f"{redact_proxy(options.proxy)!r}: "
                f"give a URL that begins with {', '.join(f'{s}://' for s in SCHEMES)}, or {NONE!r}"
            )
    package_needs = [
        ("http2", "h2", "http2 = true", options.http2),
        ("socks", "socksio", "a socks5 proxy", options.proxy.startswith("socks")),
    ]
    for extra, package, feature, needed in package_needs:
        if needed and find_spec(package) is None:
            raise ConfigError(
                f"providers.{name}: {feature} needs the package {package}: run pip install "
                f"'.[{extra}]' in the folder of Mnemogate's source"
            )


def redact_proxy(proxy: str) -> str:
    """Return the address of a proxy, without its password."""
    return proxy.rpartition("@")[2].partition("://")[2].rstrip("/") or proxy.rpartition("@")[
        2
    ].rstrip("/")


def _environment(base_url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the proxy that the environment names for an address, and the variable; "" for none."""
    names = {k.lower(): k for k in environ if k.lower().endswith("_proxy")}
    # In a CGI, HTTP_PROXY is the client's Proxy header.
    if "REQUEST_METHOD" in environ:
        names.pop("http_proxy", None)
    names |= {k: k for k in environ if k.endswith("_proxy")}
    proxy_values = {k: environ[name] for k, name in names.items()}
    try:
        url = urlsplit(base_url)
        host = url.hostname or ""
        port = url.port or PORTS.get(url.scheme, 0)
    except ValueError:
        return "", ""
    if any(
        _bypasses_proxy(e.strip().lower(), url.scheme, host, port)
        for e in proxy_values.get("no_proxy", "").split(",")
    ):
        return "", ""
    variable = next((k for k in (f"{url.scheme}_proxy", "all_proxy") if proxy_values.get(k)), None)
    if variable is None:
        return "", ""
    proxy = proxy_values[variable]
    return proxy if "://" in proxy else f"http://{proxy}", names[variable]


def _bypasses_proxy(entry: str, scheme: str, host: str, port: int) -> bool:
    """Tell whether an entry of NO_PROXY matches this host.

    A name also matches its subdomains, a network its addresses.
    """
    if entry in ("", "*"):
        return entry == "*"
    entry_scheme, scheme_mark, address = entry.rpartition("://")
    if scheme_mark and entry_scheme not in ("all", scheme):
        return False
    with contextlib.suppress(ValueError):
        return ip_address(host) in ip_network(address.strip("[]/"), strict=False)
    name, _, number = address.rstrip("/").partition(":")
    if number and number != str(port):
        return False
    bare = name.lstrip("*").lstrip(".")
    if host == bare:
        return not name.startswith((".", "*."))
    return (
        host.endswith(f".{bare}")
        and name != "localhost"
        and (not scheme_mark or name.startswith("*"))
    )


def open_transport(
    replacement: httpx.AsyncBaseTransport | None,
    name: str,
    options: ConnectionOptions,
    max_connections: int,
) -> Transport:
    if replacement is None:
        return open_provider_transport(name, options, max_connections)
    from gateway.upstream.httpx_transport import HttpxTransport

    return HttpxTransport(lambda: replacement)


def build_upstreams(
    settings: Settings, transports: Mapping[str, Transport], carrying: Carrying | None = None
) -> dict[str, Upstream]:
    """Return the providers' servers. carrying: how bridges keep what servers want back."""
    facts = ModelFacts.load(facts_file()).of
    return {
        name: BridgedUpstream(
            _open_server(name, p, transports[name], facts),
            _formats_of(p),
            _bridge_options(name, p),
            carrying,
        )
        for name, p in settings.providers.items()
    }


def _open_server(
    name: str, provider: ProviderSettings, transport: Transport, facts: Facts
) -> Upstream:
    timeouts = Timeouts(**provider.timeouts.model_dump())
    server: Upstream = OpenAIUpstream(provider.base_url, transport, timeouts)
    if provider.kind == "azure":
        server = AzureUpstream(provider.base_url, transport, timeouts, provider.api_version)
    if secrets := _secrets_of(provider):
        server = RedactedUpstream(server, secrets)
    if provider.kind == "anthropic":
        return AnthropicUpstream(server, facts, provider.default_max_tokens, provider.api_version)
    if provider.speaks_chat:
        return server
    return ResponsesUpstream(server, name, provider.drop)


def _secrets_of(provider: ProviderSettings) -> list[bytes]:
    """Return what a provider is called with and no client may read: its key, a URL's password."""
    key = ""
    if provider.api_key is not None:
        key = provider.api_key.get_secret_value()
    credentials = provider.base_url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    basic = b64encode(unquote(credentials).encode()).decode()
    return secrets_of(key, unquote(credentials.partition(":")[2]), basic)


def _formats_of(provider: ProviderSettings) -> SpokenFormats:
    native_formats = ("chat", "messages") if provider.kind == "anthropic" else ()
    return SpokenFormats(provider.wires or native_formats)


def _bridge_options(name: str, provider: ProviderSettings) -> BridgeOptions:
    newer = provider.kind == "azure" or "//api.openai.com" in provider.base_url
    limit = "max_completion_tokens" if newer else "max_tokens"
    return BridgeOptions(
        name, provider.drop, limit, provider.stream_usage, provider.omit.model_dump()
    )
