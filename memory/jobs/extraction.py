"""Extracts facts from a user's messages, for models without tools; one job for each turn.

Identity and preferences go to a line of the `human` block, which such a model always sees, if it
fits; everything else goes to archival memory, with the message it came from. A duplicate adds
nothing; a longer wording or a contradiction replaces the old fact, which stays in block versions or
as a passage set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from memory.core.blocks import Block, rewrite_value
from memory.errors import ToolError, Unusable
from memory.jobs import fact_prompt
from memory.jobs.background_model import BackgroundCall, BackgroundModel, background_call
from memory.jobs.worker import Handler
from memory.search import dedup
from memory.search.query import iso
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import passage_lifecycle as fact_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import scopes
from memory.stores.sql.database import Database
from memory.stores.sql.jobs import Effect, QueuedJob
from memory.stores.sql.messages import SearchQuery

KIND = "extract"
ACTOR = "extraction"
LABEL = "human"
LASTING = ("identity", "preference")
MAX_KNOWN_NEWEST, MAX_KNOWN_ALIKE = 8, 12
TOKENS = 1000
Blocks = Callable[[], Mapping[str, Block]]


def job_of(node: int, conversation: int, model: str) -> QueuedJob:
    return QueuedJob(
        KIND, {"node": node, "model": model}, conversation=conversation, dedupe=f"{KIND}-{node}"
    )


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """An existing fact: a passage by its id, or a line of the block."""

    text: str
    passage: str | None = None


@dataclass(slots=True)
class ExtractionInput:
    """What the model is shown."""

    call: BackgroundCall
    said: list[fact_rows.TurnMessage]
    known: list[KnownFacts] = field(default_factory=list)


def extraction_handler(db: Database, model: BackgroundModel, blocks: Blocks) -> Handler:
    """Return the job that extracts and stores the facts of one turn.

    blocks: the operator's.
    """

    async def run(job: QueuedJob) -> Effect | None:
        found = await db.read(lambda conn: _read_input(conn, job, blocks()))
        if found is None:
            return None
        request = fact_prompt.fact_prompt_messages(
            [(s.role, s.content) for s in found.said],
            [k.text for k in found.known],
            iso(found.said[0].at)[:10],
        )
        message = await model(found.call, request, TOKENS)
        proposed = fact_prompt.parse_facts(str(message.get("content") or ""))
        if proposed is None:
            raise Unusable("the answer is not the requested JSON object")
        keeper = _FactWriter(job, found, blocks())
        return lambda conn: keeper.keep(conn, proposed)

    return run


def _read_input(
    conn: Connection, job: QueuedJob, blocks: Mapping[str, Block]
) -> ExtractionInput | None:
    """Return the input; None if the turn is gone, or the user said nothing in it."""
    scope_id, call = job.scope_id, background_call(conn, KIND, job.scope_id, job.payload["model"])
    if call is None or scope_id is None:
        return None
    said = fact_rows.messages_of_turn(conn, scope_id, job.payload["node"])
    words = " ".join(s.content for s in said if s.role == "user")
    if not words.strip():
        return None
    block = block_rows.all_of(conn, block_rows.BlockSet(scope_id, blocks)).get(LABEL)
    known = [
        KnownFacts(line.strip())
        for line in (block.value.split("\n") if block else ())
        if line.strip()
    ]
    found = [
        *fact_rows.neighbours(conn, scope_id, words, MAX_KNOWN_ALIKE),
        *passage_rows.search(
            conn, scope_id, passage_rows.PassageFilter(SearchQuery(limit=MAX_KNOWN_NEWEST))
        ),
    ]
    passages = {h["id"]: KnownFacts(h["content"][: fact_prompt.CHARACTERS], h["id"]) for h in found}
    return ExtractionInput(call, said, [*known, *passages.values()])


class _FactWriter:
    """Writes proposed facts in the transaction that completes the job.

    It may run twice, so it keeps no state.
    """

    def __init__(self, job: QueuedJob, found: ExtractionInput, blocks: Mapping[str, Block]) -> None:
        self._found, self._scope = found, job.scope_id or 0
        self._shelf = block_rows.BlockSet(job.scope_id, blocks)
        self._source = block_rows.EditSource(ACTOR, f"job_{job.held[0]}")

    def keep(self, conn: Connection, proposed: Sequence[fact_prompt.ExtractedFact]) -> None:
        for fact in proposed:
            if (
                fact.source > len(self._found.said)
                or self._found.said[fact.source - 1].role != "user"
            ):
                continue  # not from a user's message
            known, count = self._found.known, len(self._found.known)
            replaced = [
                known[n - 1] for n in fact.replaces[: fact_prompt.REPLACED] if 0 < n <= count
            ]
            same = [
                k
                for k in self._alike(conn, fact.text)
                if dedup.is_duplicate(k.text, fact.text) and k not in replaced
            ]
            if any(len(dedup.words(k.text)) >= len(dedup.words(fact.text)) for k in same):
                continue
            self._insert(conn, fact, [*replaced, *same])
        scopes.touch(conn, self._scope)

    def _alike(self, conn: Connection, text: str) -> list[KnownFacts]:
        """Return current facts that may say the same, including new ones of this answer."""
        lines = [KnownFacts(line.strip()) for line in self._value(conn).split("\n") if line.strip()]
        return [
            *lines,
            *(
                KnownFacts(h["content"], h["id"])
                for h in fact_rows.near_duplicates(conn, self._scope, text)
            ),
        ]

    def _value(self, conn: Connection) -> str:
        block = block_rows.all_of(conn, self._shelf).get(LABEL)
        return block.value if block else ""

    def _insert(
        self, conn: Connection, fact: fact_prompt.ExtractedFact, replaced: Sequence[KnownFacts]
    ) -> None:
        lines = {k.text for k in replaced if k.passage is None}
        if fact.type in LASTING and self._edit(conn, lines, fact.text):
            place = LABEL
        else:
            source = self._found.said[fact.source - 1].id
            new = passage_rows.NewPassage(
                fact.text, (), fact.type, fact.importance, ACTOR, source=source
            )
            place = passage_rows.add(conn, self._scope, new)[0][0]["id"]
            if lines:
                self._edit(conn, lines, None)
        for k in replaced:
            if k.passage is not None and k.passage != place:
                fact_rows.set_aside(conn, self._scope, k.passage, ACTOR, place)

    def _edit(self, conn: Connection, gone: set[str], new: str | None) -> bool:
        """Replace lines of the block by a new one.

        Returns False if the block is missing, read-only or would be too long.
        """

        def edit(block: Block | None) -> Block | None:
            if block is None:
                return None
            kept = [line for line in block.value.split("\n") if line.strip() not in gone]
            return rewrite_value(block, "\n".join([*kept, new] if new else kept).strip("\n"))

        try:
            return block_rows.edit(conn, self._shelf, LABEL, edit, self._source) is not None
        except ToolError:
            return False
