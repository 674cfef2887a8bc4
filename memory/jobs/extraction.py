"""Extracts facts from what a user said, for models that do not save them by themselves.

Some turns are read at once, each once: what the user wrote, without what they pasted. Identity and
preferences go to a line of the `human` block, which a model always sees, if it fits; everything
else goes to archival memory, with the message it came from. Nothing is stored without a literal
quote of the user. A duplicate adds nothing; a fuller wording or a contradiction replaces the old
fact, which stays in block versions or as a passage set aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from memory.conversation.messages import keyed_hash
from memory.conversation.thoughts import answer_text
from memory.core.blocks import CoreBlock
from memory.errors import Unusable
from memory.jobs import fact_prompt, fact_writer
from memory.jobs.background_model import BackgroundModel
from memory.jobs.extraction_input import AGAIN, IDLE, ExtractionInput, read_input
from memory.jobs.fact_answer import FactAnswer, read_answer
from memory.jobs.fact_writer import Count, FactWriter, count_nothing
from memory.jobs.human_block import HumanBlock
from memory.jobs.unusable_answers import UnusableAnswers
from memory.jobs.worker import Handler
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows.jobs import ANSWERS, Effect, QueuedJob

KIND = fact_writer.KIND
# Of a payload: the name of the user's time zone.
ZONE = "zone"
# Of a payload: the one whose memory it is.
PROJECT = "project"
TOKENS = 1000
MAX_HURRIED_CHARACTERS = 2000
Blocks = Callable[[str], Mapping[str, CoreBlock]]
Rules = Callable[[], fact_prompt.ExtractionRules]
_HURRIES = re.compile(
    r"\b(?:forget|forgot that|delete|remove|erase|wrong|incorrect|not true|no longer|anymore"
    r"|vergiss|vergessen sie|lösche|falsch|stimmt nicht|nicht mehr|olvida|olvídalo|borra"
    r"|equivocad[oa]|incorrect[oa]|ya no|oublie|supprime|faux)\b|忘|删|不对|错了|不再",
    re.IGNORECASE,
)


class ExtractionCounters(NamedTuple):
    """What is counted of extraction.

    unusable: answers of each model. count_drops: is told what was dropped.
    """

    unusable: UnusableAnswers
    count_drops: Count = count_nothing


def jobs_of(
    rules: fact_prompt.ExtractionRules,
    scope_key: bytes,
    payload: dict[str, str],
    words: str,
    unusable: UnusableAnswers,
) -> list[QueuedJob]:
    """Return the jobs to queue after a turn: after so many turns, and when the user is idle.

    payload: of the jobs: the model, and the user's time zone if the client names one. words: what
    the user said. Who wants something corrected or forgotten does not wait. At idle,
    first turns that nothing followed are read too, all of a user's together.
    """
    name = keyed_hash(scope_key, b"extract").hex()
    if _HURRIES.search(words[:MAX_HURRIED_CHARACTERS]):
        return [QueuedJob(KIND, {**payload, "at_once": True}, dedupe=f"{KIND}-now-{name}")]
    every_turns = rules.every_turns
    # Asked of each turn, and mostly of no model.
    if unusable.counts:
        every_turns = unusable.turns_between(payload["model"], every_turns)
    return [
        QueuedJob(KIND, payload, dedupe=f"{KIND}-turns-{name}", unread=every_turns),
        QueuedJob(
            KIND,
            {**payload, IDLE: True},
            dedupe=f"{KIND}-idle-{name}",
            delay=rules.idle_seconds,
            again=True,
        ),
    ]


def extraction_handler(
    db: Database,
    model: BackgroundModel,
    blocks: Blocks,
    rules: Rules,
    counters: ExtractionCounters,
) -> Handler:
    """Return the job that extracts and stores the facts of some turns.

    blocks: the operator's in a project. A model whose last answers were unusable is asked once.
    """
    unusable = counters.unusable

    async def run(job: QueuedJob) -> Effect | None:
        own_blocks = blocks(str(job.payload.get(PROJECT) or ""))
        name = str(job.payload.get("model") or "")
        min_turns = unusable.turns_between(name, rules().every_turns)
        batch = await _read_batch(db, job, own_blocks, rules(), min_turns)
        if batch is None:
            return None
        human = HumanBlock(job.scope_id, own_blocks)
        writer = FactWriter(job, batch, human, rules(), counters.count_drops)
        if not batch.said:
            await _write_small(db, job, writer.keep_nothing)
            return None
        try:
            answer = await _propose(model, batch, _rules_in_zone(rules(), job))
        except Unusable as e:
            attempts = max(job.held[1], unusable.count(name))
            is_last = bool(job.payload.get(AGAIN)) or attempts >= ANSWERS
            if is_last:
                await _write_small(db, job, writer.put_aside)
            raise Unusable(str(e), is_last=is_last) from e
        unusable.forget(name)
        if not (answer.facts or answer.malformed):
            await _write_small(db, job, writer.keep_nothing)
            return None
        return lambda conn: writer.keep(conn, answer)

    return run


def _rules_in_zone(
    rules: fact_prompt.ExtractionRules, job: QueuedJob
) -> fact_prompt.ExtractionRules:
    """Return the rules, with the time zone that the user's client named, if any."""
    return replace(rules, zone=str(job.payload.get(ZONE) or rules.zone))


async def _read_batch(
    db: Database,
    job: QueuedJob,
    blocks: Mapping[str, CoreBlock],
    rules: fact_prompt.ExtractionRules,
    min_turns: int,
) -> ExtractionInput | None:
    read_batch = partial(
        read_input, job=job, blocks=blocks, screen=rules.screen, min_turns=min_turns
    )
    return await db.read(read_batch, of=db.journal.key_of(job.scope_id))


async def _write_small(db: Database, job: QueuedJob, work: Effect) -> None:
    """Write a few rows of a job's scope."""
    filed_work = db.behind_turns_of(job.scope_id, work)
    await db.write(filed_work, small=True, lock=job.scope_id or NOTHING)


async def _propose(
    model: BackgroundModel, batch: ExtractionInput, rules: fact_prompt.ExtractionRules
) -> FactAnswer:
    """Return what a model proposes. Raises Unusable."""
    request = fact_prompt.fact_prompt_messages(
        rules,
        [fact_prompt.SaidLine(s.role, s.content, s.at, s.name) for s in batch.said],
        [k.text for k in batch.known],
    )
    answer = read_answer(answer_text(await model(batch.call, request, TOKENS)))
    if answer is None:
        raise Unusable("the answer is not the requested JSON object")
    return answer
