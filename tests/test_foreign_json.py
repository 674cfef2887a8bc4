"""JSON of others is decoded in few places, all of which weigh it first.

msgspec and json hold the interpreter while they decode, also in a thread: an object of three
million members held everybody for three seconds. So what a client, a server or a file says goes
through `gateway.wire.chat.decode` or `memory.conversation.foreign_json`, which refuse what would
take long, and each other place that decodes says here why its bytes are few, or our own.
"""

from __future__ import annotations

import ast

from tests.test_architecture import TREES

DECODERS = ("decode", "Decoder", "loads", "load", "JSONDecoder", "raw_decode")
MODULES = ("json", "msgspec.json", "orjson", "simplejson", "ujson")
OWN_ROWS = "rows of our own store, which were weighed when they were written"
OWN_FILES = "a file of our own"
PLACES = {
    # The doors.
    "gateway.wire.chat": "the door of the gateway: it weighs what it decodes",
    "memory.conversation.foreign_json": "the door of the memory: it weighs what it decodes",
    "gateway.wire.json_members": "single values of at most 64 KiB",
    # Weighed by whoever calls.
    "gateway.http.parse_cache": "splits a body into raw members after `check_values`",
    "gateway.http.request_weight": "skips all but twelve members of at most 64 KiB",
    "gateway.wire.model_field": "weighs, or skips all but one member of at most 8 MiB",
    "gateway.wire.json_slices": "slices of at most 256 KiB, of a text that was weighed",
    "gateway.wire.long_strings": "one piece of a string, of at most 512 KiB",
    "gateway.wire.fast_path": "one string of an event of at most 64 KiB",
    "gateway.apis.messages.messages_reply": "skips all but three members of a light event",
    "gateway.apis.responses.responses_reply": "skips all but five members of a light event",
    "gateway.management.schemas": "counts marks before, and splits messages raw; cursors are short",
    "memory.conversation.history": "spans of a body that was weighed",
    "memory.conversation.json_spans": "elements of a body that was weighed",
    "memory.export_format": "one line, whose values are counted before",
    "memory.jobs.fact_answer": "an answer of at most 40,000 characters",
    "gateway.tools.mcp_messages": "a message of at most 8 MiB, whose values are counted before",
    "gateway.tools.tenant_tools": OWN_ROWS,
    "gateway.tools.bubblewrap_child": "a process of its own, which serves one run",
    # Short by another limit.
    "gateway.errors": "a refusal of at most 1 MiB",
    "gateway.apis.envelope_events": "an error event of ours, or a refusal of at most 1 MiB",
    "gateway.apis.messages.messages_errors": "an error event, or a refusal of at most 1 MiB",
    # Our own.
    "gateway.apis.translation.member_seal": "a token of ours, weighed when it was sealed",
    "gateway.upstream.carried_answers": "an entry of ours, weighed when it was made",
    "gateway.wire.lone_surrogates": "what was decoded at a door before",
    "gateway.auth.key_store": OWN_ROWS,
    "gateway.letta.agents": OWN_ROWS,
    "gateway.management.agents": OWN_ROWS,
    "gateway.storage.bookings": OWN_ROWS,
    "gateway.storage.key_probe": OWN_ROWS,
    "gateway.storage.responses": OWN_ROWS,
    "memory.management.activity": OWN_ROWS,
    "memory.stores.sql.engine.sqlite.sqlite_index": "row keys, which SQLite joined",
    "memory.stores.sql.rows.agents": OWN_ROWS,
    "memory.stores.sql.rows.call_records": OWN_ROWS,
    "memory.core.skill_text": "one line of a file SKILL.md, which holds a text",
    "memory.stores.sql.rows.skills": OWN_ROWS,
    "memory.stores.sql.rows.reflections": OWN_ROWS,
    "memory.jobs.heartbeat": OWN_ROWS,
    "memory.stores.sql.rows.task_turns": OWN_ROWS,
    "memory.stores.sql.rows.conversations": OWN_ROWS,
    "memory.stores.sql.turns.exchanges": OWN_ROWS,
    "memory.stores.sql.transfer.exporter": OWN_ROWS,
    "memory.stores.sql.rows.agent_memberships": OWN_ROWS,
    "memory.stores.sql.rows.jobs": OWN_ROWS,
    "memory.stores.sql.index.scope_postings": "numbers that SQLite lists of at most 4,096 rows",
    "memory.stores.sql.index.message_index": OWN_ROWS,
    "memory.stores.sql.rows.message_pieces": OWN_ROWS,
    "memory.stores.sql.rows.messages": OWN_ROWS,
    "memory.stores.sql.rows.passages": OWN_ROWS,
    "memory.stores.sql.turns.replaced_turns": OWN_ROWS,
    "memory.stores.sql.rows.shared_blocks": OWN_ROWS,
    "memory.stores.sql.turns.turn_prefetch": OWN_ROWS,
    "memory.stores.sql.turns.turn_reader": OWN_ROWS,
    "memory.stores.sql.turns.turn_writer": OWN_ROWS,
    "memory.session.policies": OWN_ROWS,
    "memory.session.recovery_log": OWN_FILES,
    "memory.session.record_lines": OWN_FILES,
    "memory.embed.onnx": OWN_FILES,
    "gateway.config.loader": "an environment variable of the operator",
    # Processes that serve nobody else.
    "gateway.cli.agent_files": "a command, which waits for nothing else",
    "gateway.cli.agents": "a command, which waits for nothing else",
    "gateway.cli.chat": "a command, which waits for nothing else",
    "gateway.cli.formatting": "a command, which waits for nothing else",
    "gateway.cli.tools": "a command, which waits for nothing else",
    "gateway.cli.index": "a command, which waits for nothing else",
    "gateway.cli.lockfile": OWN_FILES,
    "gateway.demo_model.server": "the demo's own model",
    "gateway.demo_model.request_view": "the demo's own model",
    "gateway.demo_model.validation": "the demo's own model",
    "gateway.upstream.scripted": "a double of the tests",
    "memory.retrieval.file_search": "the lines of at most 10,000 pages, which this memory wrote",
    "memory.formats.files": "read by a command, in a process of its own",
    "memory.formats.letta": "read by a command, in a process of its own",
    "memory.formats.markdown": "read by a command, in a process of its own",
}


def decodes(tree: ast.Module) -> list[int]:
    """Return the lines that name a JSON decoder."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in DECODERS:
            if ast.unparse(node.value) in MODULES:
                lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            lines += [node.lineno for name in node.names if name.name in DECODERS]
    return lines


def test_foreign_json_is_decoded_at_its_doors_alone():
    lines = {name: decodes(TREES[name]) for name in TREES.keys() - PLACES.keys()}
    decoding = {name: numbers for name, numbers in lines.items() if numbers}
    assert decoding == {}, "use gateway.wire.chat.decode or decode_foreign"


def test_every_place_that_may_decode_still_does():
    assert [name for name in PLACES if name not in TREES or not decodes(TREES[name])] == []


# What only a thread may call, or a caller that knows that the text is light.
HEAVY = ("decode", "read_object", "model_of", "model_for_certain", "replace_model", "usage_of")
AWAITED = {
    "gateway.chat.turn.round_stream": "redacts an error of at most 1 MiB",
    "gateway.chat.stored.stored_stream": "redacts an error of at most 1 MiB",
    "gateway.chat.turn.command_answer": "what it made itself",
}


def run_here(function):
    """Yield the nodes of a function, but for those of functions in it, which others may call."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.Lambda | ast.FunctionDef):
            yield node
            yield from run_here(node)


def test_no_coroutine_decodes_on_the_event_loop():
    alone = ("gateway.cli", "gateway.demo_model")
    names = [n for n in TREES if n.startswith("gateway.") and not n.startswith(alone)]
    places = [
        (name, node.lineno)
        for name in names
        if name not in AWAITED
        for function in ast.walk(TREES[name])
        if isinstance(function, ast.AsyncFunctionDef)
        for node in run_here(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HEAVY
    ]
    assert places == [], "pass it to run_by_weight"
