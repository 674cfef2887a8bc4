# The public names of the library and where each is: read by type checkers, and by the package.

from memory.cache import Cache as Cache
from memory.context.epoch import EpochPolicy as EpochPolicy
from memory.context.summary import (
    Complete as Complete,
    write_summary as write_summary,
)
from memory.context.tokens import (
    PromptReport as PromptReport,
    TokenCounter as TokenCounter,
)
from memory.conversation.foreign_json import decode_foreign as decode_foreign
from memory.conversation.harness import (
    HARNESS_ELEMENTS as HARNESS_ELEMENTS,
    Harness as Harness,
    SHIPPED_HARNESS as SHIPPED_HARNESS,
)
from memory.conversation.history import (
    Messages as Messages,
    PrefixInfo as PrefixInfo,
    SourceText as SourceText,
    TextRange as TextRange,
    conversation_key as conversation_key,
)
from memory.conversation.json_spans import array_elements as array_elements
from memory.conversation.long_json import encode_in_parts as encode_in_parts
from memory.conversation.matching import Repeat as Repeat
from memory.conversation.messages import (
    is_system as is_system,
    keyed_hash as keyed_hash,
    text_of as text_of,
)
from memory.conversation.steps import (
    end_step as end_step,
    pausing_with as pausing_with,
)
from memory.conversation.thoughts import answer_text as answer_text
from memory.core.autonomy import (
    Decision as Decision,
    decide as decide,
    follow_setting as follow_setting,
)
from memory.core.blocks import (
    CoreBlock as CoreBlock,
    LABEL as LABEL,
    RESERVED as RESERVED,
    without_spans as without_spans,
)
from memory.core.edits import (
    BlockEdit as BlockEdit,
    Edit as Edit,
)
from memory.core.json_values import without_head_line as without_head_line
from memory.core.layers import LAYER_KINDS as LAYER_KINDS
from memory.core.letta_rules import (
    LETTA_KINDS as LETTA_KINDS,
    convert_letta_rules as convert_letta_rules,
    show_letta_rules as show_letta_rules,
)
from memory.core.rule_kinds import (
    BaseRule as BaseRule,
    EndsTurn as EndsTurn,
    RequiredBeforeExit as RequiredBeforeExit,
    list_names as list_names,
)
from memory.core.screen import (
    PATTERNS as PATTERNS,
    Screen as Screen,
)
from memory.core.tool_definitions import (
    EncodedTool as EncodedTool,
    MEMORY_TOOL_NAMES as MEMORY_TOOL_NAMES,
    tools_to_offer as tools_to_offer,
)
from memory.core.tool_rules import (
    InvalidRule as InvalidRule,
    RuleChain as RuleChain,
    RulePolicy as RulePolicy,
    ToolVerdict as ToolVerdict,
    TurnEnd as TurnEnd,
    list_literal_names as list_literal_names,
    parse_rules as parse_rules,
)
from memory.core.tool_trace import ToolRun as ToolRun
from memory.core.turn_runs import TurnRuns as TurnRuns
from memory.embed.base import (
    Embed as Embed,
    EmbedRefused as EmbedRefused,
    EmbedUnavailable as EmbedUnavailable,
)
from memory.embed.onnx import (
    OnnxEmbed as OnnxEmbed,
    is_installed as is_installed,
)
from memory.errors import (
    AmbiguousName as AmbiguousName,
    BadArguments as BadArguments,
    BlockFull as BlockFull,
    BlockReadOnly as BlockReadOnly,
    Conflict as Conflict,
    ErasedMeanwhile as ErasedMeanwhile,
    MemoryFault as MemoryFault,
    NotFound as NotFound,
    NotUpgraded as NotUpgraded,
    Postponed as Postponed,
    StoreUnavailable as StoreUnavailable,
    TooLong as TooLong,
    TooManyAgents as TooManyAgents,
    ToolError as ToolError,
    UnknownBlock as UnknownBlock,
    Unusable as Unusable,
)
from memory.ids import new_id as new_id
from memory.jobs.background_model import (
    BackgroundCall as BackgroundCall,
    BackgroundModel as BackgroundModel,
)
from memory.jobs.fact_prompt import ExtractionRules as ExtractionRules
from memory.jobs.reflection import (
    ReflectionPlan as ReflectionPlan,
    ReflectionSchedule as ReflectionSchedule,
)
from memory.jobs.worker import Worker as Worker
from memory.management.conversations import ConversationName as ConversationName
from memory.management.files import (
    FileVersion as FileVersion,
    IncomingFile as IncomingFile,
    StoredFile as StoredFile,
)
from memory.management.passages import UndoneChange as UndoneChange
from memory.retrieval.file_search import (
    FileHit as FileHit,
    FileQuery as FileQuery,
    FileSearch as FileSearch,
    FileText as FileText,
    GrepQuery as GrepQuery,
    GrepResult as GrepResult,
    TextQuery as TextQuery,
    page_of as page_of,
)
from memory.retrieval.retriever import (
    SemanticSearch as SemanticSearch,
    VectorIndex as VectorIndex,
)
from memory.scope import (
    AGENT_KIND as AGENT_KIND,
    AGENT_PREFIX as AGENT_PREFIX,
    KIND_MARK as KIND_MARK,
    Scope as Scope,
    home_of as home_of,
    memory_name as memory_name,
    shown_owner as shown_owner,
    split_memory_name as split_memory_name,
)
from memory.search.drop_reasons import Drop as Drop
from memory.search.query import (
    iso as iso,
    parse_time as parse_time,
)
from memory.search.stems_of_words import stems_of as stems_of
from memory.search.zones import parse_zone as parse_zone
from memory.service import Memory as Memory
from memory.session.agent_profiles import AgentProfiles as AgentProfiles
from memory.session.model_records import (
    SAVES as SAVES,
    SEARCHES as SEARCHES,
)
from memory.session.policies import (
    MODES as MODES,
    strictest as strictest,
)
from memory.session.request import (
    InboxLimits as InboxLimits,
    Policy as Policy,
    TurnRequest as TurnRequest,
)
from memory.session.session import Session as Session
from memory.stores.chroma import ChromaIndex as ChromaIndex
from memory.stores.sql.engine.application_tables import ApplicationTables as ApplicationTables
from memory.stores.sql.engine.batches import QuickRead as QuickRead
from memory.stores.sql.engine.database import Database as Database
from memory.stores.sql.engine.release import (
    installed_version as installed_version,
    product_name as product_name,
)
from memory.stores.sql.owners.rename_owner import OwnerRename as OwnerRename
from memory.stores.sql.rows.agents import (
    AgentGlance as AgentGlance,
    ListedAgent as ListedAgent,
    StoredAgent as StoredAgent,
)
from memory.stores.sql.rows.blocks import EditSource as EditSource
from memory.stores.sql.rows.conversations import FoundConversation as FoundConversation
from memory.stores.sql.rows.file_uploads import FileLimits as FileLimits
from memory.stores.sql.rows.management_context import ManagementActor as ManagementActor
from memory.stores.sql.rows.messages import SearchQuery as SearchQuery
from memory.stores.sql.rows.passage_edits import PassageChange as PassageChange
from memory.stores.sql.rows.passages import (
    NewPassage as NewPassage,
    PassageFilter as PassageFilter,
)
from memory.stores.sql.rows.scopes import VisibleScopes as VisibleScopes
from memory.stores.sql.transfer.import_manifest import (
    ImportLimits as ImportLimits,
    ImportManifest as ImportManifest,
)
from memory.stores.sql.transfer.importer import ImportReceipt as ImportReceipt
from memory.stores.sql.transfer.transcripts import ImportedMessage as ImportedMessage
from memory.tools import (
    MAX_ARGUMENT_CHARACTERS as MAX_ARGUMENT_CHARACTERS,
    ToolCall as ToolCall,
    kept_arguments as kept_arguments,
)

__all__: list[str]
