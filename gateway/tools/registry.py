"""The registry: every entry of the configuration, its tools by name, and their state."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import quantiles
from typing import Any

import msgspec

from gateway.config.tool_entry import DESCRIPTION_CHARACTERS, ToolSettings
from gateway.config.tools import ToolboxSettings, is_reserved
from gateway.tools.grants import Grants
from gateway.tools.hidden_values import hidden_values_of
from gateway.tools.kind import OperatorTool, ToolKind
from gateway.tools.kind_factories import make_kind
from gateway.tools.kinds import KindServices, SharedRuntimes
from gateway.tools.running_call import RunningCall
from gateway.tools.tenant_tools import API_ENTRY, TenantPythonTools
from gateway.wire.chat import Json
from memory import MEMORY_TOOL_NAMES, EncodedTool, TokenCounter, list_literal_names
from memory.session.toolbox import ToolOffer

# Of grants that are kept for one catalog.
MAX_ANSWERS = 64
# Runs of which times are kept, for the dashboard.
OBSERVED = 256
_sorted = msgspec.json.Encoder(order="sorted")

log = logging.getLogger("mnemogate")


class ToolEntry:
    """One `[tools.NAME]`.

    slots: runs at a time. hidden: what no result repeats. milliseconds: of its newest runs.
    """

    def __init__(self, name: str, settings: ToolSettings, kind: ToolKind) -> None:
        self.name = name
        self.settings = settings
        self.kind = kind
        self.slots = asyncio.Semaphore(settings.concurrent)
        self.hidden = hidden_values_of(settings)
        self.runs = self.errors = 0
        self.last_error = ""
        self.milliseconds: deque[float] = deque(maxlen=OBSERVED)

    @property
    def state(self) -> str:
        """Why its tools cannot be used, as `status: reason`; "" for nothing."""
        if self.settings.enabled:
            return self.kind.problem
        return "disabled"

    @property
    def is_fixed(self) -> bool:
        """Whether its tools never change."""
        return self.kind.is_fixed or not self.settings.enabled

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        """Return the tools that can be used now."""
        if self.state:
            return ()
        return self.kind.list_tools(tenant)

    def times(self) -> tuple[float, float]:
        """Return the median and the 95th percentile of its newest runs, in milliseconds."""
        durations = sorted(self.milliseconds)
        if len(durations) < 2:
            if durations:
                return (durations[0], durations[0])
            return (0.0, 0.0)
        cuts = quantiles(durations, n=20)
        return cuts[9], cuts[18]


class RegisteredTool(msgspec.Struct, frozen=True, eq=False):
    """A tool with its entry. definition: as chat completions have it. digest: of that."""

    tool: OperatorTool
    entry: ToolEntry
    definition: Json
    digest: str
    tokens: int
    byte_count: int

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def timeout(self) -> float:
        """Seconds that a run may take."""
        return self.tool.timeout or self.entry.settings.timeout

    @property
    def is_deferrable(self) -> bool:
        """Whether the tool may be left to `tool_search`."""
        return not (self.tool.pinned or self.entry.settings.pinned)


class ShownTools(msgspec.Struct, frozen=True):
    """What a request shows of its tools. names: in order. deferred: what only a search finds."""

    offer: ToolOffer
    names: Sequence[str]
    deferred: Sequence[str]


class GrantedTools:
    """The tools that requests of one grant may use, by name, sorted.

    The same object while neither the grant nor a tool changes, so that what is made of them is
    kept. choices: what an epoch that begins shows, by the blocks that its tools need. offers: by
    the names that an epoch shows.
    """

    def __init__(self, tools: Mapping[str, RegisteredTool]) -> None:
        self.tools = tools
        self.names = frozenset(tools)
        self.needed_blocks = frozenset(tool.tool.needs_block for tool in tools.values()) - {""}
        self.choices: dict[frozenset[str], Mapping[str, str]] = {}
        self.offers: dict[tuple[str, ...], ShownTools] = {}

    def with_more(self, more_tools: Mapping[str, RegisteredTool]) -> GrantedTools:
        """Return these tools and some that one request has beside them."""
        if more_tools:
            return GrantedTools({**self.tools, **more_tools})
        return self

    def keep_offer(self, labels: tuple[str, ...], offer: ShownTools) -> None:
        """Keep what an epoch shows; few epochs are of one grant."""
        if len(self.offers) >= MAX_ANSWERS:
            self.offers.clear()
        self.offers[labels] = offer


class Catalog:
    """The tools of one tenant. colliding: tools whose name another one has, or that is reserved."""

    def __init__(
        self, tools: Mapping[str, RegisteredTool], colliding: Sequence[RegisteredTool]
    ) -> None:
        self.tools = tools
        self.colliding = colliding
        self._tools_by_grants: dict[Grants, GrantedTools] = {}

    def find_granted(self, grants: Grants) -> GrantedTools:
        """Return the tools that a request may use; the same object while none of them changes."""
        granted_tools = self._tools_by_grants.get(grants)
        if granted_tools is None:
            if len(self._tools_by_grants) >= MAX_ANSWERS:
                self._tools_by_grants.clear()
            granted_tools = self._tools_by_grants[grants] = GrantedTools(
                {
                    name: tool
                    for name, tool in self.tools.items()
                    if grants.allow(name) and not (grants.reads_only and tool.tool.effect != "read")
                }
            )
        return granted_tools


class ToolRegistry:
    """All entries. slots: runs of this process at a time. judges_memory: rules name memory tools.

    running_calls: those of this process that have not ended, a reload before them included.
    tenant_tools: those that were made by API, which an entry beside the configured ones lists.
    stand_in: the entry that answers for the vendors' own search, None for none.
    """

    def __init__(
        self,
        settings: ToolboxSettings,
        entries: Mapping[str, ToolEntry],
        shared: SharedRuntimes,
        tenant_tools: TenantPythonTools,
        running_calls: set[RunningCall],
    ) -> None:
        self.settings = settings
        self.entries = entries
        self.shared = shared
        self.tenant_tools = tenant_tools
        self.running_calls = running_calls
        self._api_entry = ToolEntry(API_ENTRY, ToolSettings(kind="python"), tenant_tools)
        self.slots = asyncio.Semaphore(settings.process_parallel)
        self.judges_memory = bool(list_literal_names(settings.parsed_rules) & MEMORY_TOOL_NAMES)
        self._counter = TokenCounter()
        self._catalogs: dict[str, tuple[list[Sequence[OperatorTool]], Catalog]] = {}
        stand_ins = (e for e in entries.values() if getattr(e.settings, "stand_in", False))
        self.stand_in = next(stand_ins, None)
        self._changing = [entry for entry in self._all_entries() if not entry.is_fixed]

    def catalog(self, tenant: str) -> Catalog:
        """Return the tools that a tenant may be granted; the same while no kind changes."""
        tool_lists = [entry.list_tools(tenant) for entry in self._changing]
        cache_entry = self._catalogs.get(tenant)
        if cache_entry is not None and all(map(_is_same, cache_entry[0], tool_lists)):
            return cache_entry[1]
        if len(self._catalogs) >= MAX_ANSWERS:
            self._catalogs.clear()
        changing = dict(zip(map(id, self._changing), tool_lists, strict=True))
        catalog = self._make_catalog(
            changing[id(entry)] if id(entry) in changing else entry.list_tools(tenant)
            for entry in self._all_entries()
        )
        self._catalogs[tenant] = tool_lists, catalog
        return catalog

    def find_stand_in(self, tenant: str) -> RegisteredTool | None:
        """Return the tool of that entry, where it can be used."""
        entry = self.stand_in
        if entry is None:
            return None
        return self.catalog(tenant).tools.get(entry.name)

    def names(self, tenant: str) -> frozenset[str]:
        """Return the names of all tools that a tenant may be granted."""
        if self.has_tools:
            return frozenset(self.catalog(tenant).tools)
        return frozenset()

    @property
    def has_tools(self) -> bool:
        """Whether there is an entry, or a tool that was made by API, as far as is known."""
        return bool(self.entries or self.tenant_tools.tools)

    async def close(self) -> None:
        """End what the kinds hold open."""
        closing = (entry.kind.close() for entry in self._all_entries())
        await asyncio.gather(*closing, return_exceptions=True)
        await self.shared.close()

    async def retire(self, successor: ToolRegistry) -> None:
        """End the entries that a reload replaced, once none of their runs is in progress."""
        stays = {id(entry) for entry in successor.entries.values()}
        replaced = (entry for entry in self.entries.values() if id(entry) not in stays)
        try:
            await asyncio.gather(*(_end_entry(entry) for entry in replaced))
        finally:
            if successor.shared is not self.shared:
                await self.shared.close()

    def _all_entries(self) -> list[ToolEntry]:
        return [*self.entries.values(), self._api_entry]

    def _make_catalog(self, tool_lists: Iterable[Sequence[OperatorTool]]) -> Catalog:
        tools: dict[str, RegisteredTool] = {}
        colliding: list[RegisteredTool] = []
        for entry, entry_tools in zip(self._all_entries(), tool_lists, strict=True):
            for tool in entry_tools:
                registered = self.register(entry, tool)
                if tool.name in tools or is_reserved(tool.name):
                    colliding.append(registered)
                else:
                    tools[tool.name] = registered
        return Catalog(dict(sorted(tools.items())), colliding)

    def register(self, entry: ToolEntry, tool: OperatorTool) -> RegisteredTool:
        """Return a tool with its entry, measured."""
        definition = definition_of(tool.name, tool.description, tool.parameters)
        identity = _sorted.encode([definition, tool.effect, tool.version])
        digest = hashlib.sha256(identity).hexdigest()[:32]
        text = msgspec.json.encode(definition)
        tokens = self._counter.text(text.decode("utf-8", "replace"))
        return RegisteredTool(tool, entry, definition, digest, tokens, len(text))


async def _end_entry(entry: ToolEntry) -> None:
    """End what an entry holds open, once its runs are over or the gateway ends."""
    try:
        for _ in range(entry.settings.concurrent):
            await entry.slots.acquire()
    finally:
        await entry.kind.close()


def definition_of(name: str, description: str, parameters: Mapping[str, Any]) -> EncodedTool:
    """Return a tool as chat completions have it."""
    return EncodedTool(
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description[:DESCRIPTION_CHARACTERS],
                "parameters": dict(parameters),
            },
        }
    )


def build_registry(services: KindServices, before: ToolRegistry | None = None) -> ToolRegistry:
    """Make the entries of the configuration; those that a reload leaves as they are, stay.

    Raises ConfigError.
    """
    settings = services.settings
    entries: dict[str, ToolEntry] = {}
    for name, entry_settings in sorted(settings.tools.items()):
        earlier_entry = None
        if before is not None:
            earlier_entry = before.entries.get(name)
        is_same = before is not None and before.shared is services.shared
        if earlier_entry is not None and earlier_entry.settings == entry_settings and is_same:
            entries[name] = earlier_entry
        else:
            entries[name] = ToolEntry(
                name, entry_settings, make_kind(name, entry_settings, services)
            )
    if before is None:
        tenant_tools = TenantPythonTools(services.memory, services.shared)
        running_calls: set[RunningCall] = set()
    else:
        tenant_tools = before.tenant_tools
        tenant_tools.shared = services.shared
        running_calls = before.running_calls
    return ToolRegistry(settings.toolbox, entries, services.shared, tenant_tools, running_calls)


def _is_same(before: Sequence[OperatorTool], now: Sequence[OperatorTool]) -> bool:
    return before is now or (not before and not now)
