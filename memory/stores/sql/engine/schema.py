"""The tables. SQL is the record; the search indexes beside it can be rebuilt from it.

Everything belongs to `scopes` (one tenant, user, agent); every row of a user has its `scope_id`, so
that isolation and erasure are one predicate. `generations` outlives an erasure and has no name,
only its keyed hash. JSON is stored as text, hashes as bytes, times as Unix times.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
    event,
)
from sqlalchemy import text as sql_text

from memory.stores.sql.engine import file_tables, python_tool_tables, skill_tables
from memory.stores.sql.engine.agent_tables import agent_versions, agents
from memory.stores.sql.engine.approval_tables import tool_approvals
from memory.stores.sql.engine.call_tables import call_records, tool_pins
from memory.stores.sql.engine.columns import (
    Key,
    Words,
    at,
    key,
    metadata,
    scope_column,
    short,
    text,
)
from memory.stores.sql.engine.inbox_tables import agent_inbox
from memory.stores.sql.engine.policy_tables import user_policies
from memory.stores.sql.engine.record_tables import dropped, job_records
from memory.stores.sql.engine.shared_tables import (
    shared_blocks,
    shared_changes,
    shared_members,
    shared_versions,
)
from memory.stores.sql.engine.team_tables import project_members, projects, team_members, teams
from memory.stores.sql.engine.tool_tables import tool_calls, tool_results

# Made elsewhere, and spoken of as part of the schema.
__all__ = [
    "Key",
    "Words",
    "agent_inbox",
    "agent_versions",
    "agents",
    "at",
    "call_records",
    "dropped",
    "file_tables",
    "job_records",
    "metadata",
    "project_members",
    "projects",
    "python_tool_tables",
    "shared_blocks",
    "shared_changes",
    "shared_members",
    "shared_versions",
    "short",
    "skill_tables",
    "team_members",
    "teams",
    "text",
    "tool_approvals",
    "tool_calls",
    "tool_pins",
    "tool_results",
    "user_policies",
]

# agent: with the project before it, where the memory is of one (see `Scope`); project: that alone.
scopes = Table(
    "scopes",
    metadata,
    key(),
    text("tenant"),
    Column("user", Words),
    text("agent"),
    Column("edits", Integer, nullable=False, server_default="0"),
    at(),
    at("active_at"),
    Column("proven", Boolean, nullable=False, server_default="0"),
    Column("turns", Integer, nullable=False, server_default="0"),
    # raised by what a cached conversation may hold of it: blocks, edits from outside, removals
    Column("version", Key, nullable=False, server_default="0"),
    text("project"),
    UniqueConstraint("tenant", "user", "agent"),
)

generations = Table(
    "generations",
    metadata,
    Column("owner", LargeBinary, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("erased_at", Float),
)

blocks = Table(
    "blocks",
    metadata,
    Column("id", short(64), primary_key=True),
    scope_column(),
    Column("branch", Key, nullable=False, server_default="0"),
    text("label"),
    text("description"),
    text("value"),
    Column("limit", Integer, nullable=False),
    Column("read_only", Boolean, nullable=False),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    at("updated_at"),
    UniqueConstraint("scope_id", "branch", "label"),
)

block_versions = Table(
    "block_versions",
    metadata,
    Column("id", Key, primary_key=True),
    scope_column(),
    Column("block_id", short(64), nullable=False, index=True),
    Column("version", Integer, nullable=False),
    Column("before", Words),
    Column("after", Words),
    text("actor"),
    Column("request_id", Words),
    Column("tool_call_id", Words),
    Column("undoes", Integer),
    at(),
    Column("quote", Words),
    Index("ix_block_versions_scope_id", "scope_id"),
    UniqueConstraint("block_id", "version"),
)

conversations = Table(
    "conversations",
    metadata,
    key(),
    scope_column(),
    text("name"),
    Column("explicit", Boolean, nullable=False),
    Column("resent", Boolean, nullable=False, server_default="0"),
    Column("forked_from", Words),
    Column("head", Key),
    at(),
    at("updated_at"),
    Column("version", Key, nullable=False, server_default="0"),  # raised by each write of a turn
    Column("opening", LargeBinary),  # digests of its first request, until it is continued
    Column("task", Boolean, nullable=False, server_default="0"),
    UniqueConstraint("scope_id", "name"),
    Index("ix_conversations_name", "name"),
)

epochs = Table(
    "epochs",
    metadata,
    Column("id", short(64), primary_key=True),
    scope_column(),
    text("core"),
    text("blocks"),
    Column("edits", Integer, nullable=False),
    Column("cut", LargeBinary),
    Column("elide", LargeBinary),
    at(),
    Column("tools", Words),  # the operator's tools that it shows, as JSON; NULL for none
    Index("ix_epochs_scope_id", "scope_id"),
)

nodes = Table(
    "nodes",
    metadata,
    key(),
    scope_column(),
    Column("conversation", Key, ForeignKey("conversations.id"), nullable=False, index=True),
    Column("parent", Key),
    Column("turn", Key, nullable=False),
    Column("digest", LargeBinary),
    Column("chain", LargeBinary),
    Column("asked", LargeBinary),
    Column("trail", LargeBinary),
    Column("depth", Integer, nullable=False),
    Column("state", short(8), nullable=False),
    Column("epoch", short(64)),
    Column("note", Words),
    Column("recall", Words),
    Column("told", Words),
    Column("hidden", Words),
    Column("carriers", Words),
    Column("branch", Key, nullable=False),
    Column("at", Float, nullable=False),
    Column("text", Words),
    Column("request", LargeBinary),
    Column("rounds", Words),  # key of the request among its retries, and its finished hidden rounds
    Column("recalled", Words),  # what recall showed in this conversation so far
    Column("unread", Integer),  # 1 until extraction has read the turn
    # the worker that works on it, where there are several; the key of a request that has one
    Column("holder", Key),
    Column("once", LargeBinary),
    Column("runs", Words),  # of tools, in the user's turn up to this answer
    Index("ix_nodes_digest", "scope_id", "digest"),
    Index("ix_nodes_request", "request"),
)
# An index costs every turn a page to write: these hold what is not answered, and what was cut off.
_PARTIAL = [
    # NULL is unlike NULL: without it the unnamed could get two scopes
    (Index("uq_scopes_unnamed", scopes.c.tenant, scopes.c.agent, unique=True), '"user" IS NULL'),
    (
        Index("ix_conversations_opening", conversations.c.scope_id, conversations.c.id),
        "opening IS NOT NULL",
    ),
    (Index("ix_conversations_forks", conversations.c.scope_id), "forked_from IS NOT NULL"),
    (Index("ix_nodes_asked", nodes.c.scope_id, nodes.c.asked), "state != 'done'"),
    (Index("ix_nodes_parent", nodes.c.parent), "state = 'aborted'"),
    (Index("ix_nodes_unread", nodes.c.scope_id, nodes.c.parent), "unread IS NOT NULL"),
    (Index("uq_nodes_once", nodes.c.scope_id, nodes.c.once, unique=True), "once IS NOT NULL"),
]


@event.listens_for(metadata, "before_create")
def _partial(target: MetaData, connection: Connection, **_: object) -> None:
    """Told here, since to name a dialect's option loads the dialect."""
    for partial_index, where in _PARTIAL:
        partial_index.dialect_options[connection.dialect.name]["where"] = sql_text(where)


messages = Table(
    "messages",
    metadata,
    key(),
    Column("public_id", short(64), nullable=False),
    scope_column(),  # never queried by it
    Column("conversation", Key, ForeignKey("conversations.id"), nullable=False),
    Column("node", Key, index=True),
    text("role"),
    text("body"),
    text("content"),
    Column("digest", LargeBinary),
    Column("aborted", Boolean, nullable=False, server_default="0"),
    text("source"),
    at(),
    Column("pieces", Key),  # where its body is kept in pieces (see `message_pieces`)
    # the user whom the request named, where the memory is an agent's own
    Column("said_by", Words),
    Index("ix_messages_conversation", "conversation", "id"),
    Index("ix_messages_scope_id", "scope_id", "created_at"),
)
_PARTIAL.append((Index("ix_messages_pieces", messages.c.pieces), "pieces IS NOT NULL"))
_PARTIAL.append((Index("ix_messages_said_by", messages.c.said_by), "said_by IS NOT NULL"))

message_pieces = Table(
    "message_pieces",
    metadata,
    Column("body", Key, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    scope_column(),
    text("data"),
    Index("ix_message_pieces_scope_id", "scope_id"),
)

# Whether a model calls the memory tools that it is offered, over all users (see
# `memory.session.model_records`).
model_records = Table(
    "model_records",
    metadata,
    Column("model", Words, primary_key=True),
    Column("offered", Integer, nullable=False),
    Column("called", Integer, nullable=False),
    Column("silent", Integer, nullable=False),
    Column("updated_at", Float, nullable=False),
)

# How far something has come, by its name. messages: the row key up to which messages are in the
# search index, which costs more than all else of a turn and is written behind it.
marks = Table(
    "marks",
    metadata,
    Column("name", short(64), primary_key=True),
    Column("upto", Key, nullable=False),
)

# Facts about the database itself. secret: a fingerprint of the secret that its memory is keyed by.
# readable_by: the oldest version that may serve it, if not its own. ticket ...: a session.
meta = Table(
    "meta",
    metadata,
    Column("name", short(64), primary_key=True),
    text("value"),
)

passages = Table(
    "passages",
    metadata,
    key(),
    Column("public_id", short(64), nullable=False, unique=True),
    scope_column(),
    Column("node", Key, nullable=False, server_default="0"),
    text("content"),
    text("tags", "[]"),
    text("type", "fact"),
    Column("importance", Float, nullable=False, server_default="0.5"),
    Column("digest", LargeBinary, nullable=False),
    text("actor"),
    at(),
    Column("deleted_at", Float),
    Column("deleted_by", Words),
    Column("superseded_by", short(64)),
    Column("source", short(64)),
    Column("uses", Integer, nullable=False, server_default="0"),
    Column("used_at", Float),
    Column("quote", Words),  # what it was taken from, in the words of its speaker
    Column("speaker", Words),
    Column("written_by", Words),  # the user who had it written, where the memory is an agent's own
    Index("ix_passages_scope_id", "scope_id", "id"),
    Index("ix_passages_digest", "scope_id", "digest"),
)
_PARTIAL.append((Index("ix_passages_written_by", passages.c.written_by), "written_by IS NOT NULL"))

vectors = Table(
    "vectors",
    metadata,
    Column("passage", Key, primary_key=True),
    scope_column(),
    text("model"),
    Column("vector", LargeBinary, nullable=False),
    Index("ix_vectors_scope_id", "scope_id", "model"),
)

message_vectors = Table(
    "message_vectors",
    metadata,
    Column("message", Key, primary_key=True, autoincrement=False),
    scope_column(),
    text("model"),
    Column("vector", LargeBinary, nullable=False),
    Index("ix_message_vectors_scope_id", "scope_id", "model", "message"),
)

summaries = Table(
    "summaries",
    metadata,
    Column("id", Key, primary_key=True),
    scope_column(),
    Column("conversation", Key, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    text("content"),
    Column("count", Integer, nullable=False),
    at(),
    UniqueConstraint("scope_id", "chain"),
)

# By their turn's node, which ends their public id: they need no index of their own. record: a line
# of JSON for each attempt at the turn.
explains = Table("explains", metadata, key(), scope_column(), text("record"), at())

jobs = Table(
    "jobs",
    metadata,
    Column("id", Key, primary_key=True),
    Column("scope_id", Key),
    text("kind"),
    text("payload", "{}"),
    Column("dedupe", Words, unique=True),
    Column("state", short(8), nullable=False, server_default="ready"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("run_at", Float, nullable=False),
    Column("lease_until", Float),
    Column("error", Words),
    at(),
    Column("conversation", Key),
    Index("ix_jobs_conversation", "conversation"),
    Index("ix_jobs_scope_id", "scope_id"),
    Index("ix_jobs_ready", "state", "run_at"),
)

# The four tables below are the application's, which reads and writes them alone and registers
# what an erasure does to them (see application_tables). They stand here because one chain of
# migrations makes every table of the database.
#
# Managed keys made at run time: only the hash is kept. spec: what it may do, as JSON. A revoked row
# stays, so that its name is told.
keys = Table(
    "keys",
    metadata,
    Column("id", short(64), primary_key=True),
    Column("name", Words, nullable=False),
    Column("hash", short(64), nullable=False, unique=True),
    text("tenant"),
    text("spec", "{}"),
    at(),
    Column("revoked_at", Float),
    Index("ix_keys_name", "name"),
)

# What each request used. cost in USD, NULL where a price is unknown; user NULL where nobody was
# named, or was erased since.
usage = Table(
    "usage",
    metadata,
    Column("id", Key, primary_key=True),
    text("request_id"),
    at(),
    text("tenant"),
    Column("user", Words),
    text("key"),
    *(text(name) for name in ("model", "target", "path", "mode")),
    *(
        # not wider: Postgres' sum of larger ones is no integer
        Column(name, Integer, nullable=False, server_default="0")
        for name in (
            "attempts",
            "rounds",
            "input",
            "cached_input",
            "cache_write",
            "output",
            "reasoning",
            "hidden_input",
            "hidden_output",
        )
    ),
    Column("estimated", Boolean, nullable=False, server_default="0"),
    Column("cost", Float),
    Column("latency_ms", Float, nullable=False),
    Column("first_token_ms", Float),
    Column("status", Integer, nullable=False),
    *(Column(name, Words) for name in ("code", "parent")),
    text("agent"),
    Index("ix_usage_tenant", "tenant", "created_at"),
    Index("ix_usage_key", "key", "created_at"),
    Index("ix_usage_user", "tenant", "user"),
)

# Responses that a provider stores. id: the client's. rounds: the provider's ids, as JSON. pending:
# outputs not sent yet, shown: what the client was shown, echo: its request's members, as JSON.
responses = Table(
    "responses",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("id", Words, primary_key=True),
    Column("user", Words),
    at(),
    text("target"),
    text("model"),
    text("conversation"),
    text("rounds", "[]"),
    text("pending", "[]"),
    Column("shown", Words),
    text("echo", "{}"),
    text("thread"),
    Index("ix_responses_thread", "tenant", "thread"),
    Index("ix_responses_user", "tenant", "user"),
    Index("ix_responses_created_at", "created_at"),
)

# Which response an item is of: a client may send its id alone.
response_items = Table(
    "response_items",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("id", Words, primary_key=True),
    Column("response", Words, nullable=False),
    Index("ix_response_items_response", "tenant", "response"),
)

# Turns as they ended, until they are filed into the tables above (see `journal`). head: of the
# conversation behind this turn, 0 for none. broken: it could not be filed.
journal = Table(
    "journal",
    metadata,
    key(),
    *(Column(name, Key, nullable=False) for name in ("scope_id", "conversation", "head")),
    Column("broken", Boolean, nullable=False, server_default="0"),
    Column("entry", LargeBinary, nullable=False),
    Index("ix_journal_conversation", "conversation", "id", "head"),
)

# On Postgres a row's scope is locked while its rows are written, and an erasure removes it first.
for _table in metadata.tables.values():
    for _constraint in _table.foreign_key_constraints:
        _constraint.ddl_if(dialect="sqlite")

# The search index on SQLite.
FTS = ("messages_fts", "passages_fts", "file_passages_fts")

REVISION = "0029"
# The oldest version whose workers may run beside: an expanding migration leaves it as it is.
READABLE_BY = "0008"
