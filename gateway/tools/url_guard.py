"""Which URLs a tool may open, and the transport that opens nothing else.

Every address of a name is checked, and the connection goes to an address that was checked: a name
is resolved once for each connection, so an answer that changes in between changes nothing.
Redirects are checked anew. Proxies of the environment, cookies and credentials are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urljoin, urlsplit

URL_CHARACTERS = 8192
HOST_CHARACTERS = 253
DEFAULT_PORTS = {"http": 80, "https": 443}
# Control characters, blanks, and the backslash, which some parsers read as a slash.
UNFIT = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2000-\u200f\u2028-\u202f\ufeff]")
HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
# The last label of a name is never a number, so such a host is an address in an odd spelling.
NUMERIC = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Iterable[str]]]

# What `is_global` calls public, or did in older versions of Python, and is not for this purpose.
UNFIT_IPV4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        # The host agent of Azure.
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        # Relays of 6to4.
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
UNFIT_IPV6 = tuple(
    ipaddress.IPv6Network(network)
    for network in ("2001::/23", "2001:db8::/32", "3fff::/20", "3ffe::/16")
)
# Bits 32 to 63, before an IPv4 address.
ISATAP = (0x00005EFE, 0x02005EFE)


class UrlRefused(Exception):
    """A URL that a tool may not open. The text is for the model; nothing was sent."""


@dataclass(frozen=True, slots=True)
class UrlRules:
    """What may be opened.

    allow_hosts: names, or `*.example.com` for all below; empty for every public host.
    private_hosts: exact `host:port`, which may have any address. secure_only: others are reached by
    https alone. tells_hosts: who may not open a host is told which ones are allowed.
    """

    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = (80, 443)
    secure_only: bool = False
    tells_hosts: bool = True


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """The parts of a URL that a tool may open, if its addresses are public.

    host: in ASCII, lower case. target: path and query as they are sent. is_private: it may have
    any address.
    """

    scheme: str
    host: str
    port: int
    target: str
    is_private: bool

    @property
    def authority(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == DEFAULT_PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def is_public(address: Address) -> bool:
    """Tell whether an address is one of the public Internet, and the one inside it too."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in UNFIT_IPV4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    number = int(address)
    embedded_address = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address in NAT64:
        return is_public(embedded_address)
    if address not in GLOBAL_UNICAST or address.is_multicast:
        return False
    if any(address in network for network in UNFIT_IPV6):
        return False
    # Of 6to4 some versions of Python call every address global, and some none.
    if not (address.is_global if address.sixtofour is None else is_public(address.sixtofour)):
        return False
    return number >> 32 & 0xFFFFFFFF not in ISATAP or is_public(embedded_address)


class UrlGuard:
    """Checks URLs by rules, and their addresses before each connection."""

    def __init__(self, rules: UrlRules, resolve: Resolve | None = None) -> None:
        self.rules = rules
        self._resolve = resolve or resolve_name

    def check(self, url: str) -> CheckedUrl:
        """Return the parts of a URL that these rules allow. Raises UrlRefused."""
        parts = _split(url)
        host = normalise_host(parts.hostname or "")
        port = _port_of(parts)
        host_and_port = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        is_private = host_and_port in self.rules.private_hosts
        if not is_private:
            self._check_host(host, port, parts.scheme)
        path = quote(parts.path or "/", safe="/%:@!$&'()+*,;=~-._")
        query = quote(parts.query, safe="/%:@!$&'()+*,;=~-._?[]|^`{}")
        target = f"{path}?{query}" if query else path
        return CheckedUrl(parts.scheme, host, port, target, is_private)

    def follow(self, url: CheckedUrl, location: str) -> CheckedUrl:
        """Return where a redirect leads. Raises UrlRefused."""
        try:
            target = urljoin(url.text, location)
        except ValueError:
            raise UrlRefused(f"{url.host} redirects to what is no URL.") from None
        return self.check(target)

    async def find_addresses(self, url: CheckedUrl) -> list[Address]:
        """Return the addresses to connect to, every one of them checked. Raises UrlRefused."""
        literal = _read_literal(url.host)
        if literal is not None:
            addresses = [literal]
        else:
            try:
                texts = await self._resolve(url.host, url.port)
                # A scope names an interface of this machine.
                addresses = [ipaddress.ip_address(text) for text in texts]
            except (OSError, ValueError):
                raise _not_public(url.text) from None
        if not addresses:
            raise _not_public(url.text)
        if not url.is_private and not all(map(is_public, addresses)):
            raise _not_public(url.text)
        return list(dict.fromkeys(addresses))

    def _check_host(self, host: str, port: int, scheme: str) -> None:
        rules = self.rules
        if rules.secure_only and scheme != "https":
            raise UrlRefused(f"{host} is reached by https alone. Use an https:// address.")
        if port not in rules.ports:
            ports = ", ".join(map(str, rules.ports))
            raise UrlRefused(f"port {port} is not allowed; allowed are {ports}.")
        if any(matches_host(pattern, host) for pattern in rules.deny_hosts):
            raise UrlRefused(f"{host} may not be opened here.")
        allowed_hosts = rules.allow_hosts
        if allowed_hosts and not any(matches_host(pattern, host) for pattern in allowed_hosts):
            listing = f" Allowed: {', '.join(allowed_hosts[:20])}." if rules.tells_hosts else ""
            raise UrlRefused(f"{host} may not be opened here.{listing}")
        literal = _read_literal(host)
        if literal is not None and not is_public(literal):
            raise _not_public(host)


def matches_host(pattern: str, host: str) -> bool:
    """Tell whether a host is the pattern's, which may begin with `*.`."""
    pattern = pattern.lower().rstrip(".")
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern


def normalise_host(host: str) -> str:
    """Return a host name in ASCII, or an address in its usual spelling. Raises UrlRefused."""
    if not host or len(host) > HOST_CHARACTERS:
        raise UrlRefused("the URL has no host name of at most 253 characters.")
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise _not_public(host) from None
        if address.scope_id is not None:
            raise _not_public(host)
        return str(address)
    folded_host = unicodedata.normalize("NFKC", host).lower().replace("。", ".").rstrip(".")
    try:
        if folded_host.isascii():
            name = folded_host
        else:
            name = folded_host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise UrlRefused("the host name of the URL is not valid.") from None
    if not HOST.fullmatch(name) or ".." in name:
        raise UrlRefused("the host name of the URL is not valid.")
    if NUMERIC.fullmatch(name) and _read_literal(name) is None:
        raise _not_public(host)
    return name


async def resolve_name(host: str, port: int) -> list[str]:
    """Return the addresses of a name, as the system finds them. Raises OSError."""
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in rows if row[0] in (socket.AF_INET, socket.AF_INET6)]


def _split(url: str) -> SplitResult:
    if len(url) > URL_CHARACTERS:
        raise UrlRefused(f"the URL has more than {URL_CHARACTERS:,} characters.")
    url = url.strip()
    if UNFIT.search(url):
        raise UrlRefused("the URL holds a blank, a control character or a backslash.")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UrlRefused("this is not a valid URL.") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise UrlRefused("a URL begins with https:// or http://.")
    if "@" in parts.netloc:
        raise UrlRefused("a URL with a user name or a password is not opened.")
    return parts


def _port_of(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        raise UrlRefused("the port of the URL is not valid.") from None
    if port is None:
        return DEFAULT_PORTS[parts.scheme]
    return port


def _read_literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _not_public(place: str) -> UrlRefused:
    return UrlRefused(f"{place[:300]} is not a public address.")
