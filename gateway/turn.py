"""The turn: compose, then repeat {forward, intercept, execute}, then record. One generator for stream and plain.

It yields the events to show, those together that came together. An exception before the first of them still has its own status;
after it, the caller tells it in-band. Rules: MEMORY.md 4.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from gateway.errors import (
    GatewayError,
    StreamIncomplete,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.forward import Composed, Forwarder, Reply, chunk_of, fed
from gateway.intercept import Interceptor, Round
from gateway.refusals import is_overflow, overflowed, sizes_told
from gateway.routing import Target
from gateway.sse import DONE, Event, frame
from gateway.wire.chat import Json, chunk, decode, encode, lift
from gateway.wire.place import BY, Placement, placed, without_tools
from memory.errors import Erased, StoreUnavailable
from memory.session import Session
from memory.tools import OURS, Call, as_json, client_names

ADDITIONS_REFUSED = (400, 404, 422)
TOGETHER_SECONDS = 0.05  # that a request waits for a whole answer, to be written with it
PLAIN_ID = re.compile(
    r"[\w.:-]+", re.ASCII
).fullmatch  # one that JSON spells in one way, as good as always
FEW = 4  # ids that are looked for in all the bytes of a request
STORE_SECONDS = 0.1  # more for a store that is late, once all of a round has been shown: a whole answer waits 250 ms at most


@dataclass(slots=True)
class Bounds:
    """rounds: upstream calls before the last one without our tools. until: the loop's time after which the next is that one.
    patience: seconds that an answer waits for the store."""

    rounds: int = 8
    until: float = float("inf")
    sum_usage: bool = True
    patience: float = 0.15


async def played(
    reply: Reply, icpt: Interceptor, forward: Forwarder
) -> AsyncGenerator[bytes, None]:
    """What to show of one round. An error of the upstream's own is its end; what breaks off after every finish is whole."""
    if reply.chunk is not None and (whole := icpt.feed(reply.chunk)):
        yield framed(whole)
    events, body, framer = reply.events, reply.incoming.body, reply.framer
    try:
        while events:
            out: list[bytes] = []
            end = await _taken(events, icpt, out)
            if out:
                yield b"".join(out)
            if isinstance(end, StreamIncomplete):
                raise end
            if end is not None:
                if end.data == DONE:
                    await reply.incoming.drained()
                return
            async for data in body:
                if framer.between and (shown := icpt.passed(data)):
                    framer.count += 1
                    yield shown
                elif events := fed(framer, data):
                    break
            else:
                events = fed(framer, None)
    except GatewayError as e:
        await forward.broke(e)
        if not (icpt.ended and isinstance(e, StreamIncomplete | UpstreamTimeout)):
            raise


async def _taken(
    events: list[Event], icpt: Interceptor, out: list[bytes]
) -> Event | StreamIncomplete | None:
    """Adds what to show of these events. Returns what nothing counts after, if it is among them: the last event, or what is none."""
    for event in events:
        if shown := icpt.passed(event.raw):
            out.append(shown)
        elif event.data == DONE:
            out += map(frame, icpt.done())
            return event
        elif event.data:
            try:
                piece = await chunk_of(event)
            except StreamIncomplete as e:
                return e
            out += map(frame, icpt.feed(piece))
            if piece.error is not None:
                return event
    return None


def framed(payloads: list[bytes]) -> bytes:
    """JSON texts as events."""
    return b"".join(map(frame, payloads))


def check(result: Round, forward: Forwarder, whole: bool) -> None:
    """Raises UpstreamFailed for an error inside the stream and, unless it came whole, StreamIncomplete for a missing finish."""
    if result.error is not None:
        failed = UpstreamFailed(decode(forward.scrubbed(encode(result.error))))
        if forward.served is not None:
            forward.noted(failed, forward.served)
        raise failed
    if not result.complete and not whole:
        raise StreamIncomplete(
            "The upstream's stream ended before the answer was complete. What came is above; try again."
        )


@dataclass
class Turn:
    """One client request from composing to its last chunk. lacks: told when the target refused our additions. frozen: the core
    text stays the same for an epoch, and is no live one."""

    body: Json
    session: Session
    forward: Forwarder
    bounds: Bounds
    ask_usage: bool = True
    lacks: Any = None
    frozen: bool = True
    degraded: bool = False
    reply: Reply | None = None
    used: list[Json | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = self.body.get("stream_options")
        wants = isinstance(options, dict) and bool(options.get("include_usage"))
        hidden = (
            OURS - client_names(self.body.get("tools"))
            if self.session.offered or self.session.core
            else frozenset()
        )
        self.stream = bool(self.body.get("stream"))
        self.icpt = Interceptor(
            hidden, wants or not self.stream, self.forward.alias, lean=self.stream
        )
        self.json_only = (
            (self.body.get("response_format") or {}).get("type") in ("json_object", "json_schema")
            if isinstance(self.body.get("response_format"), dict)
            else False
        )
        self.trail: list[Json] = []  # hidden messages after the client's own
        self.plain: bytes | None = None  # the upstream's own bytes, while they are the whole answer
        self.whole: Json | None = None  # and what they say
        self.bare = False  # the client's own body is sent, without additions of ours
        self.toolless = not self.session.offered
        self.finished = False
        self._last_usage: Json | None = None  # of the rounds that an earlier attempt finished
        self._opening: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events to show, up to `[DONE]`. Raises GatewayError."""
        self._begin()
        try:
            replayed, over = self._replayed()
            if replayed:
                yield framed(replayed)
            if over:
                await self._settled()
            while not over:
                reply = self.reply = await self._forwarded()
                self.icpt.alias = self.forward.alias
                result = (
                    None if self.stream or self.used or self.trail else self.icpt.whole(reply.chunk)
                )
                try:
                    await self._in_time(self.bounds.patience)
                    if result is None:
                        async for shown in played(reply, self.icpt, self.forward):
                            yield shown
                finally:
                    await reply.incoming.close()
                if result is None:
                    rest, result = self.icpt.close()
                    if rest:
                        yield framed(rest)
                self._checked(reply, result)
                if result.ours:
                    self._begin(at_once=True)
                    await self._in_time(
                        self.bounds.patience
                    )  # what it writes now has not had the upstream's time for it
                await self._settled()
                if not await self._goes_on(result):
                    break
                self.icpt.proceed()
            if last := self.icpt.finish():
                yield framed(last)
            await self.record()
            yield framed([*self.icpt.usage_chunk(self.usage), DONE])
        finally:
            await self._settled()

    def _begin(self, *, at_once: bool = False) -> None:
        """Makes the request durable while the upstream works. A whole answer that comes within moments is written together with it."""
        if self._opening is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.stream or at_once or not self.session.waits:
            self._opening = asyncio.ensure_future(self._open())
        else:
            self._timer = asyncio.get_running_loop().call_later(
                TOGETHER_SECONDS, partial(self._begin, at_once=True)
            )

    async def _in_time(self, patience: float) -> bool:
        """Whether the store has taken the request by now, or within `patience` seconds.

        The upstream has answered, and what goes to the client is not held up: it is told `degraded`, and the store goes on
        trying until its answer is needed."""
        if self._timer is not None:
            self._timer.cancel()
        if (opening := self._opening) is None:
            return True
        if not opening.done():
            with self.session.patience.of(patience) as seconds:
                await asyncio.wait([opening], timeout=seconds)
        if opening.done():
            if not opening.cancelled():
                opening.result()
            return True
        self.degraded = True
        return False

    async def _settled(self) -> None:
        """What was begun is there to be kept or taken back as a whole; a store that still does not answer goes without."""
        if not await self._in_time(STORE_SECONDS) and self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])

    async def _open(self) -> None:
        try:
            await self.session.open()
        except (StoreUnavailable, Erased):
            self.degraded = True

    def _replayed(self) -> tuple[list[bytes], bool]:
        """What a retry shows again of the rounds that an earlier attempt finished, and whether the
        last of them ended the turn: then nothing goes upstream."""
        out: list[bytes] = []
        for entry in self.session.rounds:
            out += self.icpt.feed(chunk(lift(entry["reply"]), b""))
            rest, result = self.icpt.close()
            out += rest
            self._last_usage = result.usage
            self._set_apart(result)
            if not self._follows(result, entry["results"]):
                return out, True
            self.icpt.proceed()
        return out, False

    # --- one round ------------------------------------------------------------------------------------------------------

    def composed(self, target: Target) -> Composed:
        """The request as it goes upstream now. What the turn before sent to this target is gone on from."""
        s = self.session
        if self.bare:
            return self.body, (), s.client
        tools = () if self.toolless else as_json(s.offered)
        sent = (
            s.sent
            if s.sent is not None
            and s.sent.by == target.label
            and (s.client is None or s.client.text)
            else None
        )
        body = placed(
            {**self.body, "messages": s.messages},
            Placement(
                s.core,
                s.notes,
                s.splices,
                s.drop,
                s.swap,
                s.recall,
                tools,
                sent.of.count if sent else 0,
            ),
        )
        if self.trail:
            body["messages"] = [*body["messages"], *self.trail]
        if self.toolless and s.offered:
            body = without_tools(body, self.body)
        options = body.get("stream_options")
        if self.stream and self.ask_usage and (options is None or isinstance(options, dict)):
            body["stream_options"] = {**(options or {}), "include_usage": True}
        return body, sent.pieces if sent else (), s.client

    async def _forwarded(self) -> Reply:
        """One upstream call, composed anew after a refusal for size, or for our additions in the first round. What does not fit
        however hard it is compacted goes without additions, so that no client sees an overflow that we alone caused."""
        harder, began_bare, lacking = 0, self.bare, False
        while True:
            try:
                another = bool(self.used or self.session.rounds or self.bare or harder)
                reply = await self.forward.open(
                    self.composed,
                    another=another,
                    frozen=self.frozen and bool(self.session.core) and not self.bare,
                )
            except UpstreamRefused as e:
                if is_overflow(e):
                    if (
                        not self.bare
                        and harder < 2
                        and await self.session.compact_harder(harder, sizes_told(e))
                    ):
                        harder += 1
                        continue
                    if not self.bare and (self._added() or self.trail):
                        self.bare = self.toolless = True
                        continue
                    raise overflowed(e) from e
                if (
                    e.status in ADDITIONS_REFUSED
                    and not self.trail
                    and not self.bare
                    and self._added()
                ):
                    self.bare = lacking = True
                    continue
                raise
            if not (self.bare or self.trail):
                self.session.went(reply.target.label, reply.messages)
            if self.bare and not began_bare:
                self.degraded = True
                self.session.inject_nothing()
                if lacking and self.lacks is not None:
                    self.lacks(reply.target)
            return reply

    def _added(self) -> bool:
        s = self.session
        return bool(s.core or s.notes or s.offered or s.recall)

    def _checked(self, reply: Reply, result: Round) -> None:
        self.used.append(result.usage)
        self.forward.meter.told(result.usage)
        self.session.trace.rounds.append(result.usage)
        check(result, self.forward, whole=reply.plain is not None and not self.stream)
        self.plain = (
            reply.plain
            if len(self.used) == 1 and not self.session.rounds and not result.ours
            else None
        )
        self.whole = result.reply

    async def _goes_on(self, result: Round) -> bool:
        """Runs what is ours; True when another round follows."""
        self._set_apart(result)
        if not result.ours:
            if self.trail and result.theirs:
                self.session.hidden = [*self.trail, self._message(result)]
            return False
        if result.cut or self.toolless:
            alone = not result.theirs and not result.text_shown and not self.toolless
            self.toolless = True
            if self.trail and result.theirs:
                self.session.hidden = [
                    *self.trail,
                    {**self._message(result), "tool_calls": result.theirs},
                ]  # ours were not run: no result, no call
            return alone
        calls = [
            Call(str(c.get("id") or ""), str(c["function"]["name"]), _arguments(c))
            for c in result.ours
        ]
        results = await self.session.run(calls, result.reply)
        self.degraded = self.degraded or self.session.unsaved
        return self._follows(result, results)

    def _follows(self, result: Round, results: list[str]) -> bool:
        """Takes in what our calls of a round came to, now or in an earlier attempt; True when another
        round follows."""
        self._hide(result, results)
        if result.theirs:
            self.session.hidden = list(self.trail)
            return False
        if self.json_only and result.text_shown:
            return False
        late = asyncio.get_running_loop().time() > self.bounds.until
        self.toolless = self.toolless or late or len(self.session.rounds) >= self.bounds.rounds
        return True

    def _set_apart(self, result: Round) -> None:
        """Gives hidden calls new ids where the client's own calls of this reply have theirs."""
        self.trail = _set_apart(
            self.trail, {c["id"] for c in result.theirs if isinstance(c.get("id"), str)}
        )

    def _hide(self, result: Round, results: list[str]) -> None:
        """Puts the exchange behind the history: the assistant's message as received, then our results."""
        message = self._message(result)
        ours = {id(c) for c in result.ours}
        taken = {str(c.get("id")) for c in [*called(self.trail), *result.theirs]}
        taken |= self._taken({str(c["id"]) for c in result.ours if c.get("id")})
        calls: list[Json] = []
        answers: list[Json] = []
        told = iter(results)
        for call in message.get("tool_calls") or []:
            if id(call) in ours:
                if not call.get("id") or str(call["id"]) in taken:
                    call = {**call, "id": f"call_{secrets.token_hex(12)}"}
                taken.add(str(call["id"]))
                answers.append({"role": "tool", "tool_call_id": call["id"], "content": next(told)})
            calls.append(call)
        self.trail += [{**message, "tool_calls": calls}, *answers]

    def _taken(self, ids: set[str]) -> set[str]:
        """Which of these ids the client's messages may hold: found in their bytes, so that none of them is decoded for it."""
        messages = self.session.messages
        if len(ids) > FEW or not messages.text:
            return ids & {str(c.get("id")) for c in called(messages)}
        return {i for i in ids if not PLAIN_ID(i) or f'"{i}"'.encode() in messages.text}

    def _message(self, result: Round) -> Json:
        """A round's message as received, with who gave it, where that is known: a replayed one is sent as it is."""
        message: Json = result.reply["choices"][0].get("message") or {}
        by = {BY: self.reply.target.label} if self.reply is not None else {}
        return {"role": "assistant", **message, **by}

    # --- the end ----------------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> Json | None:
        if self.bounds.sum_usage:
            return self.icpt.usage
        return next((u for u in reversed(self.used) if u), self._last_usage)

    def answers(self) -> list[Json]:
        """The messages the client was shown, one a choice."""
        if self.plain is not None and self.whole is not None:
            return [{"role": "assistant", **c["message"]} for c in self.whole["choices"]]
        return [
            {"role": "assistant", **(c.get("message") or {})} for c in self.icpt.answer()["choices"]
        ]

    def completion(self) -> bytes:
        """The whole answer for a client that did not ask for a stream: the upstream's own bytes where nothing was changed."""
        if self.plain is not None:
            alias = self.forward.alias
            return self.plain if alias is None else encode({**decode(self.plain), "model": alias})
        out = self.icpt.answer()
        if self.usage is not None:
            out["usage"] = self.usage
        return encode(out)

    async def record(self) -> None:
        self.finished = True
        self.session.measured(self.used[0] if self.used else None)
        if not (answers := self.answers()):
            await (
                self.session.fail()
            )  # the upstream gave no choice at all: there is nothing to record
            return
        if not await self.session.finish(
            answers, prove=True, explain={"status": "degraded" if self.degraded else "ok"}
        ):
            self.degraded = True

    async def abandon(self, error: BaseException | None) -> None:
        """The turn ended early: what was shown is kept, marked aborted; nothing is kept of refused credentials."""
        if self.finished:
            return
        self.finished = True
        if isinstance(error, UpstreamRefused) and error.status in (401, 403):
            await self.session.drop_all()
            return
        if (
            self.forward.among_many
            and self.forward.served is None
            and not await self.session.proven()
        ):
            await (
                self.session.drop_all()
            )  # else whoever invents keys and leaves in time could fill the disk
            return
        self.icpt.close()
        answers = [{k: v for k, v in a.items() if k != "tool_calls"} for a in self.answers()]
        if self.stream and any(a.get("content") for a in answers):
            await self.session.finish(
                answers, aborted=True, prove=True, explain={"status": "aborted"}
            )
        else:
            await self.session.fail()


def called(messages: Iterable[Json]) -> list[Json]:
    """The calls in these messages."""
    return [c for m in messages for c in m.get("tool_calls") or []]


def _set_apart(hidden: list[Json], taken: set[str]) -> list[Json]:
    """Hidden exchanges with new ids for those calls of ours whose id the client's own call of this reply has."""
    fresh = {i: f"call_{secrets.token_hex(12)}" for i in taken}
    out: list[Json] = []
    for message in hidden:
        if (answered := str(message.get("tool_call_id"))) in fresh:
            message = {**message, "tool_call_id": fresh[answered]}
        elif calls := message.get("tool_calls"):
            message = {
                **message,
                "tool_calls": [
                    {**c, "id": fresh[i]} if (i := str(c.get("id"))) in fresh else c for c in calls
                ],
            }
        out.append(message)
    return out


def _arguments(call: Json) -> str:
    arguments = call["function"].get("arguments")
    return (
        arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    )
