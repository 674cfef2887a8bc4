"""Writes the facts of some turns, and records what was read, kept and dropped of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from sqlalchemy import Connection

from memory.jobs import fact_prompt
from memory.jobs.evidence import find_evidence, fold_texts, is_about
from memory.jobs.extraction_input import AGAIN, READS_REST, ExtractionInput, KnownFacts
from memory.jobs.fact_answer import FactAnswer, ProposedFact
from memory.jobs.fact_origin import ACTOR, FactOrigin, name_speaker, origin_of, set_edited_aside
from memory.jobs.human_block import LABEL, HumanBlock
from memory.search import dedup
from memory.search.drop_reasons import Drop, Reason
from memory.stores.sql.rows import job_records, scopes
from memory.stores.sql.rows import passage_lifecycle as fact_rows
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.rows.job_records import JobRecord
from memory.stores.sql.rows.jobs import QueuedJob, enqueue
from memory.stores.sql.turns import unread_turns

KIND = "extract"
LASTING = ("identity", "preference")
# Until turns that were set aside are read again.
AGAIN_SECONDS, AGAIN_FACTOR = 6 * 3600.0, 4
Count = Callable[[Sequence[Drop]], None]


def count_nothing(_: Sequence[Drop]) -> None:
    """Count no drops."""


class FactWriter:
    """Writes proposed facts in the transaction that completes the job.

    It may run twice, so it keeps no state. count: is told what was dropped.
    """

    def __init__(
        self,
        job: QueuedJob,
        batch: ExtractionInput,
        human: HumanBlock,
        rules: fact_prompt.ExtractionRules,
        count: Count = count_nothing,
    ) -> None:
        self._job = job
        self._batch = batch
        self._scope = job.scope_id or 0
        self._human = human
        self._rules = rules
        self._request = f"job_{job.held[0]}"
        self._count = count

    def keep(self, conn: Connection, answer: FactAnswer) -> None:
        """Store what is supported by the user's words, and mark the turns as read."""
        record = self._new_record()
        record.proposed = len(answer.facts) + len(answer.malformed) + len(answer.excess)
        record.drops += [Drop("fact", "malformed", self._masked(x)) for x in answer.malformed]
        record.drops += [Drop("fact", "budget", self._masked(x)) for x in answer.excess]
        user_lines = self._batch.user_said
        texts = fold_texts([s.content for s in user_lines])
        for fact in answer.facts:
            index, reason = find_evidence(fact, texts)
            message = None
            if index is not None:
                message = user_lines[index]
            origin = origin_of(conn, message, self._masked(fact.quote))
            source = origin.message
            reason = self._why_unwanted(fact, reason) or self._keep(
                conn, name_speaker(fact, origin.speaker), origin
            )
            if reason is None:
                record.kept += 1
            else:
                text = ""
                if reason != "secret":
                    text = self._masked(fact.text or fact.quote)
                record.drops.append(Drop("fact", reason, text, source))
        self._end(conn, record)
        scopes.touch(conn, self._scope)

    def keep_nothing(self, conn: Connection) -> None:
        """Mark the turns as read; what turns cache stays valid."""
        self._end(conn, self._new_record())

    def _new_record(self) -> JobRecord:
        batch = self._batch
        line_count = len(batch.user_said)
        return JobRecord(KIND, len(batch.nodes), line_count, drops=list(batch.withheld))

    def _masked(self, text: str) -> str:
        return self._rules.screen.mask(text)[0]

    def put_aside(self, conn: Connection) -> None:
        """Let what follows be read without these turns, which are read again later."""
        times = unread_turns.put_aside(conn, self._scope, self._batch.nodes)
        if times >= unread_turns.MAX_SET_ASIDE:
            record = self._new_record()
            record.shown = 0
            record.drops += [
                Drop("message", "malformed", message=s.id) for s in self._batch.user_said
            ]
            self._store(conn, record)
        else:
            self._queue_again(conn, AGAIN_SECONDS * AGAIN_FACTOR**times)
        self._queue_rest(conn)

    def _end(self, conn: Connection, record: JobRecord) -> None:
        unread_turns.mark_read(conn, self._scope, self._batch.nodes)
        read_conversations = {s.conversation for s in self._batch.user_said}
        set_edited_aside(conn, self._scope, read_conversations, self._human, self._request)
        self._store(conn, record)
        self._queue_rest(conn)
        # The model answers as it should again.
        if self._batch.said and unread_turns.oldest_aside(conn, self._scope, 1):
            self._queue_again(conn, 0.0)

    def _store(self, conn: Connection, record: JobRecord) -> None:
        job_records.add(conn, self._scope, record)
        self._count(record.drops)

    def _queue_rest(self, conn: Connection) -> None:
        if self._batch.more:
            enqueue(conn, QueuedJob(KIND, {**self._job.payload, READS_REST: True}, self._scope))

    def _queue_again(self, conn: Connection, delay: float) -> None:
        payload = {**self._job.payload, AGAIN: True}
        name = f"{KIND}-again-{self._scope}"
        enqueue(conn, QueuedJob(KIND, payload, self._scope, name, delay, again=True))

    def _why_unwanted(self, fact: ProposedFact, unproven: Reason | None) -> Reason | None:
        """Return why a fact is not kept, None for no reason. unproven: why it has no evidence."""
        categories = self._rules.categories
        if self._rules.screen.mask(fact.text)[1]:
            return "secret"
        if unproven is not None:
            return unproven
        if categories and fact.text and fact.category not in categories:
            return "category"
        return None

    def _keep(self, conn: Connection, fact: ProposedFact, origin: FactOrigin) -> Reason | None:
        """Store a fact; return why not, None where it is stored."""
        replaced_facts = self._named_by(fact)
        if not fact.text:
            return self._forget(conn, replaced_facts, origin)
        same_facts = [
            k
            for k in self._alike(conn, fact.text)
            if dedup.is_duplicate(k.text, fact.text) and k not in replaced_facts
        ]
        if any(len(dedup.words(k.text)) >= len(dedup.words(fact.text)) for k in same_facts):
            return "duplicate"
        self._insert(conn, fact, [*replaced_facts, *same_facts], origin)
        return None

    def _named_by(self, fact: ProposedFact) -> list[KnownFacts]:
        """Return the known fact that the operation names, if it is about the same thing.

        A wrong number destroys nothing: the fact is added beside it.
        """
        known_facts = self._batch.known
        if fact.op == "add" or fact.id is None or not 0 < fact.id <= len(known_facts):
            return []
        named_fact = known_facts[fact.id - 1]
        if is_about(named_fact.text, fact):
            return [named_fact]
        return []

    def _forget(
        self, conn: Connection, known_facts: Sequence[KnownFacts], origin: FactOrigin
    ) -> Reason | None:
        """Set a known fact aside that the user wants forgotten, if they speak of it."""
        for known_fact in known_facts:
            if known_fact.passage is None:
                self._edit(conn, {known_fact.text}, None, origin)
            else:
                fact_rows.set_aside(conn, self._scope, known_fact.passage, ACTOR)
        if known_facts:
            return None
        return "wrong_id"

    def _alike(self, conn: Connection, text: str) -> list[KnownFacts]:
        """Return current facts that may say the same, including new ones of this answer."""
        return [
            *map(KnownFacts, self._human.lines(conn)),
            *(
                KnownFacts(h["content"], h["id"])
                for h in fact_rows.near_duplicates(conn, self._scope, text)
            ),
        ]

    def _insert(
        self,
        conn: Connection,
        fact: ProposedFact,
        replaced_facts: Sequence[KnownFacts],
        origin: FactOrigin,
    ) -> None:
        lines = {k.text for k in replaced_facts if k.passage is None}
        place = None
        # Where several speak, no line about "the user" says whom it is about.
        is_line = fact.type in LASTING and not origin.is_shared
        if not is_line or not self._edit(conn, lines, fact.text, origin):
            tags = (fact.category,) if self._rules.categories else ()
            new_passage = passage_rows.NewPassage(
                fact.text,
                tags,
                fact.type,
                fact.importance,
                ACTOR,
                source=origin.message,
                quote=origin.quote or None,
                speaker=origin.speaker or None,
            )
            place = passage_rows.add(conn, self._scope, new_passage)[0][0]["id"]
            if lines:
                self._edit(conn, lines, None, origin)
        for k in replaced_facts:
            if k.passage is not None and k.passage != place:
                fact_rows.set_aside(conn, self._scope, k.passage, ACTOR, place or LABEL)

    def _edit(
        self, conn: Connection, removed_lines: Set[str], new_line: str | None, origin: FactOrigin
    ) -> bool:
        return self._human.replace_lines(
            conn, removed_lines, new_line, origin.source(self._request)
        )
