"""The kind `files`: a model searches, greps and opens the files of whoever it talks to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.tools.file_answers import format_grep, format_hits, format_text
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from memory import FileQuery, FileSearch, GrepQuery, Memory, Scope, TextQuery, memory_name
from memory.errors import NotFound, StoreUnavailable, ToolError

Json = dict[str, Any]
MAX_HITS = 50
MAX_LINES = 1000
# Of the block that lists the files: who has none has no such block.
LABEL = "files"
FILE: Json = {"type": "string", "description": "Id or name of one file; all files without it."}


def _describe(properties: Json, *required: str) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _limit(default: int, maximum: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": maximum, "default": default}


SEARCH: Json = _describe(
    {
        "query": {"type": "string", "description": "Words to search for."},
        "file": FILE,
        "kind": {
            "type": "string",
            "enum": ["text", "symbol"],
            "default": "text",
            "description": "symbol: definitions in source files, by their name.",
        },
        "limit": _limit(10, MAX_HITS),
    },
    "query",
)
GREP: Json = _describe(
    {
        "pattern": {"type": "string", "description": "A text within one line; case is ignored."},
        "file": FILE,
        "regex": {"type": "boolean", "default": False, "description": "RE2 syntax."},
        "limit": _limit(20, MAX_HITS),
    },
    "pattern",
)
OPEN: Json = _describe(
    {
        "file": {"type": "string", "description": "Id or name of the file."},
        "page": {"type": "integer", "minimum": 1},
        "line": {"type": "integer", "minimum": 1},
        "lines": _limit(100, MAX_LINES),
    },
    "file",
)
TOOLS: dict[str, tuple[str, Json]] = {
    "file_search": (
        "Search the user's files. Returns passages with file, page and lines, best first.",
        SEARCH,
    ),
    "file_grep": ("Find the lines of the user's files that hold a text.", GREP),
    "file_open": (
        "Read numbered lines of one of the user's files, from a page or a line on.",
        OPEN,
    ),
}
FindScope = Callable[[str, str | None, str], Scope]


class FilesKind:
    """The entry that keeps files. memory: whose files these are."""

    is_fixed = True

    def __init__(self, entry: str, memory: Memory) -> None:
        self.problem = ""
        self._find_scope: FindScope = memory.scope
        self._search = FileSearch(memory.db)
        self._tools = [
            OperatorTool(name, entry, description, parameters, idempotent=True, needs_block=LABEL)
            for name, (description, parameters) in TOOLS.items()
        ]

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        """Return the three tools."""
        return self._tools

    def check_arguments(self, tool: OperatorTool, arguments: Json) -> Json | str:
        """Return the arguments; the registry has coerced them by the schema."""
        if tool.name == "file_open" and {"page", "line"} <= arguments.keys():
            return "give page or line, not both"
        return arguments

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Run one call."""
        scope = await self._find_shown(caller)
        try:
            if tool.name == "file_search":
                return await self._run_search(scope, arguments)
            if tool.name == "file_grep":
                return await self._run_grep(scope, arguments)
            return await self._run_open(scope, arguments)
        except (NotFound, ToolError) as e:
            return ToolOutput(f"Error: {e}", status="error")
        except StoreUnavailable:
            return ToolOutput("Error: the files cannot be read right now.", status="error")

    async def _run_search(self, scope: Scope, arguments: Mapping[str, Any]) -> ToolOutput:
        query = FileQuery(
            arguments["query"],
            arguments.get("file", ""),
            arguments.get("kind", "text"),
            min(arguments.get("limit", 10), MAX_HITS),
        )
        hits = await self._search.search(scope, query)
        return ToolOutput(format_hits(hits), origin=query.file)

    async def _run_grep(self, scope: Scope, arguments: Mapping[str, Any]) -> ToolOutput:
        query = GrepQuery(
            arguments["pattern"],
            arguments.get("file", ""),
            arguments.get("regex", False),
            min(arguments.get("limit", 20), MAX_HITS),
        )
        result = await self._search.grep(scope, query)
        return ToolOutput(format_grep(result, query.limit), origin=query.file)

    async def _run_open(self, scope: Scope, arguments: Mapping[str, Any]) -> ToolOutput:
        query = TextQuery(
            arguments["file"],
            arguments.get("page"),
            arguments.get("line"),
            min(arguments.get("lines", 100), MAX_LINES),
        )
        text = await self._search.open(scope, query)
        return ToolOutput(format_text(text), origin=text.row.name)

    async def _find_shown(self, caller: ToolCaller) -> Scope:
        """Return the memory whose files the turn's list names.

        An agent's own where it has one; in a project the part of it, if that has files.
        """
        tenant = caller.tenant
        owner = caller.owner or caller.user
        general_scope = self._find_scope(tenant, owner, caller.agent)
        if not caller.project:
            return general_scope
        part = self._find_scope(tenant, owner, memory_name(caller.agent, caller.project))
        if await self._search.list_files(part):
            return part
        return general_scope

    async def close(self) -> None:
        """Do nothing: the memory closes its store."""
