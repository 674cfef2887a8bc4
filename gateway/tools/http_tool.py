"""The kind `http`: one request to a host of the operator's."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from gateway.config.tool_entry import ToolSettings
from gateway.config.tools import PLACEHOLDER, HttpToolSettings
from gateway.tools.hidden_values import hidden_values_of
from gateway.tools.kind import OperatorTool, ToolCaller, ToolImage, ToolOutput
from gateway.tools.kinds import KindServices
from gateway.tools.single_tool import SingleTool, ToolDefaults
from gateway.upstream.tool_client import (
    ToolAnswer,
    ToolClient,
    ToolRequest,
    ToolUnreachable,
    UnusableAnswer,
)
from memory import decode_foreign

# Of an answer that reports an error.
QUOTED_CHARACTERS = 300
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
TEXTS = re.compile(r"text/|.*[/+](json|xml|yaml|javascript|x-www-form-urlencoded|x-ndjson|csv)$")


class HttpTool(SingleTool):
    """See `ToolKind`. A server that does not answer is a run's error."""

    def __init__(self, name: str, settings: ToolSettings, services: KindServices) -> None:
        assert isinstance(settings, HttpToolSettings)  # noqa: S101 - the table of kinds says so
        super().__init__(
            name,
            settings,
            ToolDefaults("", _schema(settings), settings.resolved_effect),
        )
        self._settings = settings
        self._url_names = frozenset(PLACEHOLDER.findall(settings.url))
        self._client = ToolClient(settings.concurrent)
        self._hidden = hidden_values_of(settings)

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        coerced = super().check_arguments(tool, arguments)
        if isinstance(coerced, str):
            return coerced
        try:
            self._url(coerced)
        except UnusableAnswer as e:
            return str(e)
        return coerced

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        request = self._request(arguments)
        origin = request.url.partition("?")[0]
        try:
            answer = await self._client.send(request)
        except ToolUnreachable:
            return ToolOutput(
                f"Error: {tool.name} cannot be reached right now. Answer without it, and say so "
                "if it matters.",
                "error",
                origin=origin,
            )
        except UnusableAnswer as e:
            return ToolOutput(f"Error: {tool.name}: {e}.", "error", origin=origin)
        return dataclasses.replace(self._output(answer), origin=origin)

    async def close(self) -> None:
        await self._client.close()

    def _request(self, arguments: Mapping[str, Any]) -> ToolRequest:
        headers = dict(self._settings.headers)
        content = b""
        if self._settings.sends_json:
            body_arguments = {k: v for k, v in arguments.items() if k not in self._url_names}
            content = msgspec.json.encode(body_arguments)
            headers = {"content-type": "application/json", **headers}
        return ToolRequest(self._settings.method, self._url(arguments), headers, content)

    def _url(self, arguments: Mapping[str, Any]) -> str:
        """Return the address with the arguments in it. Raises UnusableAnswer."""
        before, _, query = self._settings.url.partition("?")
        absent = next((n for n in PLACEHOLDER.findall(before) if arguments.get(n) is None), None)
        if absent is not None:
            raise UnusableAnswer(f"the argument {absent!r} is missing")
        url = _fill(before, arguments)
        _check_path(self._settings.url, url)
        pairs = [pair for pair in query.split("&") if pair and not _is_absent(pair, arguments)]
        if pairs:
            return f"{url}?{_fill('&'.join(pairs), arguments)}"
        return url

    def _output(self, answer: ToolAnswer) -> ToolOutput:
        text = self._text_of(answer)
        if not 200 <= answer.status < 300:
            cause = text.strip()[:QUOTED_CHARACTERS] or "it said nothing more"
            return ToolOutput(f"Error: HTTP {answer.status}: {cause}", "error")
        if answer.media_type in PICTURES:
            data = base64.b64encode(answer.content).decode()
            picture = ToolImage(answer.media_type, data, len(answer.content))
            return ToolOutput("", images=(picture,))
        if not self._settings.result:
            return ToolOutput(text)
        try:
            value = resolve_pointer(decode_foreign(answer.content), self._settings.result)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ToolOutput("Error: the answer is no JSON.", "error")
        except LookupError:
            at = self._settings.result
            return ToolOutput(f"Error: the answer has nothing at {at}.", "error")
        if isinstance(value, str):
            text_value = value
        else:
            text_value = msgspec.json.encode(value).decode()
        return ToolOutput(self._hidden.hide(text_value))

    def _text_of(self, answer: ToolAnswer) -> str:
        kind = answer.media_type
        if kind and not TEXTS.match(kind) and b"\0" in answer.content[:4096]:
            return f"[{kind}, {size_of(len(answer.content))}, left out]"
        try:
            text = answer.content.decode(answer.charset or "utf-8", "replace")
        except LookupError:
            text = answer.content.decode("utf-8", "replace")
        return self._hidden.hide(text)


def size_of(byte_count: int) -> str:
    """Return a size in words, such as `1.2 MiB`."""
    if byte_count < 1024:
        return f"{byte_count} bytes"
    if byte_count < 1 << 20:
        return f"{byte_count / 1024:.1f} KiB"
    return f"{byte_count / (1 << 20):.1f} MiB"


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) names in a value. Raises LookupError."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 10:
            value = value[int(name)]
        else:
            raise KeyError(name)
    return value


def _schema(settings: HttpToolSettings) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": settings.parameters}
    if settings.required:
        schema["required"] = list(settings.required)
    return schema


def _fill(template: str, arguments: Mapping[str, Any]) -> str:
    """Return a part of the address with its arguments, each percent-encoded whole."""
    return PLACEHOLDER.sub(lambda m: quote(_write_value(arguments.get(m[1])), safe=""), template)


def _write_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return msgspec.json.encode(value).decode()


def _is_absent(pair: str, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a pair of the query is about an argument that was not given."""
    match = PLACEHOLDER.fullmatch(pair.partition("=")[2])
    return match is not None and arguments.get(match[1]) is None


def _check_path(template: str, url: str) -> None:
    """Raise UnusableAnswer for an argument that makes a segment `.`, `..` or nothing.

    Without its last segment, an address names all items in place of one.
    """
    template_parts = [unquote(part) for part in urlsplit(template).path.split("/")]
    parts = [unquote(part) for part in urlsplit(url).path.split("/")]
    for template_part, part in zip(template_parts, parts, strict=False):
        if part.strip() in ("", ".", "..") and template_part != part:
            raise UnusableAnswer(f"{part!r} may not stand there: give the name of one item")
