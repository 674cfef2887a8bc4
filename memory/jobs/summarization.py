"""Makes summaries before they are needed, so that no turn waits for one.

A turn beyond the soft threshold queues this job. The job contains what is to be summarised, since a
client's own history is not completely stored; it is deleted with its conversation and its user. The
summary is stored under the chain link of the last message it covers, where the next request finds
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from memory.context.compaction import SummaryTask
from memory.context.summary import HINT, PROMPT, step
from memory.conversation.messages import Json
from memory.conversation.thoughts import answer_text
from memory.core.blocks import escape
from memory.errors import TooLong, Unusable
from memory.ids import clock
from memory.jobs.background_model import BackgroundCall, BackgroundModel, background_call
from memory.jobs.worker import Handler
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.statements import put_row
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows.jobs import ANSWERS, Effect, QueuedJob, advance

log = logging.getLogger("mnemogate")
KIND = "summarise"
s = t.summaries.c


def job_of(task: SummaryTask, conversation: int, model: str) -> QueuedJob:
    """Return the job for a planned summary; one at a time for each conversation."""
    payload = {
        "link": task.link.hex(),
        "base": task.base.hex() if task.base else None,
        "pieces": task.pieces,
        "tokens": task.tokens,
        "count": task.count,
        "model": model,
    }
    return QueuedJob(
        KIND, payload, conversation=conversation, dedupe=f"{KIND}-{task.link.hex()}", alone=True
    )


def summary_handler(
    db: Database, model: BackgroundModel, prompt: Callable[[], str] = lambda: PROMPT
) -> Handler:
    """Return the job that makes and stores a summary, unless it exists.

    A retry continues after the last piece that was summarised. A piece that no model can summarise
    is left out, with a line that says so; the following ones continue from there. prompt: with the
    placeholder {words}.
    """

    async def run(job: QueuedJob) -> Effect | None:
        request = await db.read(lambda conn: _read_request(conn, job))
        if request is None:
            return None
        call, earlier_summary = request

        async def ask(messages: Sequence[Json], tokens: int) -> str:
            return answer_text(await model(call, messages, tokens))

        payload = job.payload
        text = job.payload.get("made", earlier_summary)
        if "pieces" in payload:
            remaining_pieces = payload["pieces"]
        else:
            remaining_pieces = [[escape(payload["text"])]]
        try:
            while remaining_pieces:
                text = await step(ask, text, remaining_pieces[0], payload["tokens"], prompt())
                if remaining_pieces := remaining_pieces[1:]:
                    payload = {**payload, "pieces": remaining_pieces, "made": text}
                    await db.write(
                        partial(advance, job=job, payload=payload), small=True, lock=NOTHING
                    )
        except (TooLong, Unusable) as e:
            if isinstance(e, Unusable) and job.held[1] < ANSWERS:
                raise
            text = _left_out(text, payload["count"], e)
        return lambda conn: _keep(conn, job, f"{text}\n{HINT}")

    return run


def _left_out(summary: str, count: int, why: Exception) -> str:
    """Return the summary with a line about the messages that no model summarised."""
    log.warning("%d messages cannot be summarised (%s): they are left out", count, why)
    omission = f"[{count} earlier messages were left out.]"
    return f"{summary.removesuffix(HINT).strip()}\n{omission}".strip()


def _read_request(conn: Connection, job: QueuedJob) -> tuple[BackgroundCall, str] | None:
    """Return the call and the summary to continue; None if there is nothing left to do."""
    call = background_call(conn, KIND, job.scope_id, job.payload["model"])
    if call is None or _stored_summary(conn, job, job.payload["link"]) is not None:
        return None
    base = job.payload["base"]
    earlier_summary = _stored_summary(conn, job, base) if base else ""
    if earlier_summary is None:
        return None
    return (call, earlier_summary)


def _stored_summary(conn: Connection, job: QueuedJob, link: str) -> str | None:
    content: str | None = conn.execute(
        select(s.content).where(s.scope_id == job.scope_id, s.chain == bytes.fromhex(link))
    ).scalar()
    return content


def _keep(conn: Connection, job: QueuedJob, text: str) -> None:
    payload: dict[str, Any] = job.payload
    put_row(
        conn,
        t.summaries,
        ("scope_id", "chain"),
        scope_id=job.scope_id,
        conversation=job.conversation,
        chain=bytes.fromhex(payload["link"]),
        content=text,
        count=payload["count"],
        created_at=clock.now(),
    )
