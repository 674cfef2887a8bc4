"""The kind `mcp`: the tools of a server that speaks the Model Context Protocol."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from gateway.config.mcp_tools import McpToolSettings
from gateway.config.tool_entry import ToolSettings
from gateway.storage.tool_pins import ToolPin, ToolPinTable
from gateway.tools.hidden_values import HiddenValues, hidden_values_of
from gateway.tools.kind import Effect, OperatorTool, ToolCaller, ToolOutput
from gateway.tools.kinds import KindServices
from gateway.tools.mcp_connection import (
    McpConnection,
    ServerRefused,
    ServerUnreachable,
    SessionState,
)
from gateway.tools.mcp_definitions import (
    DESCRIPTION_CHARACTERS,
    TooManyDefinitions,
    flags_of,
    model_name,
    read_tools,
    visible_schema,
    visible_text,
    why_refused,
)
from gateway.tools.mcp_pinning import accept_listed, merge_listing
from gateway.tools.mcp_results import CAUSE_CHARACTERS, read_result
from gateway.wire.chat import decode
from memory import MemoryFault

log = logging.getLogger("mnemogate")
# Of users that are kept.
CONNECTIONS = 64
# Pauses before a server is asked again.
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
MISSING = "failed: the package is missing; pip install 'mnemogate[tools]'"


class McpTool:
    """See `ToolKind`. problem: why no tool is listed. others: names of the other entries."""

    is_fixed = False

    def __init__(
        self,
        name: str,
        settings: McpToolSettings,
        pins: ToolPinTable,
        other_entries: Collection[str] = (),
    ) -> None:
        self.problem = "connecting"
        self.name = name
        self.settings = settings
        self.pins: dict[str, ToolPin] = {}
        self.last_error = ""
        self._table = pins
        self._other_entries = sorted(other_entries)
        address = settings.url or "\0".join((settings.command, *settings.args))
        self._server = hashlib.sha256(address.encode()).hexdigest()
        self._tools: tuple[OperatorTool, ...] = ()
        self._server_names: dict[str, str] = {}
        self._shared = McpConnection(partial(self._open, dict(settings.headers)))
        self._of_users: OrderedDict[tuple[str, ...], McpConnection] = OrderedDict()
        self._refresh_event = asyncio.Event()
        self._listing = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Offer what was accepted before, and connect in the background."""
        with contextlib.suppress(MemoryFault):
            self._take(await self._table.load(self.name, self._server) or {})
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name=f"mcp-{self.name}")

    def start_soon(self) -> None:
        """Start while the store is open, as a reload does."""
        self._following = asyncio.create_task(self._start_and_follow(), name=f"mcp-{self.name}")

    async def _start_and_follow(self) -> None:
        await self.start()
        await self._follow()

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        return self._tools

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        # The server checks them.
        return arguments

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        # Neither a command is told, nor a key that an address holds.
        origin = public_part(self.settings.url)
        server_name = self._server_names.get(tool.name)
        if server_name is None:
            return ToolOutput(f"Error: {tool.name} is no longer available.", "error", origin=origin)
        try:
            result = await self._connection_of(caller).call(server_name, arguments)
        except ServerUnreachable as e:
            self.last_error = str(e)
            text = (
                f"Error: {self.name} cannot be reached right now. Answer without it, and say so "
                "if it matters."
            )
            return ToolOutput(text, "error", origin=origin)
        except ServerRefused as e:
            cause = self._hidden_from(caller).hide(str(e))[:CAUSE_CHARACTERS]
            return ToolOutput(f"Error: {cause}", "error", origin=origin)
        return read_result(result, origin, self._hidden_from(caller))

    async def refresh(self) -> None:
        """Read what the server lists now.

        Raises ServerUnreachable, ServerRefused, TooManyDefinitions, MemoryFault.
        """
        async with self._listing:
            try:
                listed_tools = read_tools(await self._shared.list_tools())
            except (ServerRefused, TooManyDefinitions):
                await self._note_reached()
                raise
            allowed_tools = {
                name: tool for name, tool in listed_tools.items() if self._is_allowed(name)
            }
            stored_pins = await self._table.load(self.name, self._server)
            merged_pins = merge_listing(stored_pins, allowed_tools, self.settings.pin)
            if merged_pins != stored_pins:
                await self._table.save(self.name, self._server, merged_pins)
            self._take(merged_pins)
            self.last_error = ""
            if not self._tools:
                self.problem = "" if merged_pins else "failed: it lists no tool"

    async def _note_reached(self) -> None:
        """Note that the server was reached, so that nothing it lists later is accepted unseen."""
        if await self._table.load(self.name, self._server) is None:
            await self._table.save(self.name, self._server, {})

    async def accept(
        self, names: Collection[str] | None = None, digest: str | None = None
    ) -> list[str]:
        """Accept definitions that wait; return their names. Raises ChangedAgain, KeyError."""
        async with self._listing:
            stored_pins = await self._table.load(self.name, self._server) or {}
            accepted_pins = accept_listed(stored_pins, names, digest)
            await self._table.save(self.name, self._server, accepted_pins)
            self._take(accepted_pins)
        return sorted(name for name, pin in accepted_pins.items() if pin != stored_pins[name])

    def describe(self) -> list[dict[str, Any]]:
        """Return every tool of the server with its status, as an operator sees it."""
        return [self._describe(pin) for pin in self.pins.values()]

    def name_of(self, name: str) -> str:
        """Return the name by which a model calls a tool. name: as the server has it."""
        prefix = f"{self.name}_" if self.settings.prefix is None else self.settings.prefix
        return model_name(prefix, name)

    def shape_tool(self, name: str, definition: Mapping[str, Any]) -> OperatorTool:
        """Return a definition of the server as a tool, whether or not it may be used."""
        schema = definition.get("inputSchema")
        return OperatorTool(
            self.name_of(name),
            self.name,
            self._description_of(name, definition),
            {"type": "object", **visible_schema(schema)} if isinstance(schema, dict) else {},
            self._effect_of(name),
            self.settings.idempotent,
            self.settings.pinned,
        )

    async def close(self) -> None:
        following = self._following
        while following is not None and not following.done():
            # Again, since a library may swallow it.
            following.cancel()
            await asyncio.wait([following], timeout=0.5)
        connections = (self._shared, *self._of_users.values())
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _follow(self) -> None:
        """Keep the list of tools current: on notification, on reconnect, and now and then."""
        failures = 0
        while True:
            self._refresh_event.clear()
            pause = self.settings.refresh_seconds
            try:
                await self.refresh()
                failures = 0
            except ImportError:
                self._fail(MISSING)
                return
            except (ServerUnreachable, ServerRefused, TooManyDefinitions, MemoryFault) as e:
                self._fail(f"failed: {e}")
                pause = min(pause, RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._refresh_event.wait()

    def _fail(self, problem: str) -> None:
        """Note why the server cannot be asked; what was accepted before is offered all the same."""
        if self.last_error != problem:
            log.warning("tools.%s: %s", self.name, problem)
        self.last_error = problem
        if not self._tools:
            self.problem = problem

    def _take(self, pins: Mapping[str, ToolPin]) -> None:
        """Offer what is accepted, as it was accepted; the same object while nothing changes."""
        self.pins = dict(pins)
        tools = []
        names = {}
        for pin in self.pins.values():
            tool = None
            if pin.status == "ready":
                tool = self._tool_of(pin)
            if tool is not None and tool.name not in names:
                names[tool.name] = pin.name
                tools.append(tool)
        offered_tools = tuple(sorted(tools, key=lambda tool: tool.name))
        self._server_names = names
        if offered_tools != self._tools:
            self._tools = offered_tools
        if offered_tools:
            self.problem = ""

    def _tool_of(self, pin: ToolPin) -> OperatorTool | None:
        """Return an accepted tool; None for one that is refused."""
        definition = decode((pin.accepted or "{}").encode())
        if not self._is_allowed(pin.name) or why_refused(definition):
            return None
        return self.shape_tool(pin.name, definition)

    def _describe(self, pin: ToolPin) -> dict[str, Any]:
        accepted_definition = None
        if pin.accepted:
            accepted_definition = decode(pin.accepted.encode())
        listed_definition = None
        if pin.listed:
            listed_definition = decode(pin.listed.encode())
        definition = listed_definition or accepted_definition or {}
        reason = why_refused(definition)
        return {
            "name": pin.name,
            "status": "refused" if reason else pin.status,
            "reason": reason,
            "hash": pin.listed_hash or pin.accepted_hash,
            "flags": flags_of(definition, self._other_entries),
            "accepted": accepted_definition,
            "listed": listed_definition,
        }

    def _description_of(self, name: str, definition: Mapping[str, Any]) -> str:
        description = self.settings.description
        if isinstance(description, Mapping):
            description = description.get(name, "")
        text = description or definition.get("description") or definition.get("title") or ""
        return visible_text(str(text))[:DESCRIPTION_CHARACTERS]

    def _effect_of(self, name: str) -> Effect:
        effect = self.settings.effect
        if isinstance(effect, Mapping):
            patterns = effect.items()
            effect = next((e for p, e in patterns if fnmatch.fnmatchcase(name, p)), None)
        if effect == "read":
            return "read"
        return "write"

    def _is_allowed(self, name: str) -> bool:
        allow = self.settings.allow
        deny = self.settings.deny
        return any(fnmatch.fnmatchcase(name, p) for p in allow) and not any(
            fnmatch.fnmatchcase(name, p) for p in deny
        )

    def _connection_of(self, caller: ToolCaller) -> McpConnection:
        """Return the connection of a caller: the shared one, or that of the user."""
        settings = self.settings
        if settings.session == "shared":
            return self._shared
        headers = {**settings.headers, **self._forwarded_from(caller)}
        if settings.user_header and caller.user is not None:
            headers[settings.user_header] = quote(caller.user, safe="")
        key = (caller.tenant, caller.user or "", *(f"{k}\0{v}" for k, v in headers.items()))
        connection = self._of_users.get(key)
        if connection is None:
            self._make_room()
            connection = self._of_users[key] = McpConnection(partial(self._open, headers))
        self._of_users.move_to_end(key)
        connection.used_at = time.monotonic()
        return connection

    def _forwarded_from(self, caller: ToolCaller) -> dict[str, str]:
        """Return the headers of a client's request that are passed on."""
        names = self.settings.forward_headers
        sent = ((name, caller.headers.get(name.lower())) for name in names)
        return {name: value for name, value in sent if value is not None}

    def _hidden_from(self, caller: ToolCaller) -> HiddenValues:
        """Return what no result for a caller repeats."""
        return hidden_values_of(self.settings, self._forwarded_from(caller).values())

    def _make_room(self) -> None:
        """End the connection that was not used for the longest time, if there are too many."""
        if len(self._of_users) < CONNECTIONS:
            return
        idle_user = next((k for k, c in self._of_users.items() if not c.call_count), None)
        if idle_user is not None:
            closing = asyncio.ensure_future(self._of_users.pop(idle_user).close())
            closing.add_done_callback(lambda _: None)

    @contextlib.asynccontextmanager
    async def _open(self, headers: Mapping[str, str], session: SessionState) -> AsyncIterator[Any]:
        """Connect; runs in the task that owns the connection."""
        client_module = await asyncio.to_thread(_load_client)
        async with client_module.open_client(
            self.name, self.settings, headers, self._refresh_event.set, session
        ) as client:
            changes = asyncio.create_task(self._follow_changes(client_module, client))
            try:
                yield client
            finally:
                changes.cancel()
                await asyncio.wait([changes])

    async def _follow_changes(self, module: Any, client: Any) -> None:
        """Have the tools read again when the server says that they changed, where it says so."""
        with contextlib.suppress(Exception):
            await module.follow_changes(client, self._refresh_event.set)


def _load_client() -> Any:
    """Import the package, which takes half a second: in a thread, at the first connection."""
    from gateway.tools import mcp_client

    return mcp_client


def public_part(url: str) -> str:
    """Return an address without what may be a secret in it: a password, a query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def make_mcp(name: str, settings: ToolSettings, services: KindServices) -> McpTool:
    """Return the kind behind an entry, which starts once the store is open."""
    assert isinstance(settings, McpToolSettings)  # noqa: S101 - the table of kinds says so
    memory = services.memory
    other_entries = services.settings.tools.keys() - {name}
    kind = McpTool(name, settings, ToolPinTable(memory.db), other_entries)
    if settings.enabled and memory.ready:
        kind.start_soon()
    elif settings.enabled:
        memory.before_ready.append(kind.start)
    return kind
