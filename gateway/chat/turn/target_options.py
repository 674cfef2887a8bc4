"""What the target of a turn takes, and what is known of it."""

from __future__ import annotations

from functools import partial

from gateway.chat.intake.capabilities import (
    record_addition,
    record_rejection,
    refused_additions,
    told_rejection,
)
from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.round_sender import TargetOptions
from gateway.chat.turn.search_stand_in import stand_in_of
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Target
from gateway.state import GatewayState
from memory import Session

NOTHING_REFUSED: frozenset[str] = frozenset()


def target_options(
    gateway: GatewayState,
    request: TurnInput,
    forward: Dispatcher,
    target: Target,
    session: Session,
) -> TargetOptions:
    """Return what a turn needs to know of its target."""
    facts = request.facts
    body = request.body
    has_lacks = gateway.lacks.byte_count > 0
    keeper = None
    if gateway.stored is not None and not request.api.is_chat:
        keeper = gateway.stored.keep(gateway, request, forward)
    return TargetOptions(
        # A task leaves as its client sent it.
        target.settings.stream_usage and not session.is_task,
        partial(record_rejection, gateway, facts, body),
        gateway.settings.memory.placement == "cache_stable",
        facts,
        keeper,
        gateway.windows,
        refused_additions(gateway, target) if has_lacks else NOTHING_REFUSED,
        partial(record_addition, gateway),
        told_rejection(gateway, facts, body, target) if has_lacks else "",
        None if request.search is None else stand_in_of(gateway, request, session),
    )
