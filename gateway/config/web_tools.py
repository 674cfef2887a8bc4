"""Settings of the tools that read the web: `fetch_url` and `web_search`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gateway.config.tool_entry import ToolSettings

HOST_PATTERN = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
PRIVATE_HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\]):[0-9]{1,5}")


class OwnToolSettings(ToolSettings):
    """What every entry takes."""


class FetchUrlSettings(OwnToolSettings):
    """Which pages may be read.

    allow_hosts: names, or `*.example.com`; empty for every public host. private_hosts: exact
    `host:port` that may have a private address. max_mib: of one page, unpacked.
    """

    kind: Literal["fetch_url"] = "fetch_url"
    timeout: float = Field(20, ge=1, le=600)
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = (80, 443)
    max_mib: int = Field(5, ge=1, le=50)
    redirects: int = Field(5, ge=0, le=20)

    @field_validator("allow_hosts", "deny_hosts")
    @classmethod
    def _are_host_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST_PATTERN.fullmatch(host):
                raise ValueError(
                    f"{host[:80]!r}: give a host name in lower case, such as example.com or "
                    "*.example.com"
                )
        return hosts

    @field_validator("private_hosts")
    @classmethod
    def _have_ports(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not PRIVATE_HOST.fullmatch(host):
                raise ValueError(
                    f"{host[:80]!r}: give host and port, such as 10.0.0.7:8080 or wiki.internal:443"
                )
        return hosts

    @field_validator("ports")
    @classmethod
    def _are_ports(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= port <= 65535 for port in ports):
            raise ValueError("a port is a number from 1 to 65535")
        return ports


class WebSearchSettings(OwnToolSettings):
    """Who searches.

    backend: `searxng:URL`, `ddgs`, or `json` with the members behind it. url: with `{query}` and
    `{limit}`. items, title, link, text, date: JSON pointers; those behind items begin at one hit.
    stand_in: it answers for the vendors' own search where a server has none.
    """

    kind: Literal["web_search"] = "web_search"
    backend: str = "ddgs"
    url: str = ""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    items: str = ""
    title: str = "/title"
    link: str = "/url"
    text: str = "/content"
    date: str = ""
    stand_in: bool = False

    @field_validator("backend")
    @classmethod
    def _is_a_backend(cls, backend: str) -> str:
        kind, _, address = backend.partition(":")
        if backend not in ("ddgs", "json") and not (
            kind == "searxng" and address.startswith(("http://", "https://"))
        ):
            raise ValueError('use "searxng:http://HOST:PORT", "ddgs" or "json"')
        return backend

    @field_validator("items", "title", "link", "text", "date")
    @classmethod
    def _is_a_json_pointer(cls, pointer: str) -> str:
        if pointer and not pointer.startswith("/"):
            raise ValueError("give a JSON pointer such as /web/results")
        return pointer

    @model_validator(mode="after")
    def _has_an_address(self) -> WebSearchSettings:
        if self.backend != "json":
            return self
        if not self.url.startswith(("http://", "https://")) or "{query}" not in self.url:
            raise ValueError('backend "json" needs `url` with {query} in it')
        host = re.split(r"[/?#]", self.url.partition("://")[2], maxsplit=1)[0]
        if "{" in host or "@" in host:
            raise ValueError("the host of `url` is fixed, and has no password")
        return self
