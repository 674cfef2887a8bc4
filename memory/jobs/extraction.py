"""Facts gathered from what a user said, for models without tools (MEMORY.md 8): the job that each such turn leaves.

Where a fact goes: who the user is and what they prefer, to a line of the `human` block, which such a model always sees, while it
fits; everything else, and what does not fit, to archival memory, with the message it came from. A repetition adds nothing; a
longer wording or a contradiction sets the old one aside (block versions and passages keep it), never silently overwrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from memory import facts
from memory.blocks import Block, rewritten
from memory.errors import ToolError, Unusable
from memory.jobs.errand import Envoy, Errand, errand_of
from memory.jobs.queue import Effect, Job
from memory.jobs.worker import Handler
from memory.search import iso
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import facts as fact_rows
from memory.stores.sql import owners
from memory.stores.sql import passages as passage_rows
from memory.stores.sql.engine import Database
from memory.stores.sql.messages import Query

KIND = "extract"
ACTOR = "extraction"
LABEL = "human"
LASTING = ("identity", "preference")
NEWEST, ALIKE = 8, 12
TOKENS = 1000
Blocks = Callable[[], Mapping[str, Block]]


def job_of(node: int, conversation: int, model: str) -> Job:
    return Job(
        KIND, {"node": node, "model": model}, conversation=conversation, dedupe=f"{KIND}-{node}"
    )


@dataclass(frozen=True, slots=True)
class Known:
    """A fact that is there: a passage by its id, or a line of the block."""

    text: str
    passage: str | None = None


@dataclass(slots=True)
class Read:
    """What the model is shown."""

    errand: Errand
    said: list[fact_rows.Said]
    known: list[Known] = field(default_factory=list)


def extracting(db: Database, envoy: Envoy, blocks: Blocks) -> Handler:
    """Asks for the facts of one turn and keeps them. blocks: the operator's."""

    async def run(job: Job) -> Effect | None:
        found = await db.read(lambda conn: _read(conn, job, blocks()))
        if found is None:
            return None
        request = facts.asked(
            [(s.role, s.content) for s in found.said],
            [k.text for k in found.known],
            iso(found.said[0].at)[:10],
        )
        message = await envoy(found.errand, request, TOKENS)
        proposed = facts.read(str(message.get("content") or ""))
        if proposed is None:
            raise Unusable("the answer is not the JSON object that was asked for")
        keeper = _Keeper(job, found, blocks())
        return lambda conn: keeper.keep(conn, proposed)

    return run


def _read(conn: Connection, job: Job, blocks: Mapping[str, Block]) -> Read | None:
    """None when there is nothing to read: the turn is gone, or the user said nothing in it."""
    scope_id, errand = job.scope_id, errand_of(conn, KIND, job.scope_id, job.payload["model"])
    if errand is None or scope_id is None:
        return None
    said = fact_rows.said_in(conn, scope_id, job.payload["node"])
    words = " ".join(s.content for s in said if s.role == "user")
    if not words.strip():
        return None
    block = block_rows.all_of(conn, block_rows.Shelf(scope_id, blocks)).get(LABEL)
    known = [
        Known(line.strip()) for line in (block.value.split("\n") if block else ()) if line.strip()
    ]
    found = [
        *fact_rows.neighbours(conn, scope_id, words, ALIKE),
        *passage_rows.search(conn, scope_id, passage_rows.Filter(Query(limit=NEWEST))),
    ]
    passages = {h["id"]: Known(h["content"][: facts.CHARACTERS], h["id"]) for h in found}
    return Read(errand, said, [*known, *passages.values()])


class _Keeper:
    """Writes what was proposed, inside the transaction that settles the job; it may run twice, so it keeps nothing of its own."""

    def __init__(self, job: Job, found: Read, blocks: Mapping[str, Block]) -> None:
        self._found, self._scope = found, job.scope_id or 0
        self._shelf = block_rows.Shelf(job.scope_id, blocks)
        self._source = block_rows.Source(ACTOR, f"job_{job.held[0]}")

    def keep(self, conn: Connection, proposed: Sequence[facts.Fact]) -> None:
        for fact in proposed:
            if (
                fact.source > len(self._found.said)
                or self._found.said[fact.source - 1].role != "user"
            ):
                continue  # nobody said it
            known, count = self._found.known, len(self._found.known)
            replaced = [known[n - 1] for n in fact.replaces[: facts.REPLACED] if 0 < n <= count]
            same = [
                k
                for k in self._alike(conn, fact.text)
                if facts.same(k.text, fact.text) and k not in replaced
            ]
            if any(len(facts.words(k.text)) >= len(facts.words(fact.text)) for k in same):
                continue
            self._put(conn, fact, [*replaced, *same])
        owners.touch(conn, self._scope)

    def _alike(self, conn: Connection, text: str) -> list[Known]:
        """Facts that may say the same, as they are now: earlier ones of this very answer among them."""
        lines = [Known(line.strip()) for line in self._value(conn).split("\n") if line.strip()]
        return [
            *lines,
            *(Known(h["content"], h["id"]) for h in fact_rows.alike(conn, self._scope, text)),
        ]

    def _value(self, conn: Connection) -> str:
        block = block_rows.all_of(conn, self._shelf).get(LABEL)
        return block.value if block else ""

    def _put(self, conn: Connection, fact: facts.Fact, replaced: Sequence[Known]) -> None:
        lines = {k.text for k in replaced if k.passage is None}
        if fact.type in LASTING and self._edit(conn, lines, fact.text):
            place = LABEL
        else:
            source = self._found.said[fact.source - 1].id
            new = passage_rows.Insert(
                fact.text, (), fact.type, fact.importance, ACTOR, source=source
            )
            place = passage_rows.add(conn, self._scope, new)[0][0]["id"]
            if lines:
                self._edit(conn, lines, None)
        for k in replaced:
            if k.passage is not None and k.passage != place:
                fact_rows.set_aside(conn, self._scope, k.passage, ACTOR, place)

    def _edit(self, conn: Connection, gone: set[str], new: str | None) -> bool:
        """Takes lines out of the block and puts one in; False where the block is not there, is read-only or would be too long."""

        def edit(block: Block | None) -> Block | None:
            if block is None:
                return None
            kept = [line for line in block.value.split("\n") if line.strip() not in gone]
            return rewritten(block, "\n".join([*kept, new] if new else kept).strip("\n"))

        try:
            return block_rows.edit(conn, self._shelf, LABEL, edit, self._source) is not None
        except ToolError:
            return False
