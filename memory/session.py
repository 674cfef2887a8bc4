"""One request with memory: composed from one snapshot, its calls run, its answer recorded.

Promises kept here: the request is durable while the upstream works; a round's writes commit together with its ledger
entry; the answer is durable before the client is told it is done, or goes to the spill file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from sqlalchemy import Connection

from memory import epoch as epochs
from memory import tools
from memory.ask import Ask, Policy
from memory.blocks import Block, without_spans
from memory.errors import Erased, StoreUnavailable
from memory.explain import Injected, Trace
from memory.fit import COMPACTION, Fitted, Room, Sent, ahead, at_most, compact, fit, refused
from memory.history import NOTHING, Node, closed
from memory.ids import new_id, new_key
from memory.jobs import extraction, summaries
from memory.jobs.queue import Job
from memory.keeping import Attempt, Keeper, Summaries, Writes
from memory.lines import called
from memory.messages import Json, squeeze, text_of
from memory.prefix import Messages, Span, kept
from memory.recall import ITEMS, beginnings, relevant, told
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import facts as fact_rows
from memory.stores.sql import owners, turns
from memory.window import LOW, budget

EDIT_SECONDS = 0.5  # for the edits of one round
WRITE_SECONDS = 0.8  # for the answer before it is spilled, of what is left of the turn's patience
TOGETHER_SECONDS = 0.25  # for request and answer at once, which hold the whole answer up
LIGHT = (
    1 << 18
)  # characters of answers and of blocks, bytes of a request, that are looked at on the event loop
ITEM_WEIGHT = 1000  # characters that an answer, or a call in one, takes as long as
BYTES_A_TOKEN = 4  # roughly, where nothing was counted
UNAVAILABLE = "Error: the memory is unavailable right now, nothing was saved. Answer without it, and say so if it matters."


def weight_of(answers: Sequence[Json]) -> int:
    """Return how long answers take to look at, in characters of text."""
    return sum(
        len(text_of(a)) + ITEM_WEIGHT * (1 + len(a.get("tool_calls") or ())) for a in answers
    )


class Session:
    """See the module. The caller places `core`, `notes`, `splices`, `drop`, `swap` and `offered` into the request."""

    def __init__(
        self, memory: Keeper, ask: Ask, snapshot: turns.Snapshot, attempt: Attempt, policy: Policy
    ) -> None:
        self.patience = attempt.patience
        held = sum(len(b.value) for b in snapshot.blocks.values())
        self._store = Writes(memory, attempt.patience, heavy=ask.messages.heavy or held > LIGHT)
        self._memory, self._ask, self._snap, self._attempt, self._policy = (
            memory,
            ask,
            snapshot,
            attempt,
            policy,
        )
        self.trace = Trace()
        self.recall = ""
        self.sent: Sent | None = None  # by the turn before, of the beginning of this one's messages
        self._went: Sent | None = None
        self.hidden: list[Json] | None = None
        self.rounds: list[Json] = []  # finished rounds of an earlier attempt, then of this one
        self.offered: list[Json] = []
        self.forked_from: str | None = None
        self.node_id = new_key()
        self._scope_id = snapshot.scope_id
        self._counter = memory.counter(ask.tokenizer)
        self._opened = self._over = self._lost = False
        self.unsaved = False  # the store did not take what its tools would have written
        self._continues: int | None = None
        self._used: list[int] = []
        self._tools_tokens = 0
        self._head = snapshot.conversation.head if snapshot.conversation else None
        self._kept = ask.explicit is not None and ask.messages.after.newest < 0
        self._resumed = self._retries()
        self._adopted = self._adopts()
        self.explain_id = (
            f"{new_id('explain')}{self.node_id:016x}"  # random, and where its record stands
        )
        self.conversation = self._conversation()
        memory.busy_nodes.add(self.node_id)
        self._taken()

    # --- composing -------------------------------------------------------------------------------------------------

    def _retries(self) -> bool:
        """Whether this request goes on with the finished rounds of an earlier attempt."""
        ledger = self._snap.ledger
        if ledger is None or not self._attempt.first:
            return False
        lately = ledger.node.state != "done" and time.time() - ledger.node.at < turns.RETRY_SECONDS
        if not (lately or self._ask.certain):
            return False
        self.rounds = list(ledger.rounds)
        return True

    def _adopts(self) -> bool:
        """Whether it goes on with the earlier attempt's node, so that nothing is recorded twice."""
        waiting = self._snap.waiting
        if (
            waiting is None
            or waiting.id in self._memory.busy_nodes
            or not (self._resumed or waiting.state == "open")
        ):
            return False
        self.node_id = waiting.id
        return True

    def _taken(self) -> None:
        """Nobody else goes on from what is kept of the answer that this turn continues, or of the one it replaces."""
        if self.stores:
            ends = [n.chain for n in (self._snap.past.node, self._snap.waiting) if n] + [
                called(name) for name in (self._ask.explicit,) if name
            ]
            shelf = self._memory.lines.shelf(self._ask.scope.key) if ends else None
            for end in ends:
                self._memory.lines.take(shelf, end)

    def _conversation(self) -> turns.Conversation:
        """The one of the earlier attempt, the one named, the one continued, a fork of it, or a new one."""
        snap, explicit, node, found = (
            self._snap,
            self._ask.explicit,
            self._snap.past.node,
            self._snap.conversation,
        )
        if self._adopted and snap.waiting_in is not None:
            return snap.waiting_in
        if found is not None and (
            explicit
            or (node and found.head in (None, node.turn) and self._first_to_continue(node.id))
        ):
            return found
        if found is not None:
            self.forked_from = found.name
        return turns.Conversation(
            new_key(), explicit or new_id("conv"), bool(explicit), False, None
        )

    def _first_to_continue(self, node: int) -> bool:
        """Whether no other turn under way continues this node in another way: the first keeps the conversation's id."""
        ours = self._snap.turn.chain.end
        if self._memory.continued.setdefault(node, ours) != ours:
            return False
        self._continues = node
        return True

    async def compose(self) -> None:
        """Plans the epoch and fits the window; afterwards everything to place is there."""
        ask, snap = self._ask, self._snap
        stranger = not ask.scope.named and snap.past.node is None
        self.blocks = {k: b for k, b in snap.blocks.items() if not stranger or b.value}
        writable = ask.mode == "full"
        if ask.offer and ask.mode in ("full", "read") and not stranger and ask.inject:
            self.offered = tools.offered(ask.client_tools, write=writable)
            self._tools_tokens = self._counter.text(tools.text_of(self.offered))
        shown = list(self.blocks.values()) if self._injects else []
        planned = epochs.plan(
            snap.turn,
            snap.past if self._injects else epochs.Past(),
            epochs.Present(shown, ask.scope.tag, snap.edits, time.time(), snap.behind),
            self._policy.rules,
        )
        waiting = snap.waiting
        if (
            self._adopted
            and self.rounds
            and waiting
            and waiting.epoch == planned.epoch.id
            and planned.note
            and waiting.note
        ):  # what its rounds edited, they tell
            planned.notes[len(snap.turn.messages) - 1] = planned.note = waiting.note
            planned.told = waiting.told
        self.recall = await self._recalled(planned) if ask.recall and shown and not stranger else ""
        self._room = self._measured(shown, planned)
        self.sent = sent = (
            snap.sent if planned.epoch is snap.past.epoch and not self.recall else None
        )
        self._use(
            await fit(
                snap.turn,
                planned,
                self._room,
                sent.fitted if sent and sent.tokenizer == ask.tokenizer else None,
            )
            if self._injects
            else Fitted(planned)
        )
        self.seen = self._seen(shown)

    @property
    def _injects(self) -> bool:
        return self._ask.mode != "write" and self._ask.inject

    async def _recalled(self, planned: epochs.Plan) -> str:
        """What automatic recall adds: found once for a user's turn, the same while its tools run."""
        snap, waiting = self._snap, self._snap.waiting
        messages, node = snap.turn.messages, snap.past.node
        newest = messages.after.user
        if newest < 0 or self._scope_id is None:
            return ""
        if self._adopted and waiting is not None and waiting.recall is not None:
            return waiting.recall
        if newest < snap.past.at and node is not None:
            return node.recall or ""
        within = node.id if node and not self._ask.scope.named else None
        try:
            found = await relevant(
                self._memory.retrieval, self._scope_id, text_of(messages[newest]), within
            )
        except StoreUnavailable:
            return ""
        self._used = [h["key"] for h in found[:ITEMS] if "role" not in h]
        # What the request holds is decoded for this, and looked at.
        held = self._held(planned)
        light = self._ask.size <= LIGHT
        present = beginnings(held) if light else await asyncio.to_thread(beginnings, held)
        return told(found, present, self._ask.scope.tag, self._counter)

    def _held(self, planned: epochs.Plan) -> Sequence[Json]:
        """The messages that the request holds: not those that its epoch left behind."""
        messages, mark = self._snap.turn.messages, self._snap.turn.mark
        if mark is None or mark.link != planned.epoch.cut:
            return messages
        self._snap.turn.enter()
        return [messages[i] for i in [*mark.stays, *range(mark.index, len(messages))]]

    def _measured(self, shown: Sequence[Block], planned: epochs.Plan) -> Room:
        ask, counter = self._ask, self._counter
        other = counter.tools(ask.client_tools) + self._tools_tokens + counter.text(self.recall)
        room = budget(ask.window, ask.max_output) if ask.window else None
        found = self._snap.conversation
        stored = Summaries(
            self._memory.db,
            self._snap.owner,
            self._scope_id,
            found.id if found else None,
            self.conversation.id if ask.mode != "read" else None,
            self.trace.notes,
            self.patience,
            self._snap.behind,
        )
        return Room(
            counter,
            ask.model,
            shown,
            ask.scope.tag,
            self._snap.edits,
            room,
            other,
            ask.complete,
            stored.load,
            stored.save,
            self._policy.summary_seconds,
            stored.coming,
            None
            if self._snap.prepended
            else at_most(self._snap.turn, planned, ask.size, self.recall, bool(self.offered)),
        )

    def _use(self, fitted: Fitted) -> None:
        self.fitted = fitted
        plan = fitted.plan
        self.core, self.notes, self.splices = plan.epoch.core, plan.notes, plan.splices
        self.drop, self.swap = fitted.drop, fitted.swap
        if plan.reason == COMPACTION:
            self.sent = self._went = None
        if fitted.how:
            self.trace.evicted.append(
                {
                    "how": fitted.how,
                    "messages": len(fitted.drop),
                    "elided": len(fitted.swap),
                    "tokens": fitted.tokens,
                }
            )

    def _seen(self, shown: Sequence[Block]) -> dict[str, int]:
        """Label to version as the model sees it; a change still waiting for its user message counts as unseen."""
        told = epochs.overlaid(self.fitted.plan.epoch.blocks, self.fitted.plan.told)
        return {b.label: b.version for b in shown if told.get(b.label) == b.value}

    def went(self, by: str, pieces: Sequence[bytes | Span]) -> None:
        """What was sent for the messages of this turn, and to whom: the next one goes on from it, unless something in it is not replayed
        or stands elsewhere then."""
        fitted, after = self.fitted, self._snap.turn.messages.after
        if not self.recall and self.core and fitted.cut < after.user:
            self._went = Sent(after, by, pieces, fitted, fitted.plan.places, self._ask.tokenizer)

    @property
    def messages(self) -> Messages:
        """The history to send: the client's messages, after the server-kept ones where it sends none."""
        return self._snap.turn.messages

    @property
    def client(self) -> Messages | None:
        """The messages as they came, where the next request will begin with them."""
        return None if self._kept else self._snap.turn.messages

    def inject_nothing(self) -> None:
        """The target took only the client's own body: nothing of ours was in it, so none of it may be believed placed."""
        self.core, self.notes, self.splices, self.offered, self.recall = "", {}, {}, [], ""
        self.fitted.plan.note = ""
        self.trace.notes.append(
            "the target refused the request with memory in it; the client's own was sent"
        )

    def measured(self, usage: Json | None) -> None:
        """Lets the token estimate learn from what the upstream counted."""
        reported = (usage or {}).get("prompt_tokens")
        if isinstance(reported, int) and self.core and self.fitted.held:
            self._counter.correct(self._ask.model, self.fitted.held + self._room.other, reported)

    @property
    def injected_tokens(self) -> int:
        counter = self._counter
        return int(
            counter.text(self.core)
            + sum(counter.text(n) for n in self.notes.values())
            + (self._tools_tokens if self.offered else 0)
        )

    async def compact_harder(self, attempt: int, told: tuple[int, int] | None = None) -> bool:
        """After the upstream's own refusal for size: cuts to a half, then a quarter, and remembers how far the count was from the
        truth. told: the tokens of the prompt and of the window, where the refusal names them. False when nothing more can go."""
        if not self._injects:
            return False  # a summary would have to be placed
        self.fitted = refused(self._snap.turn, self.fitted, self._room, told[0] if told else None)
        before = self.fitted.tokens
        goal = int(before * (0.5, 0.25)[attempt])
        if told:
            goal = min(goal, int(LOW * budget(told[1], self._ask.max_output)))
        fitted = await compact(self._snap.turn, self.fitted, self._room, goal)
        if fitted.tokens >= before:
            return False
        self._use(fitted)
        return True

    # --- writing ---------------------------------------------------------------------------------------------------

    @property
    def stores(self) -> bool:
        return self._ask.mode != "read"

    @property
    def waits(self) -> bool:
        """Whether the request may be written together with its answer, should that come within moments."""
        return (
            self.stores
            and self._scope_id is not None
            and not self._adopted
            and not self._store.heavy
        )

    async def open(self) -> None:
        """Makes the request durable. Raises StoreUnavailable or Erased; it is then lost to the memory."""
        if not self.stores or self._opened:
            return
        opening = await self._store.look(self._opening)
        self._lost = True
        self._scope_id = await self._store.write(lambda conn: turns.open_turn(conn, opening))
        self._opened, self._lost = True, False

    def _opening(self) -> turns.Opening:
        snap = self._snap
        node = epochs.opened(
            self.node_id, self.conversation.id, snap.turn, snap.past, self.fitted.plan
        )
        node.at, node.recall = time.time(), self.recall
        if self._ask.mode == "write" or not self.core:
            node.epoch = None
        tag = self._ask.scope.tag
        added = range(snap.since, len(snap.turn.messages))
        fresh = [
            (without_spans(snap.turn.messages[i], tag), snap.turn.chain.digest(i)) for i in added
        ]
        return turns.Opening(
            snap.owner,
            self.conversation,
            self.forked_from,
            node,
            fresh,
            self._attempt.key,
            self._adopted,
            self.rounds,
            snap.scope_id,
        )

    async def drop_all(self) -> None:
        """Takes the opened turn back (the upstream refused its credentials). A store that is late goes on with it by itself."""
        self._over = True
        try:
            if self._opened and self._scope_id is not None and not self._adopted:
                scope_id = self._scope_id
                dropping = asyncio.ensure_future(
                    self._memory.db.write(
                        lambda conn: turns.drop_turn(conn, scope_id, self.node_id)
                    )
                )
                dropping.add_done_callback(lambda task: task.cancelled() or task.exception())
                with self.patience.of(WRITE_SECONDS) as seconds:
                    await asyncio.wait([dropping], timeout=seconds)
        finally:
            self.release()

    async def proven(self) -> bool:
        """Whether an upstream ever answered this tenant, as far as the store can tell."""
        tenant = self._ask.scope.tenant
        try:
            return await self._memory.db.read(
                lambda conn: owners.proven(conn, tenant), WRITE_SECONDS
            )
        except StoreUnavailable:
            return False

    async def run(self, calls: Sequence[tools.Call], reply: Json) -> list[str]:
        """Runs one round's calls. reply: the completion they came in, for the ledger. Returns a result a call; never raises
        for what a tool or the store did."""
        started = time.perf_counter()
        hands = self._hands()
        lost, done = (
            self.stores and not self._opened,
            False,
        )  # the store did not even take the request
        found = {} if lost else await tools.run_searches(calls, hands)

        def work(conn: Connection) -> dict[int, str]:
            owners.ensure(conn, self._snap.owner)
            results = {**found, **tools.run_edits(conn, calls, hands)}
            fact_rows.used(conn, hands.found)
            entry = {"reply": reply, "results": [results[i] for i in range(len(calls))]}
            turns.round_done(conn, self.node_id, [*self.rounds, entry])
            return results

        try:
            if lost:
                raise StoreUnavailable("the turn is not recorded")
            results = (
                await self._store.write(work, EDIT_SECONDS)
                if self.stores
                else {**found, **tools.refused(calls, hands)}
            )
            done = self._ask.scope.named  # a branch has blocks of its own
        except (StoreUnavailable, Erased):
            self.unsaved = True
            results = {**dict.fromkeys(range(len(calls)), UNAVAILABLE), **found}
        finally:  # a client that leaves may do so the moment it is written
            if any(c.name in tools.WRITES for c in calls):
                self._attempt.edits(self._memory.lines, self._ask.scope.key, done)
        told = [results[i] for i in range(len(calls))]
        self.rounds.append({"reply": reply, "results": told})
        took = round((time.perf_counter() - started) * 1000, 2)
        self.trace.tools += [
            {
                "round": len(self.rounds),
                "name": c.name,
                "arguments": c.arguments,
                "result": r,
                "ms": took,
            }
            for c, r in zip(calls, told, strict=True)
        ]
        return told

    def _hands(self) -> tools.Hands:
        named = self._ask.scope.named
        parent = self._snap.past.node
        inherited = parent.branch if parent and not named else 0
        shelf = block_rows.Shelf(
            self._scope_id, self._policy.blocks, 0 if named else self.node_id, inherited
        )
        allowed = frozenset(x["function"]["name"] for x in self.offered)
        return tools.Hands(
            self._scope_id or 0,
            shelf,
            self._memory.retrieval,
            self._ask.request_id,
            self.seen,
            None if named else self.node_id,
            self.node_id,
            allowed,
        )

    async def finish(
        self,
        answers: Sequence[Json],
        *,
        aborted: bool = False,
        prove: bool = False,
        explain: Json | None = None,
    ) -> bool:
        """Records the answers (one a choice) as the client was shown them, and the request with them where it was not written yet.
        A store that fails now is spilled to a file. Returns False where nothing of the turn is kept."""
        if self._over or not self.stores or self._lost:
            self.release()
            return not self._lost
        self._over = True
        self._store.heavy = self._store.heavy or weight_of(answers) > LIGHT
        try:
            record, opening = await self._store.look(
                self._closing, answers, aborted, prove, explain or {}
            )
            record.jobs = await self._jobs(answers)
            shelf = block_rows.Shelf(self._scope_id, self._snap.defaults)
            head, self._snap.blocks = await self._store.write(
                lambda conn: (
                    turns.record(conn, record, opening),
                    self._attempt.blocks(conn, shelf, self._snap.blocks),
                ),
                WRITE_SECONDS if opening is None else TOGETHER_SECONDS,
            )
            self._leave(record, head)
        except Erased:
            pass  # the user was erased while this ran: nothing of it may stay
        except StoreUnavailable:
            return opening is None and await self._store.spilled(
                record
            )  # else the client was told nothing yet
        finally:
            self.release()
        return True

    def _closing(
        self, answers: Sequence[Json], aborted: bool, prove: bool, explain: Json
    ) -> tuple[turns.Record, turns.Opening | None]:
        return self._record(
            answers, aborted, prove, explain
        ), None if self._opened else self._opening()

    def _leave(self, record: turns.Record, head: int) -> None:
        """What the next turn of this conversation would read is kept for it, where it is as plain as that turn will ask for it."""
        self._memory.retrieval.indexing.added()
        snap, node, line = self._snap, record.nodes[0], self.conversation
        if line.explicit:  # where it stands now: another turn may have left it since this one began
            self._memory.lines.take(
                self._memory.lines.shelf(self._ask.scope.key), called(line.name)
            )
        overtaken = node.parent != (snap.past.node.id if snap.past.node else None)
        if (
            len(record.nodes) > 1
            or node.state != "done"
            or head != node.turn
            or overtaken
            or self._adopted
            or not node.epoch
        ):
            return
        plan = self.fitted.plan
        carriers = [c for c in snap.past.carriers if c.id in plan.places]
        if node.note or node.hidden:
            carriers.append(node)
        left = turns.Conversation(
            line.id, line.name, line.explicit, line.resent or record.resent, head
        )
        there = turns.Snapshot(
            snap.owner,
            self._scope_id,
            NOTHING,
            edits=snap.edits,
            blocks=snap.blocks,
            defaults=snap.defaults,
            past=epochs.Past(node, -1, plan.epoch, carriers),
            conversation=left,
            sent=self._went,
            behind=snap.behind,
        )
        where = node.chain
        if self._kept and not left.resent:
            added = snap.turn.messages[snap.since :]
            there.kept = (
                kept(snap.turn.messages, snap.kept, record.answers[0])
                if all(without_spans(m, self._ask.scope.tag) == m for m in added)
                else None
            )
            where = called(line.name)
        self._memory.lines.keep(self._ask.scope.key, self._attempt.shelf, where, there)

    async def _jobs(self, answers: Sequence[Json]) -> list[Job]:
        """What follows this turn in the background; it is written with the turn."""
        embedded = self._memory.retrieval.jobs(self._scope_id) if self._ask.scope.named else []
        if self._ask.mode != "full":
            return embedded
        facts = (
            [extraction.job_of(self.node_id, self.conversation.id, self._ask.model)]
            if self._ask.extract and self._ask.scope.named
            else []
        )
        tidied = (
            self._policy.reflect.jobs(self._ask.scope.key, self._ask.model)
            if self._ask.scope.named
            else []
        )
        return [*embedded, *facts, *tidied, *await self._ahead(answers)]

    async def _ahead(self, answers: Sequence[Json]) -> list[Job]:
        if not (self._policy.ahead and self._injects):
            return []
        try:
            found = await ahead(self._snap.turn, self.fitted, self._room, answers)
        except StoreUnavailable:
            return []  # the next turn looks again
        return [summaries.job_of(found, self.conversation.id, self._ask.model)] if found else []

    def _record(
        self, answers: Sequence[Json], aborted: bool, prove: bool, explain: Json
    ) -> turns.Record:
        snap, key = self._snap, self._ask.scope.key
        nodes: list[Node] = []
        for i, answer in enumerate(answers):
            node = epochs.opened(
                self.node_id if i == 0 else new_key(),
                self.conversation.id,
                snap.turn,
                snap.past,
                self.fitted.plan,
            )
            node.turn, node.recall = self.node_id, self.recall
            closed(node, snap.past.node, *self._memory.seen.after(key, node.asked, answer))
            if aborted:
                node.state, node.text = "aborted", squeeze(text_of(answer))
            if not self._ask.scope.named and any(
                x["name"] in tools.WRITES for x in self.trace.tools
            ):
                node.branch = self.node_id
            node.hidden = self.hidden if i == 0 else None
            if self._ask.mode == "write" or not self.core:
                node.epoch = node.note = None
            nodes.append(node)
        fresh = (
            self.fitted.plan.epoch
            if self.fitted.plan.reason and self.core and self._ask.mode == "full"
            else None
        )
        evicted = [
            (snap.turn.messages[i], snap.turn.chain.digest(i))
            for i in self.fitted.evicted
            if not snap.prepended and i < snap.turn.suffix
        ]
        return turns.Record(
            snap.owner,
            self.conversation.id,
            nodes,
            list(answers),
            snap.turn.newest >= 0 and not snap.prepended,
            fresh,
            (self.explain_id, self._explained(explain)),
            evicted,
            prove,
            key,
            self._head,
            self._kept,
            self._adopted,
            used=self._used,
            scope_id=self._scope_id,
            parent_turn=snap.past.node.turn if snap.past.node else None,
        )

    def _explained(self, more: Json) -> Json:
        ask, fitted = self._ask, self.fitted
        injected = Injected(
            None if self.core and ask.mode == "full" else self.core,
            self.notes,
            self.splices,
            self.recall,
            [x["function"]["name"] for x in self.offered],
            self._snap.prepended,
        )
        return {
            "id": self.explain_id,
            "object": "explain",
            "request_id": ask.request_id,
            "conversation": self.conversation.name,
            "agent": ask.scope.agent,
            "model": ask.model,
            **self.trace.told(
                fitted.plan,
                injected,
                self.injected_tokens,
                fitted.tokens or ask.size // BYTES_A_TOKEN,
            ),
            **more,
        }

    async def fail(self) -> None:
        """The turn ended without an answer: what the request said stays, and a repetition of it is a retry."""
        if self._over or self._lost or not self.stores:
            self.release()
            return
        try:
            with self.patience.of(WRITE_SECONDS) as seconds:  # the client has not been told why yet
                async with asyncio.timeout(seconds):
                    await (
                        self._store.write(lambda conn: turns.attempt_failed(conn, self.node_id))
                        if self._opened
                        else self.open()
                    )
            self._over = True
        except (StoreUnavailable, Erased, TimeoutError):
            self.trace.notes.append("the failed attempt could not be noted")
        finally:
            self.release()

    def release(self) -> None:
        """Lets a duplicate of this request go on. Safe to call again."""
        self.__dict__.pop(
            "_room", None
        )  # it holds methods of ours, and a request is large to be left to the collector
        self._memory.busy_nodes.discard(self.node_id)
        if self._continues is not None:
            self._memory.continued.pop(self._continues, None)
            self._continues = None
        if self._attempt.first:
            self._memory.land(self._attempt.key)
