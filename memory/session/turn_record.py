"""Builds the records of a turn: its request, its answers, its explain record.

Inspects all messages of the turn, which may take long; writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from memory.context.epoch import PreviousTurn, new_node
from memory.context.fitted import SentPrompt
from memory.conversation.history import build_server_history, count_leading_system
from memory.conversation.matching import NOTHING, TurnNode, complete_node
from memory.conversation.messages import SYSTEM, Json, collapse_whitespace, is_system, text_of
from memory.core.blocks import CoreBlock, without_spans
from memory.core.tool_definitions import WRITES
from memory.ids import clock, new_key
from memory.session.composer import Prompt
from memory.session.context import TurnContext
from memory.session.conversation_cache import named_conversation_key
from memory.session.trace import InjectedTokens, TokenCounts
from memory.stores.sql.rows.message_pieces import ContentRules, content_of, note_speaker
from memory.stores.sql.turns.turn_reader import ConversationState, Snapshot
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

# A rough estimate, if nothing was counted.
BYTES_A_TOKEN = 4
# Of a system message; a longer one is estimated.
COUNTED_CHARACTERS = 20_000


class TurnOutcome(msgspec.Struct, frozen=True):
    """How a turn ended.

    answers: one a choice, as the client was shown them. hidden: what stands for the first of them
    in the next turn, our calls included. aborted: they are not whole. prove: an upstream answered
    this tenant. explain: more for the explain record. rows_beside: what the application keeps of
    the turn, see `ApplicationTables`. served: the model that gave the answer, as it is named
    upstream.
    """

    answers: Sequence[Json]
    hidden: list[Json] | None = None
    aborted: bool = False
    prove: bool = False
    explain: Mapping[str, object] = msgspec.field(default_factory=dict)
    rows_beside: Mapping[str, Json] = msgspec.field(default_factory=dict)
    served: str = ""


def pending_turn(turn: TurnContext, prompt: Prompt) -> PendingTurn:
    """Build what is written of a request before its answer."""
    snapshot = turn.snapshot
    identity = turn.identity
    history, tag, plan = snapshot.turn, turn.ask.scope.tag, prompt.fitted.plan
    node = new_node(identity.node_id, identity.conversation.id, history, snapshot.past, plan)
    node.at = clock.now()
    node.recall = prompt.recall
    if prompt.recall_result.keys:
        node.recalled = prompt.recall_result.keys_after(node.recalled)
    if turn.ask.mode == "write" or not (prompt.core or plan.epoch.tools):
        node.epoch = None
    harness, keeps = turn.ask.harness, turn.keeps_history
    rules = ContentRules(not identity.adopted, turn.policy.screen, keeps, harness)
    messages, digest_of = history.messages, history.chain.digest
    new_contents = []
    for index in range(snapshot.since, len(messages)):
        message = messages[index]
        if message.get("role") in SYSTEM:
            continue
        content = message.get("content")
        if type(content) is not str or tag in content:
            message = without_spans(message, tag)
        new_contents.append(content_of(message, digest_of(index), rules))
    if turn.ask.said_by is not None:
        note_speaker(turn.ask.said_by, new_contents)
    return PendingTurn(
        snapshot.owner,
        identity.conversation,
        identity.forked_from,
        node,
        new_contents,
        turn.attempt.claim.request,
        identity.adopted,
        turn.progress.rounds,
        snapshot.scope_id,
        holder=turn.services.db.holder,
        once=turn.once,
        named=turn.ask.explicit is not None,
    )


def turn_record(turn: TurnContext, prompt: Prompt, outcome: TurnOutcome) -> TurnRecord:
    """Build what is written of a turn with its answers."""
    snapshot, identity, plan = turn.snapshot, turn.identity, prompt.fitted.plan
    history = snapshot.turn
    nodes: list[TurnNode] = []
    contents: list[list[Json]] = []
    for index, answer in enumerate(outcome.answers):
        node = _answered_node(turn, prompt, outcome, index)
        nodes.append(node)
        contents.append(_contents_of_answer(turn, answer, node))
    begins_epoch = plan.reason and (prompt.core or plan.epoch.tools) and turn.ask.mode == "full"
    delivery = turn.progress.delivery
    return TurnRecord(
        snapshot.owner,
        identity.conversation.id,
        nodes,
        list(outcome.answers),
        turn.ask.resends or (history.newest >= 0 and not snapshot.prepended_count),
        plan.epoch if begins_epoch else None,
        (identity.explain_id, explain_record(turn, prompt, outcome.explain)),
        _evicted_messages(turn, prompt) if prompt.fitted.evicted else [],
        outcome.prove,
        turn.ask.scope.key,
        identity.head,
        turn.keeps_history,
        identity.adopted,
        contents=contents,
        used=list(prompt.recall_result.passages),
        scope_id=turn.progress.scope_id,
        parent_turn=snapshot.past.node.turn if snapshot.past.node else None,
        unread=turn.ask.unread
        and turn.is_new_message
        and not outcome.aborted
        and turn.task is None,
        said_by=turn.ask.said_by,
        beside=outcome.rows_beside,
        holder=turn.services.db.holder,
        delivered=delivery.list_shown(nodes[0].note) if delivery is not None else [],
    )


def _evicted_messages(turn: TurnContext, prompt: Prompt) -> list[tuple[Json, bytes]]:
    """Return what the turn left out for the first time, with its digests."""
    history = turn.snapshot.turn
    mask = turn.policy.screen.mask_message
    return [
        (mask(history.messages[i]), history.chain.digest(i))
        for i in prompt.fitted.evicted
        if not turn.snapshot.prepended_count and i < history.suffix
    ]


def _contents_of_answer(turn: TurnContext, answer: Json, node: TurnNode) -> list[Json]:
    rules = ContentRules(True, turn.policy.screen, turn.keeps_history)
    if is_system(answer):
        contents = []
    else:
        contents = [content_of(answer, node.digest, rules)]
    if turn.ask.said_by is not None:
        note_speaker(turn.ask.said_by, contents)
    return contents


def _answered_node(turn: TurnContext, prompt: Prompt, outcome: TurnOutcome, index: int) -> TurnNode:
    """Build the node of one of the answers."""
    snapshot = turn.snapshot
    identity = turn.identity
    answer = outcome.answers[index]
    node = new_node(
        identity.node_id if index == 0 else new_key(),
        identity.conversation.id,
        snapshot.turn,
        snapshot.past,
        prompt.fitted.plan,
    )
    node.turn = identity.node_id
    node.recall = prompt.recall
    if prompt.recall_result.keys:
        node.recalled = prompt.recall_result.keys_after(node.recalled)
    digest, chain = turn.services.digests.extend_chain(turn.ask.scope.key, node.asked, answer)
    complete_node(node, snapshot.past.node, digest, chain)
    if outcome.aborted:
        node.state = "aborted"
        node.text = collapse_whitespace(text_of(answer))
    calls = turn.progress.trace.tools
    if calls and not turn.ask.scope.is_named and any(x["name"] in WRITES for x in calls):
        node.branch = identity.node_id
    if index == 0:
        node.hidden = outcome.hidden
        previous_node = snapshot.past.node
        node.runs = turn.progress.runs
        if (
            previous_node is not None
            and previous_node.runs
            and not (node.runs or turn.is_new_message)
        ):
            node.runs = previous_node.runs
    if turn.ask.mode == "write" or not (prompt.core or prompt.fitted.plan.epoch.tools):
        node.epoch = node.note = None
    return node


def explain_record(turn: TurnContext, prompt: Prompt, extra_members: Mapping[str, object]) -> Json:
    """Build the explain record of the request. extra_members: further members."""
    ask, identity = turn.ask, turn.identity
    injected = InjectedTokens(
        None if prompt.core and ask.mode == "full" else prompt.core,
        prompt.notes,
        prompt.splices,
        prompt.recall,
        [x["function"]["name"] for x in prompt.tools],
        turn.snapshot.prepended_count,
    )
    fitted = prompt.fitted
    tokens = fitted.tokens or len(ask.body) // BYTES_A_TOKEN
    decisions: Json = {}
    for name, decision in turn.decisions.items():
        decisions[name] = {"on": decision.on, "why": decision.why}
    return {
        "id": identity.explain_id,
        "object": "explain",
        "request_id": ask.request_id,
        "conversation": identity.conversation.name,
        "agent": ask.scope.agent_name,
        **({"project": ask.scope.project} if ask.scope.project else {}),
        "model": ask.model,
        "decisions": decisions,
        **turn.progress.trace.to_json(
            fitted.plan,
            injected,
            TokenCounts(
                prompt.injected_tokens,
                tokens,
                fitted.tokens > 0,
                _system_tokens(turn, prompt),
                ask.window,
            ),
        ),
        **({"asked_by": ask.asked_by} if ask.asked_by is not None else {}),
        **(ask.toolbox.describe(fitted.plan.epoch.tools) if ask.toolbox is not None else {}),
        **extra_members,
    }


def _system_tokens(turn: TurnContext, prompt: Prompt) -> int:
    """Count the client's leading system messages, as far as they are plain text of usual size.

    Once for each text: to look at it again would decode a message in every turn.
    """
    counts = turn.services.counter.counts
    digest = prompt.messages.after.system
    if not digest:
        return 0
    key = hash((b"system", digest))
    if (token_count := counts.get(key)) is None:
        counts.put(key, token_count := _count_system(turn, prompt))
    return token_count


def _count_system(turn: TurnContext, prompt: Prompt) -> int:
    leading = islice(prompt.messages, count_leading_system(prompt.messages))
    texts = [m["content"] for m in leading if isinstance(m.get("content"), str)]
    return sum(
        turn.services.counter.text(x) if len(x) <= COUNTED_CHARACTERS else len(x) // BYTES_A_TOKEN
        for x in texts
    )


class RecordedTurn(msgspec.Struct, frozen=True):
    """A turn that the store accepted.

    head: the conversation's newest node. blocks: as the turn left them.
    """

    record: TurnRecord
    head: int
    blocks: dict[str, CoreBlock]


def _conversation_after(turn: TurnContext, recorded: RecordedTurn) -> ConversationState:
    """Return the state of the conversation that a turn leaves."""
    line = turn.identity.conversation
    record = recorded.record
    is_resent = line.resent or record.resent
    state = ConversationState(line.id, line.name, line.explicit, is_resent, recorded.head)
    state.task = turn.task is not None
    if record.versions is not None:
        state.version = record.versions[1]
    return state


def next_snapshot(
    turn: TurnContext, prompt: Prompt, recorded: RecordedTurn, sent_prompt: SentPrompt | None
) -> tuple[bytes, Snapshot] | None:
    """Return the snapshot that the next turn of this conversation would read, with its key.

    None unless the next turn simply continues this one.
    """
    if not _continues_simply(turn, recorded):
        return None
    snapshot = turn.snapshot
    record = recorded.record
    line = turn.identity.conversation
    node, past, plan = record.nodes[0], snapshot.past, prompt.fitted.plan
    carriers = [c for c in past.carriers if c.id in plan.places] if past.carriers else []
    if node.note or node.hidden:
        carriers.append(node)
    conversation = _conversation_after(turn, recorded)
    next_line = Snapshot(
        snapshot.owner,
        turn.progress.scope_id,
        NOTHING,
        edits=snapshot.edits,
        blocks=recorded.blocks,
        past=PreviousTurn(node, -1, plan.epoch, carriers),
        conversation=conversation,
        sent_prompt=sent_prompt,
    )
    next_line.prepared, next_line.shares = prompt.prepared_for(recorded.blocks), snapshot.shares
    next_line.earlier_summary, next_line.layers = snapshot.earlier_summary, snapshot.layers
    next_line.omitted_labels = snapshot.omitted_labels
    next_line.defaults, next_line.general_version = snapshot.defaults, snapshot.general_version
    next_line.version, next_line.general_entries = snapshot.version, snapshot.general_entries
    if not turn.keeps_history or conversation.resent:
        return node.chain, next_line
    messages, tag = snapshot.turn.messages, turn.ask.scope.tag
    if all(without_spans(m, tag) == m for m in messages[snapshot.since :]):
        next_line.server_history = build_server_history(
            messages, snapshot.server_history, record.answers[0]
        )
    return named_conversation_key(line.name), next_line


def _continues_simply(turn: TurnContext, recorded: RecordedTurn) -> bool:
    """Tell whether the next turn continues this turn's only answer, and its epoch."""
    node = recorded.record.nodes[0]
    parent = turn.snapshot.past.node
    overtaken = node.parent != (parent.id if parent else None)
    return (
        len(recorded.record.nodes) == 1
        and node.state == "done"
        and recorded.head == node.turn
        and not overtaken
        and not turn.identity.adopted
        and bool(node.epoch)
        and _is_alone(turn, recorded.record)
    )


def _is_alone(turn: TurnContext, record: TurnRecord) -> bool:
    """Tell whether nobody else wrote what is kept since this turn began, where others may.

    What its own tools wrote is read again, as others may have written beside them.
    """
    if record.versions is None:
        return True
    own_writes = 1 + turn.progress.opened
    expected_versions = (turn.snapshot.version, turn.identity.conversation.version + own_writes)
    return not turn.attempt.edited and record.versions == expected_versions
