"""Reads what automatic recall found by the postings in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from memory.search.ranking import Ranked, SimilarityScores
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows import passage_lifecycle
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.turns.replaced_turns import complete_hits

Hits = Sequence[dict[str, Any]]


class RankedRows(NamedTuple):
    """Row keys with scores, best first."""

    passages: Mapping[int, Ranked]
    messages: Mapping[int, Ranked]

    @property
    def is_empty(self) -> bool:
        return not (self.passages or self.messages)


def read(
    conn: Connection, scope_id: int, ranked_rows: RankedRows, sent: int | None
) -> tuple[Hits, Hits, Sequence[str]]:
    """Return the passages and messages, and the facts that were corrected or forgotten.

    sent: if the scope holds nothing but this conversation, there is nothing to recall.
    """
    if sent is not None and not message_rows.is_more_than(conn, scope_id, sent):
        return (), (), ()
    driver = sql_driver(conn)
    similarity = SimilarityScores()
    passages = messages = []
    if ranked_rows.passages:
        passage_list = passage_rows.listed_hits(driver)
        passages = passage_rows.as_shown(
            fts.list_hits(conn, passage_list, ranked_rows.passages, similarity)
        )
    if ranked_rows.messages:
        passage_list = message_rows.listed_hits(driver)
        messages = fts.list_hits(conn, passage_list, ranked_rows.messages, similarity)
        messages = complete_hits(conn, scope_id, messages)
    outdated_facts = passage_lifecycle.list_outdated(conn, scope_id) if messages else ()
    return passages, messages, outdated_facts
