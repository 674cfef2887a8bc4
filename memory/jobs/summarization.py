"""Summaries made ahead of need, so that no turn waits for one (MEMORY.md 6): the job that a turn
leaves past the soft threshold.

The job carries what is to be summarised, since a client's own history is not all in the store; it
goes with its conversation and its user. Its summary is kept under the chain link of the last
message it stands for, where the next request finds it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from memory.context.compaction import SummaryTask
from memory.context.summary import HINT, step
from memory.conversation.messages import Json
from memory.core.blocks import escape
from memory.errors import TooLong, Unusable
from memory.jobs.background_model import BackgroundCall, BackgroundModel, background_call
from memory.jobs.worker import Handler
from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from memory.stores.sql.jobs import ANSWERS, Effect, QueuedJob, advance
from memory.stores.sql.statements import put_row

log = logging.getLogger("mnemogate")
KIND = "summarise"
s = t.summaries.c


def job_of(ahead: SummaryTask, conversation: int, model: str) -> QueuedJob:
    """Return the job for what a turn found it could leave out soon.

    One at a time for a conversation.
    """
    payload = {
        "link": ahead.link.hex(),
        "base": ahead.base.hex() if ahead.base else None,
        "pieces": ahead.pieces,
        "tokens": ahead.tokens,
        "count": ahead.count,
        "model": model,
    }
    return QueuedJob(
        KIND, payload, conversation=conversation, dedupe=f"{KIND}-{ahead.link.hex()}", alone=True
    )


def summary_handler(db: Database, envoy: BackgroundModel) -> Handler:
    """Make a summary and keeps it; one that is there already is not made again.

    A later attempt goes on behind the last piece that was summarised. A stretch that no model can
    summarise is left out, with a line that says so: those after it go on from there.
    """

    async def run(job: QueuedJob) -> Effect | None:
        found = await db.read(lambda conn: _read_request(conn, job))
        if found is None:
            return None
        call, before = found

        async def ask(messages: Sequence[Json], tokens: int) -> str:
            return str((await envoy(call, messages, tokens)).get("content") or "")

        payload, text = job.payload, job.payload.get("made", before)
        left = payload["pieces"] if "pieces" in payload else [[escape(payload["text"])]]
        try:
            while left:
                text = await step(ask, text, left[0], payload["tokens"])
                if left := left[1:]:
                    payload = {**payload, "pieces": left, "made": text}
                    await db.write(partial(advance, job=job, payload=payload), small=True)
        except (TooLong, Unusable) as e:
            if isinstance(e, Unusable) and job.held[1] < ANSWERS:
                raise
            log.warning(
                "a stretch of %d messages cannot be summarised (%s): it is left out",
                payload["count"],
                e,
            )
            text = (
                f"{text.removesuffix(HINT).strip()}\n[{payload['count']} earlier messages were "
                "left out.]"
            ).strip()
        return lambda conn: _keep(conn, job, f"{text}\n{HINT}")

    return run


def _read_request(conn: Connection, job: QueuedJob) -> tuple[BackgroundCall, str] | None:
    """For whom, and the summary to go on from; None when there is nothing left to do."""
    call = background_call(conn, KIND, job.scope_id, job.payload["model"])
    if call is None or _there(conn, job, job.payload["link"]) is not None:
        return None
    base = job.payload["base"]
    before = _there(conn, job, base) if base else ""
    return None if before is None else (call, before)


def _there(conn: Connection, job: QueuedJob, link: str) -> str | None:
    found: str | None = conn.execute(
        select(s.content).where(s.scope_id == job.scope_id, s.chain == bytes.fromhex(link))
    ).scalar()
    return found


def _keep(conn: Connection, job: QueuedJob, text: str) -> None:
    p: dict[str, Any] = job.payload
    put_row(
        conn,
        t.summaries,
        ("scope_id", "chain"),
        scope_id=job.scope_id,
        conversation=job.conversation,
        chain=bytes.fromhex(p["link"]),
        content=text,
        count=p["count"],
        created_at=time.time(),
    )
