"""Where a kept fact comes from: who said it, in which message, in which words.

What came from a message that was edited away is set aside once its replacement was read.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from memory.jobs.fact_answer import ProposedFact
from memory.jobs.human_block import HumanBlock
from memory.search.folding import fold_text
from memory.stores.sql.rows import passage_lifecycle
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.turns import replaced_turns, unread_turns
from memory.stores.sql.turns.unread_turns import TurnMessage

ACTOR = "extraction"
EDITED = "edited"
MAX_QUOTE_CHARACTERS = 500


class FactOrigin(NamedTuple):
    """Where a fact comes from.

    message: its public id. quote: the user's words there. speaker: who said it, where several
    speak, else "". is_shared: several speak there, whether or not this message is named.
    """

    message: str = ""
    quote: str = ""
    speaker: str = ""
    is_shared: bool = False

    def source(self, request: str) -> EditSource:
        """Return who edits a block because of it. request: the job."""
        return EditSource(ACTOR, request, self.message, quote=self.quote or None)


def origin_of(conn: Connection, message: TurnMessage | None, quote: str) -> FactOrigin:
    """Return where a fact comes from. message: that has its quote. quote: without secrets."""
    if message is None:
        return FactOrigin()
    is_shared = len(unread_turns.names_in(conn, message.conversation)) > 1
    speaker = message.name if is_shared else ""
    return FactOrigin(message.id, quote[:MAX_QUOTE_CHARACTERS], speaker, is_shared)


def name_speaker(fact: ProposedFact, speaker: str) -> ProposedFact:
    """Return a fact that names whom it is about. speaker: "" where only one speaks."""
    if not speaker or not fact.text or fold_text(speaker) in fold_text(fact.text):
        return fact
    return msgspec.structs.replace(fact, text=f"{speaker}: {fact.text}")


def set_edited_aside(
    conn: Connection, scope_id: int, read_conversations: Set[int], human: HumanBlock, request: str
) -> None:
    """Set aside what came from messages that were edited away, reversibly.

    read_conversations: conversations whose turns were read. What a replacement still says stays.
    request: the job.
    """
    for lost_fact in replaced_turns.lost_facts(conn, scope_id, read_conversations):
        if lost_fact.passage is not None:
            passage_lifecycle.set_aside(conn, scope_id, lost_fact.passage, EDITED)
        else:
            human.replace_lines(
                conn, lost_fact.lines, None, EditSource(EDITED, request, lost_fact.message)
            )
