"""Delivers the messages that wait for an agent: in its next turn, and in one turn at a time."""

from __future__ import annotations

import logging

from memory.context.epoch import end_of_words
from memory.core.agent_messages import WaitingMessage, choose_messages
from memory.errors import StoreUnavailable
from memory.ids import clock
from memory.session.context import TurnContext
from memory.session.message_delivery import MessageDelivery
from memory.stores.sql.engine.database import NO_TURNS
from memory.stores.sql.rows import agent_inbox
from memory.stores.sql.rows.agent_inbox import InboxAddress, RepeatedTurn

log = logging.getLogger("mnemogate")
DAY = 86400.0


async def read_waiting(turn: TurnContext) -> MessageDelivery | None:
    """Return the messages that this turn delivers, and claim them for it.

    None if the request does not end in a user's words, or if the store does not answer in time:
    they wait for the next turn.
    """
    ask = turn.ask
    limits = turn.ask.inbox
    snapshot = turn.snapshot
    if limits is None or not turn.injects or turn.is_spare or not ask.scope.user:
        return None
    history = snapshot.turn
    if end_of_words(history, len(history.messages)) < 0:
        return None
    to = InboxAddress(ask.scope.tenant, ask.scope.user, ask.scope.agent)
    claimed_ids = turn.services.claimed_messages
    query = agent_inbox.waiting(
        to,
        clock.now() - limits.days * DAY,
        limits.messages + len(claimed_ids),
        _repeated_turn(turn),
    )
    try:
        with turn.attempt.patience.of(turn.policy.read_deadline) as seconds:
            rows = await turn.services.db.read(query, seconds, small=True, of=NO_TURNS)
    except StoreUnavailable as e:
        log.warning("messages to the agent %s wait for its next turn: %s", ask.scope.agent, e)
        return None
    messages = [
        WaitingMessage(row.id, row.sender, row.text, row.created_at)
        for row in rows
        if row.id not in claimed_ids
    ]
    delivered_messages = choose_messages(messages, limits.messages, limits.characters)
    claimed_ids.update(message.id for message in delivered_messages)
    if delivered_messages:
        return MessageDelivery(delivered_messages, ask.scope.tag)
    return None


def _repeated_turn(turn: TurnContext) -> RepeatedTurn:
    """Return the turn that this one repeats: a retry, or an answer that is asked for anew.

    Conversations may begin with the same words, so that a first message repeats another one only
    if the client says that it does.
    """
    snapshot = turn.snapshot
    previous_node = snapshot.past.node
    if previous_node is not None:
        return RepeatedTurn(snapshot.turn.chain.end, previous_node.id)
    if turn.ask.certain:
        return RepeatedTurn(snapshot.turn.chain.end)
    return RepeatedTurn()


def release_messages(turn: TurnContext) -> None:
    """Let other turns deliver what this one did not."""
    if turn.progress.delivery is not None:
        turn.services.claimed_messages.difference_update(turn.progress.delivery.ids)
