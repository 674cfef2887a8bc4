"""Tests mirror the sources: a module has a test of its name, or is named here with its tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.test_architecture import FILES, ROOT

# Modules without a test file of their name, by the tests that cover them.
COVERED = {
    # one suite over every implementation of a port
    "contract/test_cooldowns": """
        gateway.routing.cooldowns gateway.routing.redis_cooldowns gateway.redis_client
    """,
    "contract/test_counters": "gateway.limits.counters gateway.limits.redis_counters",
    "contract/test_upstreams": """
        gateway.upstream.base gateway.http.upstream_request gateway.upstream.anthropic
        gateway.upstream.azure gateway.upstream.scripted
    """,
    "contract/test_transports": """
        gateway.upstream.connection_errors gateway.upstream.deadlines
        gateway.upstream.factory gateway.upstream.httpx_transport
        gateway.upstream.tls_trust
    """,
    # a whole gateway over sockets: wiring, lifecycle, HTTP at both ends
    "contract/test_gateway": """
        gateway.app gateway.pipeline gateway.server.exception_handlers
        gateway.server.openapi gateway.server.operation_routes gateway.server.routes
        gateway.state
    """,
    "gateway/server/test_device_memory": """
        memory.management.device_users memory.management.merged_copies
    """,
    "e2e/wire/test_storage_and_start": "gateway.server.lifespan memory.embed.telemetry",
    "e2e/test_workers": """
        memory.session.earlier_attempts memory.stores.sql.turns.node_holders
        memory.stores.sql.turns.turn_rivals memory.stores.sql.turns.turn_rows
    """,
    "e2e/wire/test_shutdown": "gateway.server.uvicorn_server",
    "e2e/wire/test_request_bounds": "gateway.server.http_protocol",
    "e2e/wire/test_request_body": "gateway.http.request_body gateway.http.json_thread",
    "e2e/test_agents": """
        gateway.chat.intake.called_agent gateway.management.agent_schemas
        gateway.management.agents gateway.management.profile_edits
        gateway.management.tenant_proof gateway.routing.agents
        gateway.server.hidden_agents gateway.server.model_routes
        memory.management.agents memory.session.agent_profiles
        memory.session.followed_rows memory.session.speaker_guard
        memory.stores.sql.owners.agent_memories memory.stores.sql.owners.agent_speakers
        memory.stores.sql.rows.agents
    """,
    "e2e/test_rules_over_requests": "memory.session.turn_trace",
    "e2e/test_asks": """
        gateway.chat.intake.reachable_agents gateway.chat.turn.asked_turn
        gateway.tools.agent_tools
    """,
    "e2e/test_turn_exits": "gateway.chat.turn.rule_exits memory.session.turn_exits",
    "e2e/test_tools": """
        gateway.chat.intake.operator_tools gateway.chat.intake.tool_grants
        gateway.chat.turn.target_options
        gateway.config.tools gateway.management.policy_schemas
        memory.management.tool_runs gateway.telemetry.tool_metrics
        gateway.tools.checked_call gateway.tools.kinds gateway.config.file_limits
        gateway.config.tool_entry gateway.tools.kind_factories gateway.tools.own_tools
        gateway.tools.registry gateway.tools.tool_runs gateway.tools.turn_toolbox
        gateway.tools.verdicts gateway.upstream.tool_client memory.session.round_runner
        memory.session.toolbox memory.stores.sql.rows.tool_results
        memory.stores.sql.engine.policy_tables memory.stores.sql.engine.tool_tables
    """,
    "e2e/test_skills": """
        gateway.chat.intake.skill_offer gateway.management.skill_schemas
        gateway.management.skills gateway.tools.skill_tool memory.jobs.distillation
        memory.jobs.skill_answer memory.management.skills
        memory.stores.sql.engine.skill_tables
        memory.stores.sql.rows.skills memory.stores.sql.rows.task_turns
    """,
    "e2e/test_heartbeat": """
        gateway.management.reflections gateway.server.heartbeat memory.jobs.heartbeat
        memory.jobs.rehearsal memory.management.reflections
        memory.stores.sql.rows.reflections
    """,
    "gateway/ui/test_skill_pages": "gateway.ui.reflection_pages",
    "e2e/test_tools_images": "gateway.apis.result_images",
    "e2e/test_search_stand_in": """
        gateway.apis.search.searching_mask gateway.chat.turn.search_stand_in
        gateway.chat.intake.lacking_search
    """,
    "e2e/test_tools_ledger": "memory.session.run_ledger memory.stores.sql.rows.tool_calls",
    "memory/session/test_composer": "memory.session.turn_recall memory.session.turn_tools",
    "gateway/tools/test_sandbox": """
        gateway.tools.bubblewrap_child gateway.tools.bubblewrap_sandbox
        gateway.tools.monty_sandbox gateway.tools.sandbox_runtime
    """,
    "gateway/tools/test_python_tools": "gateway.tools.sandbox_fetch",
    "e2e/test_python_tools": """
        gateway.management.python_tools gateway.tools.tenant_tools
        memory.management.python_tools
    """,
    "memory/stores/sql/rows/test_python_tools": "memory.stores.sql.engine.python_tool_tables",
    "gateway/tools/test_python_source": "gateway.tools.docstrings gateway.tools.python_types",
    "gateway/tools/test_fetch_url": """
        gateway.config.web_tools memory.formats.documents.whole_text
    """,
    "gateway/tools/test_run_code": "gateway.tools.sandboxes gateway.config.python_tools",
    "gateway/tools/test_files": "gateway.tools.file_answers",
    "gateway/management/test_files": "gateway.config.file_tools gateway.management.file_schemas",
    "memory/test_files": """
        memory.management.file_merging memory.stores.sql.transfer.file_copies
        memory.stores.sql.transfer.file_export memory.formats.documents.child
        memory.formats.documents.document memory.formats.documents.extraction
        memory.formats.documents.file_types memory.formats.documents.frames
        memory.formats.documents.line_matching memory.formats.documents.plain_text
        memory.formats.documents.reading
        memory.formats.documents.unreadable memory.jobs.file_cleaning
        memory.jobs.file_reading memory.jobs.file_storing memory.management.files
        memory.retrieval.file_search
        memory.stores.sql.rows.list_block
        memory.stores.sql.rows.file_grams memory.stores.sql.rows.file_passages
        memory.stores.sql.rows.file_removal memory.stores.sql.rows.file_symbols
        memory.stores.sql.engine.file_tables memory.stores.sql.rows.file_uploads
        memory.stores.sql.rows.files memory.stores.sql.rows.index_documents
    """,
    "e2e/test_ruled_turns": "gateway.chat.intake.ruled_calls",
    "e2e/test_approvals": """
        gateway.management.approvals gateway.tools.approval_wait
        memory.management.approvals memory.stores.sql.rows.approvals
        memory.stores.sql.rows.named_rows
    """,
    "e2e/test_inbox": """
        gateway.config.delegation gateway.management.inbox memory.management.inbox
        memory.session.message_delivery memory.session.waiting_messages
        memory.stores.sql.rows.agent_inbox
    """,
    "e2e/test_tool_rules": "gateway.config.tool_rules gateway.management.tool_rules",
    "e2e/test_letta_queue": """
        gateway.letta.agent_queue memory.management.agent_turns
        memory.stores.sql.rows.agent_turns
    """,
    "e2e/test_agent_deletion": "memory.stores.sql.rows.agent_memberships",
    "e2e/test_letta_tools": "gateway.letta.tool_catalog gateway.letta.tools",
    "e2e/test_letta": """
        gateway.letta.agent_tools gateway.letta.agents gateway.letta.block_routes
        gateway.letta.blocks gateway.letta.call gateway.letta.door
        gateway.letta.entrance gateway.letta.errors gateway.letta.file_import
        gateway.letta.files gateway.letta.history gateway.letta.ids gateway.letta.items
        gateway.letta.listed_messages gateway.letta.messages gateway.letta.models
        gateway.letta.paging gateway.letta.passages gateway.letta.paths gateway.letta.project
        gateway.letta.profile gateway.letta.reply gateway.letta.route gateway.letta.sent
        gateway.letta.server gateway.letta.state
        gateway.letta.tool_rules
        memory.management.exchanges memory.stores.sql.turns.exchanges
    """,
    "e2e/test_workbench": """
        gateway.chat.turn.inner_turn gateway.management.agent_export
        gateway.management.agent_import gateway.routing.inner_call
        gateway.ui.agent_files gateway.ui.agent_form gateway.ui.agent_trial
        gateway.ui.agents gateway.ui.trial_chat
    """,
    "e2e/test_shared_blocks": """
        gateway.management.block_routes gateway.management.shared_blocks
        gateway.management.shared_members gateway.management.shared_schemas
        memory.management.shared_blocks memory.management.shared_undo
        memory.session.shared_changes memory.stores.sql.rows.shared_blocks
        memory.stores.sql.owners.shared_erasure memory.stores.sql.rows.shared_members
        memory.stores.sql.rows.visible_blocks
    """,
    "e2e/test_mcp_door": """
        gateway.cli.mcp gateway.mcp.caller gateway.mcp.endpoint gateway.mcp.entrance
        gateway.mcp.naming gateway.mcp.errors gateway.mcp.greeting gateway.mcp.methods
        gateway.mcp.prompts
        gateway.mcp.resources gateway.mcp.stdio gateway.mcp.tools
        memory.session.call_recording memory.session.memory_caller
        memory.management.offered_tools memory.management.shown_memory
        memory.management.tool_calls memory.session.caller_layers
        memory.stores.sql.rows.call_records memory.stores.sql.rows.recent_changes
    """,
    "e2e/test_mcp_tools": "gateway.management.tool_entries gateway.management.tool_list",
    "gateway/tools/test_mcp_tool": """
        gateway.config.mcp_tools gateway.storage.tool_pins gateway.tools.mcp_client
        gateway.tools.mcp_results
    """,
    "e2e/test_teams": """
        gateway.management.layer_access gateway.management.layer_passages
        gateway.management.layer_routes gateway.management.team_schemas
        gateway.management.teams memory.core.layers memory.management.layers
        memory.stores.sql.rows.layer_removal memory.stores.sql.rows.layers
        memory.stores.sql.rows.read_layers memory.stores.sql.engine.team_tables
        memory.stores.sql.rows.teams
    """,
    "e2e/test_projects": """
        gateway.auth.project_names gateway.chat.intake.named_project
        gateway.management.projects memory.session.snapshot_query
        memory.stores.sql.rows.general_memory memory.stores.sql.rows.project_rows
    """,
    "gateway/apis/chat/test_interceptor": "gateway.apis.chat.choice_state",
    "e2e/test_policies": """
        gateway.chat.intake.memory_mode gateway.management.policies
        memory.management.policies
        memory.stores.sql.rows.policies
    """,
    "e2e/wire/test_clocks": "gateway.chat.turn.opening",
    "e2e/wire/test_other_endpoints": "gateway.server.middleware",
    "e2e/wire/test_other_relay": "gateway.relay.endpoint",
    "e2e/test_block_space": """
        memory.stores.sql.transfer.import_space memory.stores.sql.transfer.import_steps
    """,
    "e2e/bridges/test_compaction": """
        gateway.chat.stored.compacted_answer gateway.chat.stored.compaction_trigger
        gateway.chat.stored.compactor
    """,
    "e2e/bridges/test_item_references": "gateway.upstream.refused_references",
    "e2e/wire/test_unread_answers": "gateway.chat.turn.unread_answer",
    "e2e/test_fence": "gateway.relay.path_policy",
    "e2e/wire/test_targets": """
        gateway.chat.intake.capabilities gateway.models.facts gateway.routing.router
    """,
    "e2e/wire/test_shares": "gateway.routing.account_shares",
    "e2e/wire/test_places": "gateway.routing.concurrency",
    "e2e/wire/test_upstream_faults": "gateway.chat.turn.round_sender gateway.cli.upstream_check",
    "e2e/wire/test_errors": "gateway.errors gateway.upstream.probe",
    "e2e/test_turns": """
        gateway.chat.turn.endpoint gateway.chat.intake.memory_request
        gateway.chat.turn.producer memory.service gateway.apis.base
        gateway.apis.round_result
    """,
    "e2e/wire/test_memory_faults": "gateway.chat.turn.degraded memory.errors",
    "gateway/chat/intake/test_request": "gateway.chat.intake.request_headers",
    "gateway/chat/turn/test_turn": "gateway.apis.chat.hidden_exchange",
    "gateway/http/test_request_weight": "gateway.chat.intake.body",
    "e2e/responses/test_turn": """
        gateway.apis.responses.response_items
        gateway.apis.responses.response_events gateway.apis.responses.responses_reply
        gateway.apis.envelope gateway.apis.envelope_events gateway.apis.early_events
        gateway.apis.native
    """,
    "e2e/responses/test_kept": "gateway.chat.stored.kept_responses",
    "e2e/responses/test_conversations": """
        gateway.chat.stored.conversation_body gateway.chat.stored.conversation_endpoint
        gateway.chat.stored.linked_request gateway.server.conversation_routes
    """,
    "e2e/responses/test_background_booking": """
        gateway.chat.stored.background_booking gateway.chat.turn.nameless_relay
        gateway.storage.bookings
    """,
    "e2e/responses/test_owners": """
        gateway.chat.intake.stored_names gateway.chat.intake.relayed_names
        gateway.server.stored_routes gateway.chat.stored.stored_answer
        gateway.chat.intake.owned_responses gateway.chat.intake.request_link
        gateway.chat.intake.whole_body
        gateway.storage.kept_sizes
    """,
    "e2e/responses/test_stored": """
        gateway.chat.stored.stored_endpoint gateway.chat.stored.stored_passthrough
        gateway.chat.stored.stored_stream gateway.chat.stored.provider_call
        gateway.chat.stored.response_keeper gateway.chat.stored.stored_responses
        gateway.storage.responses gateway.chat.stored_registration
        gateway.server.stored_registration gateway.chat.turn.relayed_turn
    """,
    "gateway/apis/translation/test_responses_request_to_chat": """
        gateway.apis.translation.chat_tools gateway.wire.losses
        gateway.apis.translation.responses_items_to_chat
    """,
    "gateway/apis/translation/test_chat_reply_parts": """
        gateway.apis.translation.messages_reply_from_chat
        gateway.apis.translation.reply_stream
        gateway.apis.translation.responses_reply_from_chat
    """,
    "gateway/upstream/test_bridged": "gateway.upstream.bridge_translation",
    "e2e/bridges/test_chat_at_responses": "gateway.upstream.responses",
    "gateway/apis/translation/test_responses_request_from_chat": """
        gateway.apis.translation.responses_items_from_chat
    """,
    "e2e/messages/test_count": "gateway.chat.turn.count gateway.apis.messages.message_blocks",
    "e2e/messages/test_faults": """
        gateway.apis.messages.messages_errors gateway.apis.messages.messages_reply
    """,
    "e2e/messages/test_requests": "gateway.apis.messages.messages_format gateway.chat.turn.passing",
    "e2e/test_large_messages": "memory.stores.sql.rows.message_pieces",
    "e2e/test_thinking_models": """
        gateway.memory_adapters.model_answer gateway.models.thinking
        gateway.wire.token_limits
    """,
    "e2e/test_background": "gateway.memory_adapters.background_model memory.jobs.background_model",
    "e2e/test_fit": "gateway.memory_adapters.summarizer memory.session.kept_summaries",
    "e2e/test_recall": """
        gateway.memory_adapters.embedder gateway.memory_adapters.semantic_search
    """,
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
        gateway.config.telemetry_settings gateway.config.validation
    """,
    "gateway/demo_model/test_engine": """
        gateway.demo_model.request_view gateway.demo_model.schema_values
        gateway.demo_model.sentences gateway.demo_model.file_questions
    """,
    "gateway/demo_model/test_server": "gateway.demo_model.responses",
    "gateway/management/test_router": """
        gateway.management.blocks gateway.management.context
        gateway.management.conversations gateway.management.key_schemas
        gateway.management.passages gateway.management.query_params
        gateway.management.schemas gateway.management.sent_bodies gateway.management.users
    """,
    "gateway/management/test_stats": """
        gateway.management.turns memory.management.activity
        memory.stores.sql.rows.activity
    """,
    "gateway/ui/test_router": """
        gateway.ui.blocks gateway.ui.dropped gateway.ui.operations gateway.ui.passages
        gateway.ui.people gateway.ui.requests
    """,
    "e2e/test_commands": """
        gateway.chat.turn.command_answer gateway.chat.turn.commands
        gateway.upstream.local_answer
    """,
    "e2e/test_books": "gateway.management.usage",
    "e2e/test_erase_again": """
        gateway.cli.erase_again gateway.storage.owner_names
        memory.stores.sql.owners.erasure_log
    """,
    "e2e/test_copy": "gateway.cli.db_copy memory.stores.sql.transfer.copy_to_postgres",
    "e2e/test_pgbouncer": "memory.stores.sql.engine.postgres.postgres_checks",
    "e2e/test_keys": "gateway.cli.keys gateway.management.keys",
    "gateway/cli/test_operations": """
        gateway.cli.fetch gateway.cli.finding gateway.cli.index gateway.cli.jobs
        gateway.management.jobs gateway.models.tokenizers
        memory.stores.sql.rows.job_admin
    """,
    "gateway/server/test_log_output": "gateway.http.access_log",
    "gateway/upstream/test_http1": "gateway.upstream.dialer",
    "gateway/apis/translation/test_messages_turns_from_chat": """
        gateway.apis.translation.messages_request_from_chat
        gateway.apis.translation.messages_reply_to_chat
    """,
    "memory/core/test_tool_rules": "memory.core.rule_kinds memory.core.tool_trace",
    "memory/context/test_compaction": "memory.context.fitted",
    "memory/embed/test_onnx": "memory.embed.base",
    "e2e/test_extraction": "memory.jobs.extraction_input memory.stores.sql.turns.unread_turns",
    "memory/jobs/test_extraction": "memory.jobs.fact_prompt",
    "e2e/test_dropped": """
        gateway.management.dropped memory.jobs.fact_writer memory.management.dropped
        memory.search.drop_reasons memory.stores.sql.rows.job_records
    """,
    "memory/jobs/test_maintenance_of_models": "memory.jobs.maintenance",
    "memory/context/test_summary": "memory.jobs.summarization",
    "memory/management/test_users": """
        memory.export_format memory.management.reading memory.management.renaming
        memory.stores.sql.transfer.exporter memory.stores.sql.owners.rename_owner
        memory.stores.sql.rows.scope_probe memory.stores.sql.engine.sqlite.sqlite_probe
    """,
    "memory/management/test_merging": "memory.stores.sql.owners.merge_owner",
    "gateway/ui/test_moves": "gateway.management.merges",
    "gateway/ui/test_shared_pages": """
        gateway.ui.inbox_pages gateway.ui.layer_pages gateway.ui.share_pages
        gateway.ui.shared_members
    """,
    "gateway/ui/test_tool_pages": """
        gateway.ui.form_request gateway.ui.navigation gateway.ui.tool_servers
        gateway.ui.tool_sources
    """,
    "memory/session/test_model_records": "memory.stores.sql.rows.model_records",
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
    "memory/search/test_dedup": "memory.search.languages.fillers memory.search.languages.negations",
    "memory/search/test_irregular": "memory.search.languages.irregular_words",
    "memory/search/test_matters": "memory.search.languages.matters",
    "e2e/test_provenance": """
        memory.jobs.fact_origin memory.jobs.human_block
        memory.stores.sql.turns.replaced_turns
    """,
    "memory/search/test_small_talk": "memory.search.languages.acknowledgements",
    "memory/jobs/test_evidence": """
        memory.search.content_words memory.search.folding
        memory.search.languages.function_words
    """,
    # rows, over a real database: a transaction is tested by what it leaves
    "memory/stores/sql/engine/sqlite/test_fts": """
        memory.jobs.reindex memory.retrieval.indexer
        memory.stores.sql.index.message_index
        memory.stores.sql.engine.sqlite.sqlite_index
    """,
    "memory/stores/sql/turns/test_journal": "memory.stores.sql.turns.journal_filer",
    "memory/stores/sql/test_migrations": """
        memory.stores.sql.engine.agent_tables memory.stores.sql.engine.approval_tables
        memory.stores.sql.engine.columns memory.stores.sql.engine.inbox_tables
        memory.stores.sql.engine.call_tables
        memory.stores.sql.engine.postgres.postgres_maintenance
        memory.stores.sql.engine.record_tables memory.stores.sql.engine.schema
        memory.stores.sql.engine.shared_tables
        memory.stores.sql.engine.sqlite.sqlite_maintenance
        memory.stores.sql.engine.upgrade memory.stores.sql.engine.vacuum
    """,
    "memory/stores/sql/engine/sqlite/test_sqlite": """
        memory.stores.sql.engine.connections memory.stores.sql.engine.database
        memory.stores.sql.engine.sql_driver
        memory.stores.sql.engine.statements
    """,
    "memory/stores/sql/engine/postgres/test_postgres": """
        memory.stores.sql.engine.postgres.postgres_probe
        memory.stores.sql.engine.postgres.postgres_schema
        memory.stores.sql.engine.postgres.postgres_driver
        memory.stores.sql.engine.postgres.postgres_statements
        memory.stores.sql.engine.write_lock
    """,
    "memory/stores/sql/engine/postgres/test_postgres_lease": "memory.stores.sql.engine.preparation",
    "gateway/management/test_bulk_laws": """
        memory.stores.sql.transfer.import_manifest memory.stores.sql.transfer.importer
        memory.stores.sql.transfer.transcripts
    """,
    "gateway/storage/test_usage": "memory.stores.sql.engine.application_tables",
    "memory/management/test_blocks": """
        memory.stores.sql.rows.blocks memory.stores.sql.rows.management_context
    """,
    "memory/management/test_conversations": "memory.stores.sql.rows.conversations",
    "memory/management/test_passages": """
        memory.stores.sql.rows.passage_lifecycle memory.stores.sql.rows.passages
    """,
    "memory/jobs/test_worker": "memory.stores.sql.rows.jobs",
    "memory/retrieval/test_retriever": "memory.stores.sql.rows.messages",
    "e2e/test_erasure": "memory.stores.sql.owners.erasure memory.stores.sql.owners.row_removal",
    "e2e/test_chores_killed": "memory.stores.sql.owners.retention memory.stores.sql.rows.scopes",
    "e2e/test_turns_on_postgres": """
        memory.session.turn_shortcut memory.stores.sql.turns.foreseen
        memory.stores.sql.engine.shortcut memory.stores.sql.turns.turn_prefetch
        memory.stores.sql.turns.turn_statement
    """,
    "e2e/test_conversations": """
        memory.stores.sql.turns.turn_reader memory.stores.sql.turns.turn_writer
    """,
    "e2e/test_tasks": "memory.stores.sql.rows.openings",
    # commands, run as a user runs them
    "gateway/cli/test_main": """
        gateway.__main__ gateway.cli.chat gateway.cli.client gateway.cli.config
        gateway.cli.demo_tools gateway.cli.embedded gateway.cli.lockfile
        gateway.cli.options gateway.cli.serve
    """,
    "gateway/cli/test_ui": "gateway.cli.top",
    "gateway/cli/test_users": """
        gateway.cli.db gateway.cli.tenants memory.stores.sql.transfer.backup
    """,
}
LISTED = Counter(name for names in COVERED.values() for name in names.split())


def test_file(name: str) -> Path:
    *package, module = name.split(".")
    return ROOT.joinpath("tests", *package, f"test_{module}.py")


test_file.__test__ = False
MODULES = [n for n, path in FILES.items() if path.name != "__init__.py"]


def test_a_module_has_a_test_of_its_name_or_is_listed_with_its_tests():
    missing = [n for n in MODULES if n not in LISTED and not test_file(n).exists()]
    assert missing == [], "write a test of that name, or list the module"


def test_the_list_names_each_module_once_and_none_that_has_its_own_test():
    assert [n for n, times in LISTED.items() if times > 1] == []
    assert [n for n in LISTED if n not in FILES or test_file(n).exists()] == []


def test_the_listed_tests_exist():
    assert [w for w in COVERED if not (ROOT / "tests" / f"{w}.py").exists()] == []
