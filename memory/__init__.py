"""A library of long-term memory for conversations with language models.

It knows nothing of HTTP. `__all__` is its public face, together with the public modules
`memory.errors`, `memory.export_format`, `memory.formats`, `memory.management` and
`memory.session.toolbox`, the port of the operator's tools. Names are imported on first use, so that
using one of them does not load the database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.cache import Cache
    from memory.context.epoch import EpochPolicy
    from memory.context.summary import Complete, write_summary
    from memory.context.tokens import PromptReport, TokenCounter
    from memory.conversation.foreign_json import decode_foreign
    from memory.conversation.harness import HARNESS_ELEMENTS, SHIPPED_HARNESS, Harness
    from memory.conversation.history import (
        Messages,
        PrefixInfo,
        SourceText,
        TextRange,
        conversation_key,
    )
    from memory.conversation.json_spans import array_elements
    from memory.conversation.long_json import encode_in_parts
    from memory.conversation.matching import Repeat
    from memory.conversation.messages import is_system, keyed_hash, text_of
    from memory.conversation.steps import end_step, pausing_with
    from memory.conversation.thoughts import answer_text
    from memory.core.autonomy import Decision, decide, follow_setting
    from memory.core.blocks import LABEL, RESERVED, CoreBlock, without_spans
    from memory.core.edits import BlockEdit, Edit
    from memory.core.json_values import without_head_line
    from memory.core.layers import LAYER_KINDS
    from memory.core.letta_rules import LETTA_KINDS, convert_letta_rules, show_letta_rules
    from memory.core.rule_kinds import BaseRule, EndsTurn, RequiredBeforeExit, list_names
    from memory.core.screen import PATTERNS, Screen
    from memory.core.tool_definitions import MEMORY_TOOL_NAMES, EncodedTool, tools_to_offer
    from memory.core.tool_rules import (
        InvalidRule,
        RuleChain,
        RulePolicy,
        ToolVerdict,
        TurnEnd,
        list_literal_names,
        parse_rules,
    )
    from memory.core.tool_trace import ToolRun
    from memory.core.turn_runs import TurnRuns
    from memory.embed.base import Embed, EmbedRefused, EmbedUnavailable
    from memory.embed.onnx import OnnxEmbed, is_installed
    from memory.errors import (
        AmbiguousName,
        BadArguments,
        BlockFull,
        BlockReadOnly,
        Conflict,
        ErasedMeanwhile,
        MemoryFault,
        NotFound,
        NotUpgraded,
        Postponed,
        StoreUnavailable,
        ToolError,
        TooLong,
        TooManyAgents,
        UnknownBlock,
        Unusable,
    )
    from memory.ids import new_id
    from memory.jobs.background_model import BackgroundCall, BackgroundModel
    from memory.jobs.fact_prompt import ExtractionRules
    from memory.jobs.reflection import ReflectionPlan, ReflectionSchedule
    from memory.jobs.worker import Worker
    from memory.management.conversations import ConversationName
    from memory.management.files import FileVersion, IncomingFile, StoredFile
    from memory.management.passages import UndoneChange
    from memory.retrieval.file_search import (
        FileHit,
        FileQuery,
        FileSearch,
        FileText,
        GrepQuery,
        GrepResult,
        TextQuery,
        page_of,
    )
    from memory.retrieval.retriever import SemanticSearch, VectorIndex
    from memory.scope import (
        AGENT_KIND,
        AGENT_PREFIX,
        KIND_MARK,
        Scope,
        home_of,
        memory_name,
        shown_owner,
        split_memory_name,
    )
    from memory.search.drop_reasons import Drop
    from memory.search.query import iso, parse_time
    from memory.search.stems_of_words import stems_of
    from memory.search.zones import parse_zone
    from memory.service import Memory
    from memory.session.agent_profiles import AgentProfiles
    from memory.session.model_records import SAVES, SEARCHES
    from memory.session.policies import MODES, strictest
    from memory.session.request import InboxLimits, Policy, TurnRequest
    from memory.session.session import Session
    from memory.stores.chroma import ChromaIndex
    from memory.stores.sql.engine.application_tables import ApplicationTables
    from memory.stores.sql.engine.batches import QuickRead
    from memory.stores.sql.engine.database import Database
    from memory.stores.sql.engine.release import installed_version, product_name
    from memory.stores.sql.owners.rename_owner import OwnerRename
    from memory.stores.sql.rows.agents import AgentGlance, ListedAgent, StoredAgent
    from memory.stores.sql.rows.blocks import EditSource
    from memory.stores.sql.rows.conversations import FoundConversation
    from memory.stores.sql.rows.file_uploads import FileLimits
    from memory.stores.sql.rows.management_context import ManagementActor
    from memory.stores.sql.rows.messages import SearchQuery
    from memory.stores.sql.rows.passage_edits import PassageChange
    from memory.stores.sql.rows.passages import NewPassage, PassageFilter
    from memory.stores.sql.rows.scopes import VisibleScopes
    from memory.stores.sql.transfer.import_manifest import ImportLimits, ImportManifest
    from memory.stores.sql.transfer.importer import ImportReceipt
    from memory.stores.sql.transfer.transcripts import ImportedMessage
    from memory.tools import MAX_ARGUMENT_CHARACTERS, ToolCall, kept_arguments

__all__ = [
    "AGENT_KIND",
    "AGENT_PREFIX",
    "HARNESS_ELEMENTS",
    "KIND_MARK",
    "LABEL",
    "LAYER_KINDS",
    "LETTA_KINDS",
    "MAX_ARGUMENT_CHARACTERS",
    "MEMORY_TOOL_NAMES",
    "MODES",
    "PATTERNS",
    "RESERVED",
    "SAVES",
    "SEARCHES",
    "SHIPPED_HARNESS",
    "AgentGlance",
    "AgentProfiles",
    "AmbiguousName",
    "ApplicationTables",
    "BackgroundCall",
    "BackgroundModel",
    "BadArguments",
    "BaseRule",
    "BlockEdit",
    "BlockFull",
    "BlockReadOnly",
    "Cache",
    "ChromaIndex",
    "Complete",
    "Conflict",
    "ConversationName",
    "CoreBlock",
    "Database",
    "Decision",
    "Drop",
    "Edit",
    "EditSource",
    "Embed",
    "EmbedRefused",
    "EmbedUnavailable",
    "EncodedTool",
    "EndsTurn",
    "EpochPolicy",
    "ErasedMeanwhile",
    "ExtractionRules",
    "FileHit",
    "FileLimits",
    "FileQuery",
    "FileSearch",
    "FileText",
    "FileVersion",
    "FoundConversation",
    "GrepQuery",
    "GrepResult",
    "Harness",
    "ImportLimits",
    "ImportManifest",
    "ImportReceipt",
    "ImportedMessage",
    "InboxLimits",
    "IncomingFile",
    "InvalidRule",
    "ListedAgent",
    "ManagementActor",
    "Memory",
    "MemoryFault",
    "Messages",
    "NewPassage",
    "NotFound",
    "NotUpgraded",
    "OnnxEmbed",
    "OwnerRename",
    "PassageChange",
    "PassageFilter",
    "Policy",
    "Postponed",
    "PrefixInfo",
    "PromptReport",
    "QuickRead",
    "ReflectionPlan",
    "ReflectionSchedule",
    "Repeat",
    "RequiredBeforeExit",
    "RuleChain",
    "RulePolicy",
    "Scope",
    "Screen",
    "SearchQuery",
    "SemanticSearch",
    "Session",
    "SourceText",
    "StoreUnavailable",
    "StoredAgent",
    "StoredFile",
    "TextQuery",
    "TextRange",
    "TokenCounter",
    "TooLong",
    "TooManyAgents",
    "ToolCall",
    "ToolError",
    "ToolRun",
    "ToolVerdict",
    "TurnEnd",
    "TurnRequest",
    "TurnRuns",
    "UndoneChange",
    "UnknownBlock",
    "Unusable",
    "VectorIndex",
    "VisibleScopes",
    "Worker",
    "answer_text",
    "array_elements",
    "conversation_key",
    "convert_letta_rules",
    "decide",
    "decode_foreign",
    "encode_in_parts",
    "end_step",
    "follow_setting",
    "home_of",
    "installed_version",
    "is_installed",
    "is_system",
    "iso",
    "kept_arguments",
    "keyed_hash",
    "list_literal_names",
    "list_names",
    "memory_name",
    "new_id",
    "page_of",
    "parse_rules",
    "parse_time",
    "parse_zone",
    "pausing_with",
    "product_name",
    "show_letta_rules",
    "shown_owner",
    "split_memory_name",
    "stems_of",
    "strictest",
    "text_of",
    "tools_to_offer",
    "without_head_line",
    "without_spans",
    "write_summary",
]

_HOMES = {
    "memory.stores.sql.rows.file_uploads": ("FileLimits",),
    "memory.retrieval.file_search": (
        "FileHit",
        "FileQuery",
        "FileSearch",
        "FileText",
        "GrepQuery",
        "GrepResult",
        "TextQuery",
        "page_of",
    ),
    "memory.management.files": ("FileVersion", "IncomingFile", "StoredFile"),
    "memory.cache": ("Cache",),
    "memory.context.epoch": ("EpochPolicy",),
    "memory.context.summary": ("Complete", "write_summary"),
    "memory.context.tokens": ("PromptReport", "TokenCounter"),
    "memory.conversation.foreign_json": ("decode_foreign",),
    "memory.conversation.harness": ("HARNESS_ELEMENTS", "Harness", "SHIPPED_HARNESS"),
    "memory.conversation.history": (
        "Messages",
        "PrefixInfo",
        "SourceText",
        "TextRange",
        "conversation_key",
    ),
    "memory.conversation.json_spans": ("array_elements",),
    "memory.conversation.long_json": ("encode_in_parts",),
    "memory.conversation.matching": ("Repeat",),
    "memory.conversation.messages": ("is_system", "keyed_hash", "text_of"),
    "memory.conversation.steps": ("end_step", "pausing_with"),
    "memory.conversation.thoughts": ("answer_text",),
    "memory.core.autonomy": ("Decision", "decide", "follow_setting"),
    "memory.core.blocks": ("CoreBlock", "LABEL", "RESERVED", "without_spans"),
    "memory.core.edits": ("BlockEdit", "Edit"),
    "memory.core.screen": ("PATTERNS", "Screen"),
    "memory.core.letta_rules": ("LETTA_KINDS", "convert_letta_rules", "show_letta_rules"),
    "memory.core.json_values": ("without_head_line",),
    "memory.core.rule_kinds": ("BaseRule", "EndsTurn", "RequiredBeforeExit", "list_names"),
    "memory.core.tool_definitions": ("MEMORY_TOOL_NAMES", "EncodedTool", "tools_to_offer"),
    "memory.core.tool_rules": (
        "InvalidRule",
        "RuleChain",
        "RulePolicy",
        "ToolVerdict",
        "TurnEnd",
        "list_literal_names",
        "parse_rules",
    ),
    "memory.core.tool_trace": ("ToolRun",),
    "memory.core.turn_runs": ("TurnRuns",),
    "memory.core.layers": ("LAYER_KINDS",),
    "memory.search.drop_reasons": ("Drop",),
    "memory.embed.base": ("Embed", "EmbedRefused", "EmbedUnavailable"),
    "memory.embed.onnx": ("OnnxEmbed", "is_installed"),
    "memory.errors": (
        "AmbiguousName",
        "BadArguments",
        "BlockFull",
        "BlockReadOnly",
        "Conflict",
        "ErasedMeanwhile",
        "MemoryFault",
        "NotFound",
        "NotUpgraded",
        "Postponed",
        "StoreUnavailable",
        "TooLong",
        "TooManyAgents",
        "ToolError",
        "UnknownBlock",
        "Unusable",
    ),
    "memory.ids": ("new_id",),
    "memory.stores.sql.engine.release": ("installed_version", "product_name"),
    "memory.jobs.background_model": ("BackgroundCall", "BackgroundModel"),
    "memory.jobs.fact_prompt": ("ExtractionRules",),
    "memory.jobs.reflection": ("ReflectionPlan", "ReflectionSchedule"),
    "memory.jobs.worker": ("Worker",),
    "memory.management.conversations": ("ConversationName",),
    "memory.management.passages": ("UndoneChange",),
    "memory.search.zones": ("parse_zone",),
    "memory.session.model_records": ("SAVES", "SEARCHES"),
    "memory.session.agent_profiles": ("AgentProfiles",),
    "memory.session.policies": ("MODES", "strictest"),
    "memory.retrieval.retriever": ("SemanticSearch", "VectorIndex"),
    "memory.scope": (
        "AGENT_KIND",
        "AGENT_PREFIX",
        "KIND_MARK",
        "Scope",
        "home_of",
        "memory_name",
        "shown_owner",
        "split_memory_name",
    ),
    "memory.search.query": ("iso", "parse_time"),
    "memory.search.stems_of_words": ("stems_of",),
    "memory.service": ("Memory",),
    "memory.session.request": ("InboxLimits", "Policy", "TurnRequest"),
    "memory.session.session": ("Session",),
    "memory.stores.chroma": ("ChromaIndex",),
    "memory.stores.sql.engine.application_tables": ("ApplicationTables",),
    "memory.stores.sql.engine.batches": ("QuickRead",),
    "memory.stores.sql.rows.agents": ("AgentGlance", "ListedAgent", "StoredAgent"),
    "memory.stores.sql.rows.blocks": ("EditSource",),
    "memory.stores.sql.rows.conversations": ("FoundConversation",),
    "memory.stores.sql.engine.database": ("Database",),
    "memory.stores.sql.transfer.import_manifest": ("ImportLimits", "ImportManifest"),
    "memory.stores.sql.transfer.importer": ("ImportReceipt",),
    "memory.stores.sql.rows.management_context": ("ManagementActor",),
    "memory.stores.sql.rows.messages": ("SearchQuery",),
    "memory.stores.sql.rows.passage_edits": ("PassageChange",),
    "memory.stores.sql.rows.passages": ("NewPassage", "PassageFilter"),
    "memory.stores.sql.owners.rename_owner": ("OwnerRename",),
    "memory.stores.sql.rows.scopes": ("VisibleScopes",),
    "memory.stores.sql.transfer.transcripts": ("ImportedMessage",),
    "memory.tools": ("MAX_ARGUMENT_CHARACTERS", "ToolCall", "kept_arguments"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

# Else a checker takes every name for one that is there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on its first use (PEP 562)."""
        if (module := _MODULE_OF.get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(module), name)
        return found

    def __dir__() -> list[str]:
        """List the public names, imported yet or not."""
        return sorted({*globals(), *__all__})
