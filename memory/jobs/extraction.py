"""Extracts facts from what a user said, for models that do not save them by themselves.

Some turns are read at once, each once: what the user wrote, without what they pasted. Identity and
preferences go to a line of the `human` block, which a model always sees, if it fits; everything
else goes to archival memory, with the message it came from. Nothing is stored without a literal
quote of the user. A duplicate adds nothing; a fuller wording or a contradiction replaces the old
fact, which stays in block versions or as a passage set aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection

from memory.conversation.messages import collapse_whitespace, keyed_hash
from memory.conversation.thoughts import answer_text
from memory.core.blocks import CoreBlock, rewrite_value
from memory.errors import ToolError, Unusable
from memory.jobs import fact_prompt
from memory.jobs.background_model import BackgroundModel
from memory.jobs.extraction_input import AGAIN, LABEL, ExtractionInput, KnownFacts, read_input
from memory.jobs.worker import Handler
from memory.search import dedup
from memory.search.query import iso
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import passage_lifecycle as fact_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import scopes, unread_turns
from memory.stores.sql.database import Database
from memory.stores.sql.jobs import ANSWERS, Effect, QueuedJob, enqueue

KIND = "extract"
ACTOR = "extraction"
LASTING = ("identity", "preference")
TOKENS = 1000
MAX_HURRIED_CHARACTERS = 2000
AGAIN_SECONDS, AGAIN_FACTOR = 6 * 3600.0, 4  # until turns that were set aside are read again
MAX_UNUSABLE = 1000  # models whose unusable answers are counted
Blocks = Callable[[], Mapping[str, CoreBlock]]
Rules = Callable[[], fact_prompt.ExtractionRules]
_HURRIES = re.compile(
    r"\b(?:forget|forgot that|delete|remove|erase|wrong|incorrect|not true|no longer|anymore"
    r"|vergiss|vergessen sie|lösche|falsch|stimmt nicht|nicht mehr|olvida|olvídalo|borra"
    r"|equivocad[oa]|incorrect[oa]|ya no|oublie|supprime|faux)\b|忘|删|不对|错了|不再",
    re.IGNORECASE,
)


def jobs_of(
    rules: fact_prompt.ExtractionRules, scope_key: bytes, model: str, words: str
) -> list[QueuedJob]:
    """Return the jobs to queue after a turn: after so many turns, and when the user is idle.

    words: what the user said. Who wants something corrected or forgotten does not wait.
    """
    name = keyed_hash(scope_key, b"extract").hex()
    payload = {"model": model}
    if _HURRIES.search(words[:MAX_HURRIED_CHARACTERS]):
        return [QueuedJob(KIND, {**payload, "at_once": True}, dedupe=f"{KIND}-now-{name}")]
    return [
        QueuedJob(KIND, payload, dedupe=f"{KIND}-turns-{name}", unread=rules.every_turns),
        QueuedJob(
            KIND, payload, dedupe=f"{KIND}-idle-{name}", delay=rules.idle_seconds, again=True
        ),
    ]


def extraction_handler(
    db: Database, model: BackgroundModel, blocks: Blocks, rules: Rules
) -> Handler:
    """Return the job that extracts and stores the facts of some turns.

    blocks: the operator's. A model whose last answers were all unusable is asked once for each
    job, not again and again.
    """
    unusable = _UnusableAnswers()

    async def run(job: QueuedJob) -> Effect | None:
        batch = await db.read(lambda conn: read_input(conn, job, blocks()))
        if batch is None:
            return None
        keeper = _FactWriter(job, batch, blocks(), rules())
        if not batch.said:
            await keeper.keep_nothing(db)
            return None
        name = str(job.payload.get("model") or "")
        try:
            proposed = await _propose(model, batch, rules())
        except Unusable as e:
            is_again = bool(job.payload.get(AGAIN))
            is_last = is_again or max(job.held[1], unusable.count(name)) >= ANSWERS
            if is_last:
                await keeper.put_aside(db)
            raise Unusable(str(e), is_last=is_last) from e
        unusable.forget(name)
        if not proposed:
            await keeper.keep_nothing(db)
            return None
        return lambda conn: keeper.keep(conn, proposed)

    return run


async def _propose(
    model: BackgroundModel, batch: ExtractionInput, rules: fact_prompt.ExtractionRules
) -> list[fact_prompt.ProposedFact]:
    """Return what a model proposes. Raises Unusable."""
    request = fact_prompt.fact_prompt_messages(
        rules,
        [(s.role, s.content) for s in batch.said],
        [k.text for k in batch.known],
        iso(batch.said[0].at)[:10],
    )
    proposed = fact_prompt.parse_facts(answer_text(await model(batch.call, request, TOKENS)))
    if proposed is None:
        raise Unusable("the answer is not the requested JSON object")
    return proposed


class _UnusableAnswers:
    """Counts the unusable answers that each model gave in a row."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, model: str) -> int:
        """Count one more; return how many there were before it."""
        before = self._counts.get(model, 0)
        if before or len(self._counts) < MAX_UNUSABLE:
            self._counts[model] = before + 1
        return before

    def forget(self, model: str) -> None:
        """Note that a model answered as it was asked to."""
        self._counts.pop(model, None)


class _FactWriter:
    """Writes proposed facts in the transaction that completes the job.

    It may run twice, so it keeps no state.
    """

    def __init__(
        self,
        job: QueuedJob,
        found: ExtractionInput,
        blocks: Mapping[str, CoreBlock],
        rules: fact_prompt.ExtractionRules,
    ) -> None:
        self._job, self._found, self._scope = job, found, job.scope_id or 0
        self._shelf, self._rules = block_rows.BlockSet(job.scope_id, blocks), rules
        self._request = f"job_{job.held[0]}"

    def keep(self, conn: Connection, proposed: Sequence[fact_prompt.ProposedFact]) -> None:
        """Store what is supported by the user's words, and mark the turns as read."""
        said = self._found.user_said
        texts = [collapse_whitespace(s.content) for s in said]
        for fact in proposed:
            index = fact_prompt.find_evidence(fact, texts)
            if index is not None and self._is_wanted(fact):
                self._keep(conn, fact, said[index].id)
        self._end(conn)
        scopes.touch(conn, self._scope)

    async def keep_nothing(self, db: Database) -> None:
        """Mark the turns as read; what turns cache stays valid."""
        await db.write(self._end, small=True, lock=self._scope)

    async def put_aside(self, db: Database) -> None:
        """Let what follows be read without these turns, which are read again later."""
        await db.write(self._put_aside, small=True, lock=self._scope)

    def _put_aside(self, conn: Connection) -> None:
        times = unread_turns.put_aside(conn, self._scope, self._found.nodes)
        self._queue_again(conn, AGAIN_SECONDS * AGAIN_FACTOR**times)
        self._queue_rest(conn)

    def _end(self, conn: Connection) -> None:
        unread_turns.mark_read(conn, self._scope, self._found.nodes)
        self._queue_rest(conn)
        # The model answers as it should again.
        if self._found.said and unread_turns.oldest_aside(conn, self._scope, 1):
            self._queue_again(conn, 0.0)

    def _queue_rest(self, conn: Connection) -> None:
        if self._found.more:
            enqueue(conn, QueuedJob(KIND, self._job.payload, self._scope))

    def _queue_again(self, conn: Connection, delay: float) -> None:
        payload = {**self._job.payload, AGAIN: True}
        name = f"{KIND}-again-{self._scope}"
        enqueue(conn, QueuedJob(KIND, payload, self._scope, name, delay, again=True))

    def _is_wanted(self, fact: fact_prompt.ProposedFact) -> bool:
        categories = self._rules.categories
        if self._rules.screen.mask(fact.text)[1]:
            return False
        return not categories or not fact.text or fact.category in categories

    def _keep(self, conn: Connection, fact: fact_prompt.ProposedFact, source: str) -> None:
        known, replaced = self._found.known, list[KnownFacts]()
        if fact.op != "add" and fact.id is not None and 0 < fact.id <= len(known):
            replaced = [known[fact.id - 1]]
        if not fact.text:
            self._forget(conn, fact, replaced, source)
            return
        same = [
            k
            for k in self._alike(conn, fact.text)
            if dedup.is_duplicate(k.text, fact.text) and k not in replaced
        ]
        if not any(len(dedup.words(k.text)) >= len(dedup.words(fact.text)) for k in same):
            self._insert(conn, fact, [*replaced, *same], source)

    def _forget(
        self,
        conn: Connection,
        fact: fact_prompt.ProposedFact,
        known: Sequence[KnownFacts],
        source: str,
    ) -> None:
        """Set a known fact aside that the user wants forgotten, if they speak of it."""
        for k in known:
            if not fact_prompt.shares_word(k.text, fact.quote):
                continue
            if k.passage is None:
                self._edit(conn, {k.text}, None, source)
            else:
                fact_rows.set_aside(conn, self._scope, k.passage, ACTOR)

    def _alike(self, conn: Connection, text: str) -> list[KnownFacts]:
        """Return current facts that may say the same, including new ones of this answer."""
        block = block_rows.all_of(conn, self._shelf).get(LABEL)
        lines = (block.value if block else "").split("\n")
        return [
            *(KnownFacts(line.strip()) for line in lines if line.strip()),
            *(
                KnownFacts(h["content"], h["id"])
                for h in fact_rows.near_duplicates(conn, self._scope, text)
            ),
        ]

    def _insert(
        self,
        conn: Connection,
        fact: fact_prompt.ProposedFact,
        replaced: Sequence[KnownFacts],
        source: str,
    ) -> None:
        lines = {k.text for k in replaced if k.passage is None}
        place = None
        if fact.type not in LASTING or not self._edit(conn, lines, fact.text, source):
            tags = (fact.category,) if self._rules.categories else ()
            new = passage_rows.NewPassage(
                fact.text, tags, fact.type, fact.importance, ACTOR, source=source
            )
            place = passage_rows.add(conn, self._scope, new)[0][0]["id"]
            if lines:
                self._edit(conn, lines, None, source)
        for k in replaced:
            if k.passage is not None and k.passage != place:
                fact_rows.set_aside(conn, self._scope, k.passage, ACTOR, place or LABEL)

    def _edit(self, conn: Connection, gone: set[str], new: str | None, source: str) -> bool:
        """Replace lines of the block by a new one.

        source: public id of the message. Returns False if the block is missing, read-only or would
        be too long.
        """

        def edit(block: CoreBlock | None) -> CoreBlock | None:
            if block is None:
                return None
            kept = [line for line in block.value.split("\n") if line.strip() not in gone]
            return rewrite_value(block, "\n".join([*kept, new] if new else kept).strip("\n"))

        by = block_rows.EditSource(ACTOR, self._request, source)
        try:
            return block_rows.edit(conn, self._shelf, LABEL, edit, by) is not None
        except ToolError:
            return False
