"""One upstream call of a turn: the request with memory in it, and less of it once it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from gateway.chat.hidden_exchange import HiddenExchange
from gateway.errors import UpstreamRefused
from gateway.routing.dispatcher import Composed, Dispatcher
from gateway.routing.failures import as_context_overflow, is_overflow, sizes_told
from gateway.routing.replies import CompletionReply
from gateway.routing.router import Target
from gateway.wire.chat import Json
from gateway.wire.placement import Placement, place_memory, without_tools
from memory import Session
from memory.core.tool_definitions import as_json

ADDITIONS_REFUSED = (400, 404, 422)
COMPACTIONS = 2  # of a prompt that is refused for its size, before nothing of ours is sent


class Injection(Enum):
    """What of ours is sent: NONE is the client's own body."""

    FULL = auto()
    WITHOUT_TOOLS = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What the target of a turn takes.

    ask_usage: it tells the usage of a stream where it is asked to. reject: told when a target
    refused our additions. frozen: the core text stays the same for an epoch, and is no live one.
    """

    ask_usage: bool = True
    reject: Callable[[Target], None] | None = None
    frozen: bool = True


class RoundSender:
    """Sends the rounds of one turn.

    reply: the newest. is_last: no round follows for calls of ours. gave_up: a target took only the
    client's own body.
    """

    def __init__(
        self, body: Json, session: Session, forward: Dispatcher, options: TargetOptions
    ) -> None:
        offers = bool(session.prompt.offered)
        self.reply: CompletionReply | None = None
        self.injection = Injection.FULL if offers else Injection.WITHOUT_TOOLS
        self.is_last = not offers
        self.gave_up = False
        self.hidden = HiddenExchange()
        self._body = body
        self._session = session
        self._forward = forward
        self._options = options

    def withdraw_tools(self) -> None:
        """Let the next round be the last: our tools are not offered in it."""
        self.is_last = True
        if self.injection is Injection.FULL:
            self.injection = Injection.WITHOUT_TOOLS

    async def send(self, *, first: bool) -> CompletionReply:
        """Send a round, composed anew after each refusal that less of ours may mend.

        first: no round went before. What does not fit however hard it is compacted goes without
        additions, so that no client sees an overflow that we alone caused. Raises GatewayError.
        """
        before, compactions, rejected = self.injection, 0, False
        while True:
            changed = compactions > 0 or self.injection is Injection.NONE
            try:
                reply = await self._forward.complete(
                    self.compose, another=changed or not first, frozen=self._is_frozen
                )
            except UpstreamRefused as e:
                if is_overflow(e):
                    if not await self._shrink(e, compactions):
                        raise as_context_overflow(e) from e
                    compactions += 1
                elif self._may_be_our_fault(e):
                    self.injection, rejected = Injection.NONE, True
                else:
                    raise
                continue
            self._note_sent(reply)
            if before is not self.injection:
                self._note_given_up(reply.target, rejected)
            self.reply = reply
            return reply

    def compose(self, target: Target) -> Composed:
        """Return the request as it goes upstream now.

        What the turn before sent to this target is gone on from.
        """
        prompt = self._session.prompt
        if self.injection is Injection.NONE:
            return self._body, (), prompt.client
        sent = prompt.previous
        if sent is not None and (
            sent.by != target.label or not (prompt.client is None or prompt.client.text)
        ):
            sent = None
        placement = Placement(
            prompt.core,
            prompt.notes,
            prompt.splices,
            prompt.drop,
            prompt.swap,
            prompt.recall,
            as_json(prompt.offered) if self.injection is Injection.FULL else (),
            sent.of.count if sent else 0,
        )
        body = place_memory({**self._body, "messages": prompt.messages}, placement)
        if self.hidden.messages:
            body["messages"] = [*body["messages"], *self.hidden.messages]
        if self.injection is Injection.WITHOUT_TOOLS and prompt.offered:
            body = without_tools(body, self._body)
        self._ask_usage(body)
        return body, sent.pieces if sent else (), prompt.client

    @property
    def _is_frozen(self) -> bool:
        return (
            self._options.frozen
            and bool(self._session.prompt.core)
            and self.injection is not Injection.NONE
        )

    def _ask_usage(self, body: Json) -> None:
        """Let the usage of a stream be told, in a body of our own."""
        options = body.get("stream_options")
        if (
            body.get("stream")
            and self._options.ask_usage
            and (options is None or isinstance(options, dict))
        ):
            body["stream_options"] = {**(options or {}), "include_usage": True}

    async def _shrink(self, refusal: UpstreamRefused, compactions: int) -> bool:
        """Make the next request smaller; False where it is the client's own already."""
        if self.injection is Injection.NONE:
            return False
        if compactions < COMPACTIONS and await self._session.compact_harder(
            compactions, sizes_told(refusal)
        ):
            return True
        if not (self._session.prompt.adds_anything or self.hidden.messages):
            return False
        self.injection, self.is_last = Injection.NONE, True
        return True

    def _may_be_our_fault(self, refusal: UpstreamRefused) -> bool:
        """Tell whether a target may have refused our additions, in the first round."""
        return (
            refusal.status in ADDITIONS_REFUSED
            and not self.hidden.messages
            and self.injection is not Injection.NONE
            and self._session.prompt.adds_anything
        )

    def _note_sent(self, reply: CompletionReply) -> None:
        if self.injection is not Injection.NONE and not self.hidden.messages:
            self._session.remember_sent_prompt(reply.target.label, reply.messages)

    def _note_given_up(self, target: Target, rejected: bool) -> None:
        """Note that a target took the client's own body. rejected: our additions are why."""
        self.gave_up = True
        self._session.inject_nothing()
        if rejected and self._options.reject is not None:
            self._options.reject(target)
