"""The turn: compose, then repeat {forward, intercept, execute}, then record.

One generator for stream and plain.

It yields the events to show, those together that came together. An exception before the first of
them still has its own status; after it, the caller tells it in-band. Rules: MEMORY.md 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from gateway.apis.base import ApiFormat, HiddenRounds, ReplyMask, RequestFacts
from gateway.apis.round_result import RoundResult
from gateway.chat.turn.opening import RequestOpening
from gateway.chat.turn.round_sender import RoundSender, TargetOptions
from gateway.chat.turn.round_stream import (
    close_round,
    end_stream,
    raise_for_incomplete,
    read_whole,
    stream_round,
    write_body,
)
from gateway.chat.turn.rule_exits import RuleExits
from gateway.errors import UpstreamRefused
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.replies import CompletionReply
from gateway.wire.chat import Json
from gateway.wire.json_weight import LIGHT_BYTES, SURE_BYTES
from gateway.wire.lone_surrogates import join_halves
from memory import Session, ToolCall
from memory.session.toolbox import Result
from memory.session.turn_record import TurnOutcome

T = TypeVar("T")


class TurnLimits(msgspec.Struct):
    """rounds: upstream calls before the last one without our tools.

    until: the loop's time after which the next is that one. patience: seconds that an answer waits
    for the store.
    """

    rounds: int = 8
    until: float = float("inf")
    sum_usage: bool = True
    patience: float = 0.15


class _LastPart(msgspec.Struct, frozen=True):
    """The end of an answer, which may show nothing of its own."""

    events: bytes


class Turn:
    """One client request, from composing to its last event.

    reply: the upstream's newest. usages: the usage of each round, as reported. is_finished: nothing
    is left to record.
    """

    def __init__(
        self,
        body: Json,
        session: Session,
        forward: Dispatcher,
        limits: TurnLimits,
        options: TargetOptions,
    ) -> None:
        api = forward.wire
        if options.facts is None:
            facts = api.facts(body)
        else:
            facts = options.facts
        self.session = session
        # What each round came to, as received.
        self.replies: list[Json] = []
        self._keeper = options.keeper
        self.usages: list[Json | None] = []
        # Of the answers that came whole.
        self._bytes = 0
        self.is_finished = False
        self.stream = bool(body.get("stream"))
        self._forward = forward
        self._limits = limits
        self.mask = _mask(api, body, facts, session, forward)
        self._sender = RoundSender(body, session, forward, options)
        self._opening = RequestOpening(session, streamed=self.stream)
        # Of the rounds that an earlier attempt finished.
        self._replayed_usage: Json | None = None
        self._unrecorded = False
        if session.exits is None:
            self._exits = None
        else:
            self._exits = RuleExits(session, self._sender)

    @property
    def hidden(self) -> HiddenRounds:
        return self._sender.hidden

    @property
    def reply(self) -> CompletionReply | None:
        return self._sender.reply

    @property
    def degraded(self) -> bool:
        """Whether memory is missing from the request, or the turn from the memory."""
        return bool(self.why_degraded)

    @property
    def why_degraded(self) -> str:
        """What is missing of a turn that is degraded, "" for nothing."""
        sender = self._sender
        if sender.gave_up:
            return "the upstream took the request only without the memory in it"
        if sender.cut_tokens:
            return (
                f"the upstream cut the request to {sender.cut_tokens} tokens without saying so: "
                "the oldest of it was not read"
            )
        if sender.omission_note:
            return sender.omission_note
        if sender.lost_rounds:
            return (
                "memory calls of earlier answers could not be put back, so the reasoning that led "
                "to them was left out"
            )
        if self._opening.degraded:
            return "the memory store did not take the request in time"
        if self._unrecorded or self.session.unsaved:
            return "the memory store did not take what was to be saved"
        return ""

    @property
    def usage(self) -> Json | None:
        if self._limits.sum_usage:
            return self.mask.usage
        return next((u for u in reversed(self.usages) if u), self._replayed_usage)

    def events(self) -> AsyncGenerator[bytes, None]:
        """Return the events of `run`, after what must be recorded before the first of them."""
        if self._keeper is None:
            return self.run()
        return self._keeper.note_first(self.run(), self.session.conversation.name)

    # One loop, whose ends stand in their order.
    async def run(self) -> AsyncGenerator[bytes, None]:  # noqa: C901, PLR0912
        """Yield the events to show, up to `[DONE]`. Raises GatewayError."""
        self._opening.begin()
        try:
            replayed_events, goes_on = await self._replay() if self.session.rounds else (b"", True)
            if replayed_events:
                yield replayed_events
            if not goes_on:
                await self._opening.finish()
            while goes_on:
                if self._exits is not None and (last_part := await self._end_by_rule(self._exits)):
                    yield last_part.events
                    break
                reply = await self._sender.send(first=not (self.usages or self.session.rounds))
                if len(self._forward.route.targets) > 1:
                    self.mask.alias = self._forward.alias
                in_parts = bool(self.stream or self.usages or self._sender.hidden.messages)
                result = await read_whole(reply, self.mask, in_parts=in_parts)
                try:
                    await self._opening.wait(self._limits.patience)
                    if result is None:
                        async for events in stream_round(reply, self.mask, self._forward):
                            yield events
                finally:
                    await reply.incoming.close()
                if result is None:
                    last_events, result = await close_round(self.mask)
                    if last_events:
                        yield last_events
                goes_on = await self._end_round(reply, result)
                follows = goes_on or self._sender.options.stand_in is not None
                if follows and (between := self._show_between(goes_on=goes_on)):
                    yield between
            if ending := self.mask.finish():
                yield ending
            await self.record()
            if self.stream:
                yield await end_stream(self.mask, self.usage)
        finally:
            await self._opening.finish()

    def answers(self) -> list[Json]:
        """Return the messages the client was shown, one a choice."""
        return join_halves(self.mask.answers())

    async def _look(self, work: Callable[[], list[T]]) -> list[T]:
        """Look at the answer, in a thread if that takes longer than others may wait."""
        is_short = 0 < self._bytes <= SURE_BYTES
        is_long = not is_short and (self._bytes > LIGHT_BYTES or self.mask.is_long)
        if is_long:
            return await asyncio.to_thread(work)
        return work()

    async def _calls_of(self, result: RoundResult) -> list[ToolCall]:
        """Return our calls of a round; those whose arguments are too long are cut in it."""
        return await self._look(partial(self._forward.wire.calls, result))

    async def completion(self) -> bytes | list[bytes]:
        """Return the whole answer for a client that did not ask for a stream.

        It is the upstream's own bytes where nothing was changed.
        """
        return await write_body(self.mask, self.usage, self._bytes)

    async def record(self) -> None:
        """Record what the client was shown."""
        self.is_finished = True
        await self._sender.learn_from(self.usages[0] if self.usages else None)
        answers = await self._look(self.answers)
        if not answers:
            # The upstream gave no choice at all: there is nothing to record.
            await self.session.fail()
            return
        explain: Json = {"status": "degraded" if self.why_degraded else "ok"}
        if self._exits is not None:
            explain["unmet"] = self._exits.list_unmet()
        hidden = self._sender.hidden.recorded
        keeper = self._keeper
        session = self.session
        row = None
        if keeper is not None:
            conversation = session.conversation.name
            row = await keeper.row(self.mask, self.replies, self._sender.hidden, conversation)
        if keeper is not None:
            rows_beside = keeper.beside(row)
        else:
            rows_beside = {}
        is_proven = bool(self.usages or session.rounds)
        outcome = TurnOutcome(
            answers,
            hidden,
            prove=is_proven,
            explain=explain,
            rows_beside=rows_beside,
            served=self._by,
        )
        is_kept = await session.finish(outcome)
        if not is_kept:
            self._unrecorded = True
        if keeper is not None:
            is_written = is_kept and session.is_recording and not session.is_late
            keeper.settle(row, written=is_written)

    async def abandon(self, error: BaseException | None) -> None:
        """End the turn early.

        What was shown is kept, marked aborted; nothing is kept of refused credentials.
        """
        if self.is_finished:
            return
        self.is_finished = True
        if isinstance(error, UpstreamRefused) and error.status in (401, 403):
            await self.session.drop_all()
            return
        forward = self._forward
        if forward.among_many and forward.served is None and not await self.session.proven():
            # Else whoever invents keys and leaves in time could fill the disk.
            await self.session.drop_all()
            return
        await close_round(self.mask)
        shown_answers = await self._look(self.answers)
        answers = [{k: v for k, v in a.items() if k != "tool_calls"} for a in shown_answers]
        if not (self.stream and any(a.get("content") for a in answers)):
            await self.session.fail()
            return
        hidden = self._sender.hidden.recorded
        explain = {"status": "aborted"}
        await self.session.finish(
            TurnOutcome(answers, hidden, aborted=True, prove=True, explain=explain)
        )

    async def _replay(self) -> tuple[bytes, bool]:
        """Return what a retry shows again of the rounds that an earlier attempt finished.

        The flag is False if the last of them ended the turn: then nothing goes upstream.
        """
        out = b""
        for entry in self.session.rounds:
            events, result = self.mask.replay(entry["reply"])
            out += events
            self._replayed_usage = result.usage
            self.replies.append(result.reply)
            self._sender.hidden.reassign_ids_of(result.theirs)
            results = entry["results"]
            # Of calls that were running when the attempt broke off.
            if None in results:
                await self._write_opening()
                results = await self.session.run(await self._calls_of(result), entry["reply"])
            if not self._take_in(result, results):
                return out + self._show_between(goes_on=False), False
            out += self._show_between(goes_on=True)
        return out, True

    def _show_between(self, *, goes_on: bool) -> bytes:
        """Return what is shown behind a round. goes_on: another follows."""
        searches = b""
        if self._sender.options.stand_in is not None:
            searches = self._sender.options.stand_in.show(self.mask)
        return searches + ((self.mask.start_next_round() or b"") if goes_on else b"")

    async def _end_round(self, reply: CompletionReply, result: RoundResult) -> bool:
        """Run the calls of a round; True when another follows. Raises GatewayError."""
        reminder = ""
        if self._exits is not None:
            reminder = self._exits.remind(result)
        self._check_result(reply, result, is_last=not reminder)
        if result.ours or reminder:
            await self._write_opening()
        else:
            await self._opening.finish()
        if reminder:
            self._sender.hidden.add_reminder(result, reminder, self._by)
            return True
        return await self._run_memory_calls(result)

    async def _end_by_rule(self, exits: RuleExits) -> _LastPart | None:
        """Return the end of a turn whose answer is a tool's result; None while it goes on."""
        text = exits.begin_round(self.mask)
        if text is None:
            return None
        await self._opening.finish()
        before = self.replies[-1] if self.replies else None
        events, result = self.mask.end_with(self._sender.write_reply(text, before))
        self._sender.hidden.record_last(result, self._by)
        return _LastPart(events)

    async def _write_opening(self) -> None:
        """Write the request before its calls run: it has not had the upstream's time for it."""
        self._opening.begin(at_once=True)
        await self._opening.wait(self._limits.patience)
        await self._opening.finish()

    def _check_result(self, reply: CompletionReply, result: RoundResult, *, is_last: bool) -> None:
        self.usages.append(result.usage)
        self.replies.append(result.reply)
        self._forward.meter.record_usage(result.usage)
        self.session.trace.rounds.append(result.usage)
        came_whole = reply.plain is not None and not self.stream
        if result.error is not None or not (result.complete or came_whole):
            raise_for_incomplete(result, self._forward, whole=came_whole)
        is_only_round = len(self.usages) == 1 and not self.session.rounds and not result.ours
        if reply.plain is None:
            return
        self._bytes += len(reply.plain)
        if is_only_round and is_last:
            self.mask.pass_on(reply.plain, result)
        # The mask's now, which lets go of it when it writes another.
        reply.plain = b""

    async def _run_memory_calls(self, result: RoundResult) -> bool:
        """Run what is ours; True when another round follows."""
        sender = self._sender
        hidden = self._sender.hidden
        if not (result.ours or result.theirs or hidden.messages):
            return False
        hidden.reassign_ids_of(result.theirs)
        if not result.ours:
            hidden.record_last(result, self._by)
            return False
        if result.cut or sender.is_last:
            stands = sender.is_last or (result.cut and self._forward.wire.cut_is_final)
            is_only_ours = not result.theirs and not result.text_shown and not stands
            sender.withdraw_tools()
            if not is_only_ours:
                hidden.record_last(result, self._by)
            return is_only_ours
        answers = await self.session.run(await self._calls_of(result), result.reply)
        return self._take_in(result, answers)

    def _take_in(self, result: RoundResult, answers: Sequence[Result]) -> bool:
        """Take in what our calls of a round came to, now or in an earlier attempt.

        True when another round follows.
        """
        sender = self._sender
        client = self.session.prompt.messages
        if self._sender.options.stand_in is not None:
            self._sender.options.stand_in.take_in(self._forward.wire.calls(result), answers)
        sender.hidden.add_round(result, answers, client, self._by)
        if result.theirs:
            sender.hidden.record_mixed()
            return False
        if not sender.has_room:
            sender.hidden.record_mixed()
            self.mask.run_out()
            return False
        if self._sender.wants_json and result.text_shown:
            return False
        is_late = asyncio.get_running_loop().time() > self._limits.until
        if is_late or len(self.session.rounds) >= self._limits.rounds:
            sender.withdraw_tools()
        return True

    @property
    def _by(self) -> str:
        """Who gave the newest round; "" for a replayed one, of which that is not known."""
        reply = self._sender.reply
        if reply is not None:
            return reply.target.label
        return ""


def _mask(
    api: ApiFormat, body: Json, facts: RequestFacts, session: Session, forward: Dispatcher
) -> ReplyMask:
    """Return the mask of a request: our names are hidden where it may know of them."""
    prompt = session.prompt
    knows = bool(prompt.tools or prompt.core or prompt.plan.epoch.tools)
    if knows:
        owned = prompt.owned - facts.tool_names
    else:
        owned = frozenset()
    return api.mask(body, owned, forward.alias, injected=prompt.adds_anything, view=facts.view)
