"""What a kind of tool is: it lists its tools, and runs one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gateway.apis.search.vendor_search import SearchLimits

Effect = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class OperatorTool:
    """A tool of the operator, as its kind lists it.

    name: as the model sees it. entry: the name of its `[tools.NAME]`. parameters: a JSON Schema
    whose root is an object. version: of a Python tool; 0 for other kinds. needs_block: the label of
    a memory block without which the tool is not shown; "" for none. timeout: of a run in seconds,
    None for that of the entry.
    """

    name: str
    entry: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect = "read"
    idempotent: bool = False
    pinned: bool = False
    version: int = 0
    needs_block: str = ""
    timeout: float | None = None


class DecodedHeaders(Mapping[str, str]):
    """The client's headers as text, of which a kind of tool reads few or none."""

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return self._headers[name.encode("latin-1", "replace")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers)

    def __len__(self) -> int:
        return len(self._headers)


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Whose turn calls: what a kind may tell a server, and whose files it may read.

    headers: those of the client's request, by lower-case name; a kind forwards only those that
    its entry names. owner: whose memory the turn has, an agent's own included; project: in which.
    search: what the client bounds its searches by, None for one that did not ask for any.
    """

    tenant: str
    user: str | None
    agent: str
    request_id: str
    headers: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    project: str = ""
    search: SearchLimits | None = None


@dataclass(frozen=True, slots=True)
class ToolImage:
    """A picture that a tool returned. data: base64."""

    media_type: str
    data: str
    byte_count: int


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a run of a tool returned, before it is bounded and marked as data.

    text: without the head line; of an error it begins with `Error: `. origin: a URL, path or file
    that the text came from. cost_usd: beside the entry's own price. facts: more for the explain
    record.
    """

    text: str
    status: Literal["ok", "error"] = "ok"
    images: tuple[ToolImage, ...] = ()
    origin: str = ""
    cost_usd: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


class ToolKind(Protocol):
    """One `[tools.NAME]`: made when the configuration is read, started at its first use.

    An entry never fails the start of the gateway: what cannot be reached lists no tool, and says
    why in `problem`. is_fixed: its tools, the same for all tenants, and `problem` never change.
    """

    is_fixed: bool

    @property
    def problem(self) -> str:
        """Return "" while the entry is ready, else why not: "failed: connection refused"."""
        ...

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        """Return the tools that are there now, without waiting and without a connection."""
        ...

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        """Return the coerced arguments, or the text of an error (`days must be an integer`)."""
        ...

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Run one call. The caller bounds its time by cancelling this coroutine."""
        ...

    async def close(self) -> None:
        """End connections and children."""
        ...
