"""Tests mirror the sources: a module has a test of its name, or is named here with its tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.test_architecture import FILES, ROOT

# Modules without a test file of their name, by the tests that cover them.
COVERED = {
    # one suite over every implementation of a port
    "contract/test_cooldowns": """
        gateway.routing.cooldowns gateway.routing.redis_cooldowns gateway.redis_client
    """,
    "contract/test_counters": "gateway.limits.counters gateway.limits.redis_counters",
    "contract/test_upstreams": """
        gateway.upstream.base gateway.upstream.anthropic gateway.upstream.azure
        gateway.upstream.scripted gateway.upstream.translated_body
    """,
    "contract/test_wires": """
        gateway.upstream.connection_errors gateway.upstream.deadlines gateway.upstream.factory
        gateway.upstream.httpx_transport gateway.upstream.tls_trust
    """,
    # a whole gateway over sockets: wiring, lifecycle, HTTP at both ends
    "contract/test_gateway": """
        gateway.app gateway.pipeline gateway.server.exception_handlers gateway.server.openapi
        gateway.server.operation_routes gateway.server.routes gateway.state
    """,
    "gateway/server/test_device_memory": """
        memory.management.device_users memory.management.merged_copies
    """,
    "e2e/wire/test_storage_and_start": "gateway.server.lifespan memory.embed.telemetry",
    "e2e/test_workers": """
        memory.session.earlier_attempts memory.stores.sql.node_holders
        memory.stores.sql.turn_rivals memory.stores.sql.turn_rows
    """,
    "e2e/wire/test_shutdown": "gateway.server.uvicorn_server",
    "e2e/wire/test_request_bounds": "gateway.server.http_protocol",
    "e2e/wire/test_request_body": """
        gateway.http.request_body gateway.http.json_thread
    """,
    "e2e/wire/test_headers": "gateway.http.response",
    "e2e/test_agents": """
        gateway.chat.called_agent gateway.management.agent_schemas gateway.management.agents
        gateway.management.profile_edits gateway.management.tenant_proof gateway.routing.agents
        gateway.server.hidden_agents gateway.server.model_routes memory.management.agents
        memory.session.agent_profiles memory.session.followed_rows memory.session.speaker_guard
        memory.stores.sql.agent_memories
        memory.stores.sql.agent_speakers memory.stores.sql.agents
    """,
    "e2e/test_letta": """
        gateway.letta.agent_tools gateway.letta.agents gateway.letta.block_routes
        gateway.letta.blocks gateway.letta.call gateway.letta.door gateway.letta.entrance
        gateway.letta.errors gateway.letta.file_import gateway.letta.files gateway.letta.history
        gateway.letta.ids
        gateway.letta.items gateway.letta.listed_messages gateway.letta.messages
        gateway.letta.models gateway.letta.paging gateway.letta.passages gateway.letta.paths
        gateway.letta.profile gateway.letta.reply gateway.letta.route gateway.letta.sent
        gateway.letta.server gateway.letta.state gateway.letta.tools memory.management.exchanges
        memory.stores.sql.exchanges
    """,
    "e2e/test_workbench": """
        gateway.chat.inner_turn gateway.management.agent_export
        gateway.management.agent_import gateway.routing.inner_call
        gateway.ui.agent_files gateway.ui.agent_form
        gateway.ui.agent_trial gateway.ui.agents gateway.ui.trial_chat
    """,
    "e2e/test_shared_blocks": """
        gateway.management.block_routes
        gateway.management.shared_blocks gateway.management.shared_members
        gateway.management.shared_schemas memory.management.shared_blocks
        memory.management.shared_undo
        memory.session.shared_changes memory.stores.sql.shared_blocks
        memory.stores.sql.shared_erasure memory.stores.sql.shared_members
        memory.stores.sql.visible_blocks
    """,
    "e2e/test_teams": """
        gateway.management.layer_access gateway.management.layer_passages
        gateway.management.layer_routes gateway.management.team_schemas gateway.management.teams
        memory.core.layers memory.management.layers memory.stores.sql.layer_removal
        memory.stores.sql.layers memory.stores.sql.read_layers memory.stores.sql.team_tables
        memory.stores.sql.teams
    """,
    "e2e/test_projects": """
        gateway.auth.project_names gateway.chat.named_project gateway.management.projects
        memory.session.snapshot_query memory.stores.sql.general_memory
        memory.stores.sql.project_rows
    """,
    "gateway/wires/chat/test_interceptor": "gateway.wires.chat.choice_state",
    "e2e/test_policies": """
        gateway.chat.memory_mode gateway.management.policies gateway.management.policy_schemas
        memory.management.policies
        memory.stores.sql.policies
    """,
    "e2e/wire/test_clocks": "gateway.chat.opening gateway.chat.round_stream",
    "e2e/wire/test_other_endpoints": "gateway.server.middleware",
    "e2e/wire/test_other_relay": """
        gateway.relay.endpoint gateway.relay.passthrough
    """,
    "e2e/test_block_space": "memory.stores.sql.import_space",
    "e2e/bridges/test_compaction": """
        gateway.chat.compacted_answer gateway.chat.compaction_trigger gateway.chat.compactor
    """,
    "e2e/bridges/test_item_references": "gateway.upstream.refused_references",
    "e2e/wire/test_unread_answers": "gateway.chat.unread_answer",
    "e2e/test_fence": "gateway.relay.path_policy",
    "e2e/wire/test_stream_endings": "gateway.routing.replies",
    "e2e/wire/test_targets": """
        gateway.chat.capabilities gateway.models.facts gateway.routing.router
    """,
    "e2e/wire/test_shares": "gateway.routing.account_shares",
    "e2e/wire/test_places": "gateway.routing.concurrency",
    "e2e/wire/test_upstream_faults": "gateway.chat.round_sender gateway.cli.upstream_check",
    "e2e/wire/test_errors": "gateway.errors gateway.upstream.probe",
    "e2e/test_turns": """
        gateway.chat.endpoint gateway.chat.memory_request gateway.chat.producer memory.service
        gateway.wires.base gateway.wires.chat.format gateway.wires.round_result
    """,
    "e2e/wire/test_memory_faults": "gateway.chat.degraded memory.errors",
    "gateway/chat/test_request": "gateway.chat.request_headers",
    "gateway/chat/test_turn": "gateway.wires.chat.hidden_exchange",
    "gateway/http/test_request_weight": "gateway.chat.body",
    "e2e/responses/test_turn": """
        gateway.wires.responses.format gateway.wires.responses.items
        gateway.wires.responses.events gateway.wires.responses.reply gateway.wires.envelope
        gateway.wires.masked_parts gateway.wires.native
    """,
    "e2e/responses/test_kept": "gateway.chat.kept_responses",
    "e2e/responses/test_conversations": """
        gateway.chat.conversation_body gateway.chat.conversation_endpoint
        gateway.chat.kept_conversations gateway.server.conversation_routes
    """,
    "e2e/responses/test_background_booking": """
        gateway.chat.background_booking gateway.chat.nameless_relay gateway.storage.bookings
    """,
    "e2e/responses/test_owners": """
        gateway.chat.stored_names gateway.chat.relayed_names gateway.server.stored_routes
        gateway.chat.stored_answer gateway.storage.kept_sizes
    """,
    "e2e/responses/test_stored": """
        gateway.chat.stored_endpoint gateway.chat.stored_passthrough gateway.chat.stored_stream
        gateway.chat.provider_call gateway.chat.response_keeper
        gateway.chat.stored_responses gateway.storage.responses
    """,
    "gateway/wire/bridge/test_responses_request": """
        gateway.wire.bridge.chat_tools
        gateway.wire.bridge.losses gateway.wire.bridge.responses_items
    """,
    "gateway/wire/bridge/test_chat_reply": """
        gateway.wire.bridge.messages_reply gateway.wire.bridge.reply_stream
        gateway.wire.bridge.responses_reply
    """,
    "gateway/upstream/test_bridged": "gateway.upstream.bridge_translation",
    "e2e/bridges/test_chat_at_responses": "gateway.upstream.responses",
    "gateway/wire/responses/test_request": "gateway.wire.responses.items",
    "e2e/messages/test_count": "gateway.chat.count gateway.wires.messages.blocks",
    "e2e/messages/test_faults": "gateway.wires.messages.errors gateway.wires.messages.reply",
    "e2e/messages/test_requests": "gateway.wires.messages.format gateway.chat.passing",
    "e2e/test_large_messages": "memory.stores.sql.message_pieces",
    "e2e/test_thinking_models": """
        gateway.memory_adapters.model_answer gateway.models.thinking gateway.upstream.token_limits
    """,
    "e2e/test_background": "gateway.memory_adapters.background_model memory.jobs.background_model",
    "e2e/test_fit": "gateway.memory_adapters.summarizer memory.session.kept_summaries",
    "e2e/test_recall": "gateway.memory_adapters.embedder",
    "e2e/test_reflection": "memory.jobs.reflection",
    # one test drives several modules of its package
    "gateway/test_accounting": "gateway.routing.caller gateway.usage.meter",
    "gateway/test_caches": """
        gateway.auth.credential_cache gateway.server.router_caches memory.cache
        memory.session.conversation_cache
    """,
    "gateway/auth/test_key_store": "gateway.config.keys gateway.storage.key_probe",
    "gateway/config/test_settings": """
        gateway.config.loader gateway.config.memory_settings gateway.config.section
        gateway.config.telemetry_settings
        gateway.config.validation
    """,
    "gateway/demo_model/test_engine": """
        gateway.demo_model.request_view gateway.demo_model.schema_values
        gateway.demo_model.sentences
    """,
    "gateway/demo_model/test_server": "gateway.demo_model.responses",
    "gateway/management/test_router": """
        gateway.management.blocks gateway.management.context gateway.management.conversations
        gateway.management.key_schemas gateway.management.passages
        gateway.management.query_params gateway.management.schemas
        gateway.management.users
    """,
    "gateway/management/test_stats": """
        gateway.management.turns memory.management.activity memory.stores.sql.activity
    """,
    "gateway/ui/test_router": """
        gateway.ui.blocks gateway.ui.dropped
        gateway.ui.operations gateway.ui.passages gateway.ui.people gateway.ui.requests
    """,
    "e2e/test_commands": """
        gateway.chat.command_answer gateway.chat.commands gateway.upstream.local_answer
    """,
    "e2e/test_books": "gateway.management.usage",
    "e2e/test_erase_again": """
        gateway.cli.erase_again gateway.storage.owner_names memory.stores.sql.erasure_log
    """,
    "e2e/test_copy": "gateway.cli.db_copy memory.stores.sql.copy_to_postgres",
    "e2e/test_pgbouncer": "memory.stores.sql.postgres_checks",
    "e2e/test_keys": "gateway.cli.keys gateway.management.keys",
    "gateway/cli/test_operations": """
        gateway.cli.fetch gateway.cli.finding gateway.cli.index
        gateway.cli.jobs gateway.management.jobs
        gateway.models.tokenizers memory.stores.sql.job_admin
    """,
    "gateway/server/test_log_output": "gateway.http.access_log",
    "gateway/upstream/test_http1": "gateway.upstream.dialer",
    "gateway/wire/anthropic/test_messages": """
        gateway.wire.anthropic.request gateway.wire.anthropic.response
    """,
    "gateway/wire/test_chat": "gateway.wire.merge",
    "memory/context/test_compaction": "memory.context.fitted",
    "memory/embed/test_onnx": "memory.embed.base",
    "e2e/test_extraction": "memory.jobs.extraction_input memory.stores.sql.unread_turns",
    "memory/jobs/test_extraction": "memory.jobs.fact_prompt",
    "e2e/test_dropped": """
        gateway.management.dropped memory.jobs.fact_writer memory.management.dropped
        memory.search.drop_reasons memory.stores.sql.job_records
    """,
    "memory/jobs/test_maintenance_of_models": "memory.jobs.maintenance",
    "memory/context/test_summary": "memory.jobs.summarization",
    "memory/management/test_users": """
        memory.export_format memory.management.reading memory.management.renaming
        memory.stores.sql.exporter memory.stores.sql.rename_owner memory.stores.sql.scope_probe
        memory.stores.sql.sqlite_probe
    """,
    "memory/management/test_merging": "memory.stores.sql.merge_owner",
    "gateway/ui/test_moves": "gateway.management.merges",
    "memory/session/test_model_records": "memory.stores.sql.model_records",
    "memory/session/test_recorder": """
        memory.session.context memory.session.request memory.session.turn_record
        memory.session.turn_store
    """,
    "memory/stores/test_chroma": "memory.stores.chroma_child",
    "memory/search/test_ranking": "memory.search.similarity memory.search.vocabulary",
    "memory/search/test_own_words": """
        memory.search.languages.questions memory.search.languages.requests
        memory.search.languages.self_words
    """,
    "memory/search/test_dedup": "memory.search.languages.fillers",
    "memory/search/test_irregular": "memory.search.languages.irregular_words",
    "memory/search/test_matters": "memory.search.languages.matters",
    "e2e/test_provenance": """
        memory.jobs.fact_origin memory.jobs.human_block memory.stores.sql.replaced_turns
    """,
    "memory/search/test_small_talk": "memory.search.languages.acknowledgements",
    "memory/jobs/test_evidence": """
        memory.search.content_words memory.search.folding memory.search.languages.function_words
    """,
    # rows, over a real database: a transaction is tested by what it leaves
    "memory/stores/sql/test_fts": """
        memory.jobs.reindex memory.retrieval.indexer memory.stores.sql.message_index
        memory.stores.sql.sqlite_index
    """,
    "memory/stores/sql/test_journal": "memory.stores.sql.journal_filer",
    "memory/stores/sql/test_migrations": """
        memory.stores.sql.agent_tables memory.stores.sql.columns
        memory.stores.sql.postgres_maintenance
        memory.stores.sql.record_tables memory.stores.sql.schema
        memory.stores.sql.shared_tables memory.stores.sql.sqlite_maintenance
        memory.stores.sql.upgrade memory.stores.sql.vacuum
    """,
    "memory/stores/sql/test_sqlite": """
        memory.stores.sql.connections memory.stores.sql.database memory.stores.sql.sql_driver
        memory.stores.sql.sqlite_driver memory.stores.sql.statements
    """,
    "memory/stores/sql/test_postgres": """
        memory.stores.sql.postgres_probe memory.stores.sql.postgres_schema
        memory.stores.sql.postgres_driver memory.stores.sql.postgres_statements
        memory.stores.sql.write_lock
    """,
    "memory/stores/sql/test_postgres_lease": "memory.stores.sql.preparation",
    "gateway/management/test_bulk_laws": """
        memory.stores.sql.import_manifest memory.stores.sql.importer memory.stores.sql.transcripts
    """,
    "gateway/storage/test_usage": "memory.stores.sql.application_tables",
    "memory/management/test_blocks": """
        memory.stores.sql.blocks memory.stores.sql.management_context
    """,
    "memory/management/test_conversations": "memory.stores.sql.conversations",
    "memory/management/test_passages": """
        memory.stores.sql.passage_lifecycle memory.stores.sql.passages
    """,
    "memory/jobs/test_worker": "memory.stores.sql.jobs",
    "memory/retrieval/test_retriever": "memory.stores.sql.messages",
    "e2e/test_erasure": "memory.stores.sql.erasure memory.stores.sql.row_removal",
    "e2e/test_chores_killed": "memory.stores.sql.retention memory.stores.sql.scopes",
    "e2e/test_turns_on_postgres": """
        memory.session.turn_shortcut memory.stores.sql.foreseen memory.stores.sql.shortcut
        memory.stores.sql.turn_prefetch memory.stores.sql.turn_statement
    """,
    "e2e/test_conversations": "memory.stores.sql.turn_reader memory.stores.sql.turn_writer",
    "e2e/test_tasks": "memory.stores.sql.openings",
    # commands, run as a user runs them
    "gateway/cli/test_main": """
        gateway.__main__ gateway.cli.chat gateway.cli.client gateway.cli.config
        gateway.cli.embedded gateway.cli.formatting gateway.cli.lockfile gateway.cli.options
        gateway.cli.serve
    """,
    "gateway/cli/test_ui": "gateway.cli.top",
    "gateway/cli/test_users": "gateway.cli.db gateway.cli.tenants memory.stores.sql.backup",
}
LISTED = Counter(name for names in COVERED.values() for name in names.split())


def test_file(name: str) -> Path:
    *package, module = name.split(".")
    return ROOT.joinpath("tests", *package, f"test_{module}.py")


test_file.__test__ = False
MODULES = [n for n, path in FILES.items() if path.name != "__init__.py"]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_a_test_of_its_name_or_is_listed_with_its_tests(name):
    assert test_file(name).exists() or name in LISTED, f"write {test_file(name)}, or list {name}"


def test_the_list_names_each_module_once_and_none_that_has_its_own_test():
    assert [n for n, times in LISTED.items() if times > 1] == []
    assert [n for n in LISTED if n not in FILES or test_file(n).exists()] == []


@pytest.mark.parametrize("where", COVERED)
def test_the_listed_tests_exist(where):
    assert (ROOT / "tests" / f"{where}.py").exists()
