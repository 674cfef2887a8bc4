"""The ASGI layer before Litestar: raw paths, the guard without keys, CORS, drain. Pure ASGI.

ASGI decodes `%2F`, so a user named `a/b` would become another path. Here everything else is
decoded, and handlers decode the rest within a segment.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from gateway.apis.chat.chat_format import CHAT
from gateway.apis.messages.messages_errors import error_body as messages_error
from gateway.apis.messages.messages_format import MESSAGES
from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.request import MemoryPath
from gateway.chat.turn.endpoint import serve
from gateway.config.settings import Settings
from gateway.errors import BadRequest, Forbidden, ResourceNotFound, Unavailable, UpgradeRequired
from gateway.http.access_log import current_line, open_line, write_line
from gateway.http.asgi import NOSNIFF, Receive, Send, respond, respond_error
from gateway.http.paths import canonical_path
from gateway.letta import entrance
from gateway.mcp import entrance as mcp_entrance
from gateway.server.hidden_agents import tell_of_hidden_agents
from gateway.server.lazy_app import LazyApp
from gateway.server.probes import PROBES, answer_probe
from gateway.server.router_caches import RouterCaches
from gateway.state import REQUEST_ID, CurrentState, GatewayState, headers_of, request_id
from memory import new_id

PERCENT = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
OPEN_PATHS = ("/health", "/ready", "/metrics")

# Chat and the relay, which send the request id themselves.
ANSWERED = re.compile(r"(?:/u/[^/]+)?/v1/(?!models(?:/|\Z))")

# Asked here, past the router and what stands around it: that is a tenth of a request's time.
MEMORY_PATHS = {f"/v1{wire.path}": MemoryPath(wire) for wire in (CHAT, RESPONSES, MESSAGES)}
CHAT_PATH = f"/v1{CHAT.path}"
# Some clients ask so who is there.
WHO_IS_THERE = ("HEAD", "/")
MESSAGES_PATH = re.compile(r"(?:/u/[^/]+)?/v1/messages(?:/|\Z)")
RESPONSES_PATH = re.compile(r"(?:/u/[^/]+)?/v1/responses(?:/|\Z)")
ROUTES = frozenset({"v1", "memory", "ui", "health", "ready", "metrics", "schema", "letta", "mcp"})
METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

# Of what no handler answers.
REFUSALS = (BadRequest, Forbidden, ResourceNotFound, Unavailable, UpgradeRequired)


def normalize_path(raw_path: bytes) -> str:
    """Return the path with its percent-encodings decoded, except `%2F` and `%25`.

    Handlers decode these within a segment.
    """

    def decoded(match: re.Match[bytes]) -> bytes:
        out = b""
        for code in match[0].split(b"%")[1:]:
            out += b"%" + code if code.upper() in (b"2F", b"25") else bytes.fromhex(code.decode())
        return out

    return PERCENT.sub(decoded, raw_path).decode("utf-8", "surrogateescape")


def route_of(path: str) -> str:
    """Return the part of the API that a path belongs to, one of a few names."""
    segments = path.split("/", 4)[1:]
    if segments[:1] == ["u"]:
        segments = segments[2:]
    head = segments[0] if segments else ""
    if head in ROUTES:
        return head
    return "other"


def _shape_errors(scope: Any) -> None:
    """Let errors of ours on Anthropic's paths have its shape."""
    if MESSAGES_PATH.match(scope["path"]):
        current_line().error_body = messages_error


def _reshape(scope: Any) -> None:
    """Give the path its canonical spelling.

    Raises BadRequest if it is not UTF-8, ResourceNotFound; see `canonical_path`.
    """
    _restore(scope)
    if scope["path"] not in MEMORY_PATHS:
        scope["path"] = canonical_path(scope["path"])


def _restore(scope: Any) -> None:
    """Restore the path as it was sent. Raises BadRequest if it is not UTF-8."""
    raw_path = scope.get("raw_path")
    if raw_path and b"%" in raw_path:
        path = normalize_path(raw_path.split(b"?", 1)[0])
        try:
            path.encode("utf-8")
        except UnicodeEncodeError as e:
            raise BadRequest("The path is not valid UTF-8, percent-encoded.") from e
        scope["path"] = path


class FrameworkApps(NamedTuple):
    """What answers all but chat and the probes. caches: what it keeps of requests."""

    api: LazyApp
    dashboard: LazyApp
    caches: RouterCaches


class GatewayMiddleware:
    """Wraps the framework's applications; see the module.

    rewire: builds the state for new settings from the running state. run: keeps the gateway
    running.
    """

    def __init__(
        self,
        current_state: CurrentState,
        apps: FrameworkApps,
        rewire: Callable[[GatewayState, Settings], GatewayState],
        run: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._current_state = current_state
        self.apps = apps
        self._rewire = rewire
        self._run = run

    @property
    def gateway(self) -> GatewayState:
        """The state that the next request gets."""
        return self._current_state.gateway

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return the running application, for a process that takes no requests."""
        return self._run()

    def reload(self, new_settings: Settings) -> list[str]:
        """Apply new settings to every request from now on, atomically.

        Returns the names of settings that need a restart. Raises ConfigError, in which case nothing
        has changed.
        """
        running_gateway = self.gateway
        settings, restart_names = running_gateway.settings.merge_reloadable(new_settings)
        gateway = self._current_state.gateway = self._rewire(running_gateway, settings)
        running_gateway.successor = gateway
        if settings.agents:
            telling = asyncio.create_task(tell_of_hidden_agents(gateway), name="hidden-agents")
            gateway.process.jobs.add(telling)
            telling.add_done_callback(gateway.process.jobs.discard)
        return restart_names

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        scope[REQUEST_ID] = name = new_id("req")
        line = open_line(scope, name)
        failure = None
        gateway = self._current_state.gateway
        try:
            if _is_plain_chat(gateway, scope):
                gateway.process.busy += 1
                try:
                    await serve(gateway, scope, receive, send, MEMORY_PATHS[CHAT_PATH])
                finally:
                    gateway.process.busy -= 1
            else:
                await self._answer(gateway, scope, receive, send)
        except BaseException as e:
            failure = e
            raise
        finally:
            write_line(line, failure)
            path = scope["path"]
            route = "v1"
            if path != CHAT_PATH:
                route = route_of(path)
            gateway.metrics.observe_http(route, line.status)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start the gateway, and end it when the server does (ASGI's lifespan protocol)."""
        await receive()
        phase = "startup"
        try:
            async with self._run():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except BaseException:
            # A second signal ends the process without waiting: that is no failure to report.
            task = asyncio.current_task()
            is_forced = phase == "shutdown" and task is not None and task.cancelling()
            message = ""
            if not is_forced:
                message = traceback.format_exc()
            await send({"type": f"lifespan.{phase}.failed", "message": message})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(
        self, gateway: GatewayState, scope: Any, receive: Receive, send: Send
    ) -> None:
        headers, name = headers_of(scope), request_id(scope)
        server, process = gateway.settings.server, gateway.process
        origin = headers.get(b"origin", b"").decode("latin-1").rstrip("/")
        is_listed = bool(origin) and _lists(server.cors_origins, origin)
        asks = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
        if is_listed and not asks:
            send = _with_cors(send, origin)
        try:
            _check(gateway, scope, headers, allowed=is_listed)
        except REFUSALS as e:
            await respond_error(send, e, [(b"x-mnemogate-request-id", name.encode())])
            return
        if (scope["method"], scope["path"]) == WHO_IS_THERE:
            await respond(send, 200, b"", [(b"x-mnemogate-request-id", name.encode())])
            return
        if scope["method"] == "HEAD" and not ANSWERED.match(scope["path"]):
            scope = _get_instead(scope)
        if is_listed and asks:
            await respond(send, 204, b"", _cors(origin, headers))
            return
        process.busy += 1
        try:
            if scope["method"] == "POST" and (memory_path := MEMORY_PATHS.get(scope["path"])):
                await serve(gateway, scope, receive, send, memory_path)
                return
            if entrance.is_for_door(gateway, scope["path"]):
                await entrance.serve(gateway, scope, receive, send)
                return
            if mcp_entrance.is_for_door(scope["path"]):
                await mcp_entrance.serve(gateway, scope, receive, send)
                return
            noting = _noting_status(send)
            if not ANSWERED.match(scope["path"]):
                noting = _with_own_headers(noting, name.encode())
            await self._ask_apps(gateway, scope, receive, noting)
        finally:
            process.busy -= 1

    async def _ask_apps(
        self, gateway: GatewayState, scope: Any, receive: Receive, send: Send
    ) -> None:
        """Let the framework answer what is neither chat nor a probe."""
        if scope["path"] in PROBES and scope["method"] == "GET":
            await answer_probe(gateway, scope["path"], send)
            return
        self.apps.caches.leave(scope["path"], scope["query_string"])
        is_page = route_of(scope["path"]) == "ui"
        await (self.apps.dashboard if is_page else self.apps.api)(scope, receive, send)


def _is_plain_chat(gateway: GatewayState, scope: Any) -> bool:
    """Tell whether a request is a chat completion, of which nothing has to be checked here."""
    if scope["path"] != CHAT_PATH or scope["method"] != "POST":
        return False
    headers = headers_of(scope)
    return not (
        b"origin" in headers
        or b"upgrade" in headers
        or gateway.guard is not None
        or gateway.process.draining
        or b"%" in (scope.get("raw_path") or b"")
    )


def _check(
    gateway: GatewayState, scope: Any, headers: Mapping[bytes, bytes], *, allowed: bool
) -> None:
    """Refuse what no handler answers. Raises one of REFUSALS."""
    # Also of a path that is refused as it is spelt.
    _shape_errors(scope)
    if scope["path"] not in MEMORY_PATHS or b"%" in (scope.get("raw_path") or b""):
        _reshape(scope)
        _shape_errors(scope)
        entrance.recognise(gateway, scope, headers)
        mcp_entrance.recognise(scope["path"])
    if b"upgrade" in headers:
        _refuse_websocket(scope, headers)
    if gateway.guard is not None:
        gateway.guard.check(scope, headers, is_listed=allowed)
    if gateway.process.draining and scope["path"] not in OPEN_PATHS:
        raise Unavailable(
            "The gateway is shutting down. Try again at once: another one may answer.",
            headers=[(b"retry-after", b"1"), (b"connection", b"close")],
        )


def _refuse_websocket(scope: Any, headers: Mapping[bytes, bytes]) -> None:
    """Tell a client that wants Responses over a WebSocket how to ask. Raises UpgradeRequired."""
    protocol = headers.get(b"upgrade", b"").lower()
    if protocol == b"websocket" and RESPONSES_PATH.match(scope["path"]):
        raise UpgradeRequired(
            "WebSocket is not served here: send POST requests to this path. In Codex, set "
            "`supports_websockets = false` for this provider in config.toml.",
            headers=[(b"connection", b"close")],
        )


def _lists(origins: Iterable[str], origin: str) -> bool:
    return any(listed.rstrip("/") in (origin, "*") for listed in origins)


def _cors(origin: str, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    requested_headers = headers.get(b"access-control-request-headers", b"")
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", requested_headers),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
    ]


def _get_instead(scope: Any) -> Any:
    """Return a HEAD request as a GET, whose body uvicorn omits."""
    return {**scope, "method": "GET"}


def _with_own_headers(send: Send, name: bytes) -> Send:
    """Add what every answer of ours says: the request's name, and that its type is meant."""

    async def send_on(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent_names = {k for k, _ in message["headers"]}
            own_headers = ((b"x-mnemogate-request-id", name), NOSNIFF)
            added_headers = [header for header in own_headers if header[0] not in sent_names]
            message = {**message, "headers": [*message["headers"], *added_headers]}
        await send(message)

    return send_on


def _noting_status(send: Send) -> Send:
    """Note the status of the router's response in the access log."""
    line = current_line()

    async def send_on(message: Any) -> None:
        if message["type"] == "http.response.start":
            line.status = message["status"]
        await send(message)

    return send_on


def _with_cors(send: Send, origin: str) -> Send:
    async def send_on(message: Any) -> None:
        if message["type"] == "http.response.start":
            extra = [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", b"*"),
                (b"vary", b"Origin"),
            ]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return send_on
