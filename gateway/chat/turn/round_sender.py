"""One upstream call of a turn: the request with memory in it, and less of it once it is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol

import msgspec

from gateway.apis.base import Composed, HiddenRounds, ReplyMask, RequestFacts, RoundParts
from gateway.chat.intake.capabilities import (
    IMAGES,
    INCLUDE,
    STATE,
    USAGE,
    asks_itself,
    named_addition,
)
from gateway.chat.turn.search_stand_in import SearchStandIn
from gateway.errors import UpstreamRefused
from gateway.routing.context_windows import ContextWindows
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.failures import as_context_overflow, is_overflow, sizes_told
from gateway.routing.replies import CompletionReply
from gateway.routing.router import Target
from gateway.upstream.bridge_translation import HIDDEN_REASONING
from gateway.upstream.refused_references import LOST_ITEMS
from gateway.wire.chat import Json
from memory import Session

ADDITIONS_REFUSED = (400, 404, 422)
# Of a round before, whose state the provider was to go on from.
NOT_KEPT = (400, 404)
# By the format; "" is the client's own, without what its provider is not sent.
SENT = {
    "": "the request",
    "chat": "a chat completion",
    "messages": "a request of the Messages API",
    "responses": "a request of the Responses API",
}
# Of a prompt that is refused for its size, before nothing of ours is sent.
COMPACTIONS = 3


class Injection(Enum):
    """What of ours is sent: NONE is the client's own body."""

    FULL = auto()
    WITHOUT_TOOLS = auto()
    NONE = auto()


class TurnKeeper(Protocol):
    """Keeps what a turn leaves at the provider."""

    async def row(
        self, mask: ReplyMask, replies: Sequence[Json], hidden: HiddenRounds, conversation: str
    ) -> Any:
        """Return what an answer leaves; None for nothing. replies: its rounds, as received."""
        ...

    def beside(self, row: Any) -> Mapping[str, Json]:
        """Return what is written in the transaction that records the turn."""
        ...

    def note_first(
        self, events: AsyncGenerator[bytes, None], conversation: str
    ) -> AsyncGenerator[bytes, None]:
        """Return the events; what goes on without its client is recorded before they are shown."""
        ...

    def settle(self, row: Any, *, written: bool) -> None:
        """Write by itself what was not written with its turn."""
        ...


class TargetOptions(msgspec.Struct, frozen=True):
    """What the target of a turn takes, and what is known of the request.

    ask_usage: it tells the usage of a stream where it is asked to. reject: told when a target
    refused our additions. frozen: the core text stays the same for an epoch, and is no live one.
    facts: None where the body is to be asked. keeper: keeps what the turn leaves at the provider.
    windows: learns from what targets refuse and report. refused_additions: single additions that
    the target is known to refuse. reject_addition: told when it took a request only without one.
    given_up: what memory leaves out since an earlier refusal, "" for nothing. stand_in: answers for
    a vendor's own search, None for none.
    """

    ask_usage: bool = True
    reject: Callable[[Target], None] | None = None
    frozen: bool = True
    facts: RequestFacts | None = None
    keeper: TurnKeeper | None = None
    windows: ContextWindows | None = None
    refused_additions: frozenset[str] = frozenset()
    reject_addition: Callable[[Target, str], None] | None = None
    omission_note: str = ""
    stand_in: SearchStandIn | None = None


class RoundSender:
    """Sends the rounds of one turn.

    reply: the newest. is_last: no round follows for calls of ours. gave_up: a target took only the
    client's own body. omission_note: what memory leaves out since an earlier refusal, "" for
    nothing. withheld: names of tools that rules do not show now. lost_rounds: reasoning was left
    out whose hidden calls are not known. cut_tokens: tokens that a target silently cut the request
    to, 0 if it did not.
    """

    def __init__(
        self,
        body: Json,
        session: Session,
        forward: Dispatcher,
        options: TargetOptions,
    ) -> None:
        offers = bool(session.prompt.tools)
        self.reply: CompletionReply | None = None
        if offers:
            self.injection = Injection.FULL
        else:
            self.injection = Injection.WITHOUT_TOOLS
        self.is_last = not offers
        self.gave_up = self.lost_rounds = False
        self.cut_tokens = 0
        self.omission_note = options.omission_note
        self.hidden = forward.wire.hidden_rounds()
        self._body = body
        self._api = forward.wire
        self._session = session
        self._forward = forward
        self.options = options
        self.withheld = frozenset[str]()
        self._refused_additions = set(options.refused_additions)
        if options.omission_note:
            session.trace.notes.append(options.omission_note)

    def withdraw_tools(self) -> None:
        """Let the next round be the last: our tools are not offered in it."""
        self.is_last = True
        if self.injection is Injection.FULL:
            self.injection = Injection.WITHOUT_TOOLS

    @property
    def wants_json(self) -> bool:
        """Whether the answer is to be one JSON text."""
        facts = self.options.facts or self._api.facts(self._body)
        return facts.wants_json

    def write_reply(self, text: str, before: Json | None) -> Json:
        """Return a reply of the gateway's own. before: the turn's last one, if there was one."""
        return self._api.text_reply(self._body, text, before)

    @property
    def has_room(self) -> bool:
        """Whether the client's limit of output leaves room for another round."""
        return self.hidden.has_room(self._body)

    async def send(self, *, first: bool) -> CompletionReply:
        """Send a round, composed anew after each refusal that less of ours may mend.

        first: no round went before. What does not fit however hard it is compacted goes without
        additions, so that no client sees an overflow that we alone caused. Raises GatewayError.
        """
        injection_before, compactions, rejected = self.injection, 0, False
        known_refusals = set(self._refused_additions)
        if known_refusals:
            self._leave_out_known(known_refusals)
        while True:
            sends_less = (
                self.injection is Injection.NONE or self._refused_additions != known_refusals
            )
            is_changed = compactions > 0 or sends_less
            try:
                reply = await self._forward.complete(
                    self.compose, another=is_changed or not first, frozen=self._is_frozen
                )
            except UpstreamRefused as e:
                if is_overflow(e):
                    if not await self._shrink(e, compactions):
                        if self._api.marks_overflow:
                            raise as_context_overflow(e) from e
                        raise
                    compactions += 1
                elif not self._leaves_out(e):
                    raise
                elif compactions == 0 and self.injection is Injection.NONE:
                    rejected = True
                continue
            self._note_sent(reply)
            if self._refused_additions or injection_before is not self.injection:
                gave_up_memory = injection_before is not self.injection
                self._note_refusals(
                    reply.target, known_refusals, rejected if gave_up_memory else None
                )
            self.reply = reply
            return reply

    def _leave_out_known(self, known_refusals: Collection[str]) -> None:
        """Send what a target is known to take, from the beginning."""
        if IMAGES in known_refusals:
            self.hidden.drop_images()
        if STATE in known_refusals:
            self.hidden.send_whole()

    async def learn_from(self, usage: Json | None) -> None:
        """Learn from what the first round's upstream counted of its prompt."""
        windows = self.options.windows
        facts = self.options.facts
        reply = self.reply
        is_managed = facts is not None and facts.manages_context
        # Some formats count without what was in a cache.
        if windows is None or reply is None or is_managed or not self._api.sums_usage:
            await self._session.calibrate_token_counter(usage)
            return
        caller = self._forward.caller
        size = self._session.request_bytes
        is_proven = windows.has_taken(reply.target, caller, size)
        report = await self._session.calibrate_token_counter(usage, proven=is_proven)
        self.cut_tokens = windows.note_report(reply.target, caller, report, size)
        if self.cut_tokens:
            self._session.trace.notes.append(
                f"{reply.target.label} cut the request without saying so: it counted "
                f"{self.cut_tokens} tokens, which is taken for its window now"
            )

    def compose(self, target: Target) -> Composed:
        """Return the request as it goes upstream now."""
        prompt = self._session.prompt
        if self.injection is Injection.NONE:
            return self._api.own_request(self._body, prompt.client)
        if not target.supports_images:
            self.hidden.drop_images()
        if self.withheld:
            prompt = prompt.without_tools(self.withheld)
        parts = RoundParts(
            self._body,
            prompt,
            self.hidden,
            self.injection is Injection.FULL,
            self.options.ask_usage and USAGE not in self._refused_additions,
            self.options.facts.view if self.options.facts else None,
            INCLUDE not in self._refused_additions,
        )
        composed_body = self._api.compose(parts, target.label)
        if (stand_in := self.options.stand_in) is None:
            return composed_body
        is_first = not self.hidden.messages
        return stand_in.compose(composed_body, self.withheld, offers=parts.tools, is_first=is_first)

    @property
    def _is_frozen(self) -> bool:
        return (
            self.options.frozen
            and bool(self._session.prompt.core)
            and self.injection is not Injection.NONE
        )

    async def _shrink(self, refusal: UpstreamRefused, compactions: int) -> bool:
        """Make the next request smaller; False where it is the client's own already."""
        if self.injection is Injection.NONE:
            return False
        facts = self.options.facts
        is_managed = facts is not None and facts.manages_context
        if not is_managed and compactions < COMPACTIONS:
            error_tokens = sizes_told(refusal)
            smaller = await self._session.compact_harder(compactions, error_tokens)
            if (
                windows := self.options.windows
            ) is not None and self._forward.last_target is not None:
                counted_tokens = self._session.refused_tokens
                windows.note_refusal(
                    self._forward.last_target, self._forward.caller, counted_tokens, error_tokens
                )
            if smaller:
                return True
        if not (self._session.prompt.adds_anything or self.hidden.messages):
            return False
        self.injection = Injection.NONE
        self.is_last = True
        return True

    def _leaves_out(self, refusal: UpstreamRefused) -> bool:
        """Leave out what a target may have refused; False where that is not ours."""
        if self._gives_up_addition(refusal):
            return True
        if self.hidden.messages and refusal.status in NOT_KEPT and self.hidden.send_whole():
            self._refused_additions.add(STATE)
            return True
        if refusal.status in ADDITIONS_REFUSED and self.hidden.drop_images():
            self._refused_additions.add(IMAGES)
            return True
        if not self._may_be_our_fault(refusal):
            return False
        self.injection = Injection.NONE
        return True

    def _gives_up_addition(self, refusal: UpstreamRefused) -> bool:
        """Leave out the one addition of ours that a refusal names; False where it names none."""
        if refusal.status not in ADDITIONS_REFUSED or self.injection is Injection.NONE:
            return False
        name = named_addition(refusal)
        if not name or name in self._refused_additions or asks_itself(self._body, name):
            return False
        self._refused_additions.add(name)
        return True

    def _note_refusals(
        self, target: Target, known_refusals: set[str], rejected: bool | None
    ) -> None:
        """Note what a target took a request only without, now and in an earlier request.

        rejected: see `_note_given_up`; None where it took our additions.
        """
        self._note_additions(target, self._refused_additions - known_refusals)
        self._note_known(target, known_refusals)
        if rejected is not None:
            self._note_given_up(target, rejected)

    def _note_additions(self, target: Target, names: Collection[str]) -> None:
        """Note what a target took a request only without."""
        for name in sorted(names):
            addition = "to go on from its own state"
            if name != STATE:
                addition = f"`{name}`"
            self._session.trace.notes.append(f"{target.label} refused {addition}; it was left out")
            if self.options.reject_addition is not None:
                self.options.reject_addition(target, name)

    def _note_known(self, target: Target, names: Collection[str]) -> None:
        """Note what was left out because the target refused it in an earlier request."""
        if USAGE in names and self.options.ask_usage and self._body.get("stream"):
            note = f"{target.label} refused `{USAGE}` within the last hour; it was left out"
            notes = self._session.trace.notes
            if note not in notes:
                notes += [note]

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
        if (carriage := reply.incoming.carriage) is not None:
            lost_reasoning = (
                HIDDEN_REASONING in carriage.lost_members and not self._session.continues
            )
            if lost_reasoning or LOST_ITEMS in carriage.lost_members:
                self.lost_rounds = True
            lost_members = ", ".join(carriage.lost_members)
            note = f"{reply.target.label} was sent {SENT[carriage.form]}"
            if lost_members:
                note += f"; dropped: {lost_members}"
            notes = self._session.trace.notes
            if note not in notes:
                notes += [note]

    def _note_given_up(self, target: Target, rejected: bool) -> None:
        """Note that a target took the client's own body. rejected: our additions are why."""
        self.gave_up = True
        self._session.inject_nothing()
        if rejected and self.options.reject is not None:
            self.options.reject(target)
