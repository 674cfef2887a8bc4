"""`fetch` and `secret`, as a Python tool has them: only to the hosts of its entry.

A source never sees a secret: `secret("KEY")` is a placeholder, which is replaced in the headers and
the query of a call, and put back in the place of the value in whatever returns.
"""

from __future__ import annotations

import secrets as random_source
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.http.json_thread import run_by_weight
from gateway.tools.guarded_http import (
    AnswerLimits,
    GuardedAnswer,
    GuardedHttp,
    GuardedRequest,
    RequestFailed,
)
from gateway.tools.url_guard import Resolve, UrlGuard, UrlRefused, UrlRules
from gateway.tools.web_page import read_bytes
from gateway.wire.chat import decode_answer

ANSWER_BYTES = 1 << 20
REQUEST_BYTES = 1 << 20
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MASK = "[secret]"
PLAIN = "http://"


class SandboxFetch:
    """The network of one entry. secrets: by the name that a source uses."""

    def __init__(
        self,
        hosts: tuple[str, ...],
        secrets: Mapping[str, str],
        resolve: Resolve | None = None,
    ) -> None:
        plain_hosts = tuple(host.removeprefix(PLAIN) for host in hosts if host.startswith(PLAIN))
        secure = tuple(host for host in hosts if not host.startswith(PLAIN))
        # With plain hosts alone, no public one may be reached.
        rules = UrlRules(
            secure or ("none.invalid",),
            (),
            plain_hosts,
            (443,),
            secure_only=True,
            tells_hosts=False,
        )
        self._http = GuardedHttp(UrlGuard(rules, resolve))
        self._values = dict(secrets)
        # Another one in each process, so that no source can know it.
        self.placeholders = {
            name: f"secret-{random_source.token_hex(12)}-{name}" for name in secrets
        }

    async def fetch(
        self,
        url: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
    ) -> dict[str, Any]:
        """Send a request. Raises ValueError with words for whoever wrote the source."""
        request = self._read_request(url, method, headers, (json, text))
        limits = AnswerLimits(ANSWER_BYTES, 5, 600.0, same_host=True)
        try:
            answer = await self._http.send(request, limits)
        except (UrlRefused, RequestFailed) as e:
            raise ValueError(self.mask(str(e))) from None
        return await self._show(answer)

    def mask(self, text: str) -> str:
        """Return a text without the values of secrets, however they are encoded."""
        for name, value in self._values.items():
            for spelling in _spellings(value):
                text = text.replace(spelling, MASK)
            text = text.replace(self.placeholders[name], MASK)
        return text

    def _read_request(
        self,
        url: str,
        method: str,
        headers: Mapping[str, str] | None,
        bodies: tuple[Any, str | None],
    ) -> GuardedRequest:
        if not isinstance(url, str) or not isinstance(method, str):
            raise ValueError("fetch takes a URL and a method as text")  # noqa: TRY004
        method = method.upper()
        if method not in METHODS:
            raise ValueError(f"the method {method[:20]!r} is none of {', '.join(METHODS)}")
        json_value, text = bodies
        request_headers = {
            str(name): self._reveal(str(value)) for name, value in (headers or {}).items()
        }
        body = b""
        if text is not None:
            body = str(text).encode("utf-8", "replace")
        if json_value is not None:
            body = msgspec.json.encode(json_value)
            if not any(name.lower() == "content-type" for name in request_headers):
                request_headers["Content-Type"] = "application/json"
        if len(body) > REQUEST_BYTES:
            raise ValueError(f"fetch sends at most {REQUEST_BYTES >> 20} MiB")
        return GuardedRequest(self._fill_query(url), method, request_headers, body)

    def _fill_query(self, url: str) -> str:
        """Return the URL with secrets in its query, and nowhere else."""
        before, separator, query = url.partition("?")
        for name, placeholder in self.placeholders.items():
            query = query.replace(placeholder, quote(self._values[name], safe=""))
        return f"{before}{separator}{query}"

    def _reveal(self, text: str) -> str:
        for name, placeholder in self.placeholders.items():
            text = text.replace(placeholder, self._values[name])
        return text

    async def _show(self, answer: GuardedAnswer) -> dict[str, Any]:
        kind = answer.headers.get("content-type", "")
        text = self.mask(read_bytes(answer.body, kind))
        value = None
        if "json" in kind.lower():
            try:
                value = await run_by_weight(answer.body, self._decode, text)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                value = None
        headers = {name: self.mask(value) for name, value in answer.headers.items()}
        return {"status": answer.status, "headers": headers, "text": text, "json": value}

    @staticmethod
    def _decode(text: str) -> Any:
        return decode_answer(text.encode("utf-8", "replace"))


def _spellings(value: str) -> tuple[str, ...]:
    """Return how a server may repeat a value."""
    quoted_value = quote(value, safe="")
    escaped_value = msgspec.json.encode(value).decode()[1:-1]
    return tuple(
        dict.fromkeys((value, quoted_value, quoted_value.replace("%20", "+"), escaped_value))
    )
