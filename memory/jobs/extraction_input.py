"""What extraction reads: some turns of a user, and what is known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy import Connection

from memory.conversation.thoughts import without_thoughts
from memory.core.blocks import CoreBlock
from memory.core.screen import Screen, without_masks
from memory.jobs.background_model import BackgroundCall, background_call
from memory.jobs.human_block import HumanBlock
from memory.search.drop_reasons import Drop, Reason
from memory.search.matters import find_matters
from memory.search.own_words import may_tell, read_own_words
from memory.search.small_talk import is_small_talk
from memory.stores.sql.rows import passage_lifecycle as fact_rows
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.rows.jobs import QueuedJob
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.turns import unread_turns
from memory.stores.sql.turns.replaced_turns import ReplacedTurns, find_replaced
from memory.stores.sql.turns.unread_turns import TurnMessage

# Of a payload: the job reads turns that were set aside; the user was idle before it; it reads what
# another job had no room for.
AGAIN = "again"
IDLE = "idle"
READS_REST = "rest"
# That are read at once: three times as many as are waited for, so that few are left over.
BATCH_TURNS, BATCH_CHARACTERS = 18, 8000
# Known facts shown: the newest, those nearest to each message, those of the same matters; of these
# as many of the newest are looked at.
NEWEST_KNOWN = 4
ALIKE_KNOWN = 3
SAME_KNOWN = 4
MAX_KNOWN = 16
COMPARED_KNOWN = 500
MAX_KNOWN_CHARACTERS = 200
# A message whose meaning may depend on what the assistant said.
SHORT_ANSWER_CHARACTERS = 60
# Of what the assistant said: enough to understand a "yes".
MAX_ANSWER_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """An existing fact: a passage by its id, or a line of the block."""

    text: str
    passage: str | None = None


@dataclass(frozen=True, slots=True)
class ExtractionInput:
    """What is read at once.

    nodes: the turns. said: their messages that the model is shown, of users in their own words.
    more: further turns wait. withheld: what the model is not shown of them, and why.
    """

    call: BackgroundCall
    nodes: Sequence[int]
    said: Sequence[TurnMessage]
    known: Sequence[KnownFacts]
    more: bool
    withheld: Sequence[Drop] = ()

    @property
    def user_said(self) -> list[TurnMessage]:
        return [s for s in self.said if s.role == "user"]


def read_input(
    conn: Connection,
    job: QueuedJob,
    blocks: Mapping[str, CoreBlock],
    screen: Screen,
    min_turns: int,
) -> ExtractionInput | None:
    """Return the input; None if the user or the turns are gone, or more turns are waited for.

    screen: what no model is shown. min_turns: that are read together while the user talks; fewer
    wait where a turn ended, and queued this job, while the one before it ran.
    """
    scope_id = job.scope_id
    call = background_call(conn, job.kind, job.scope_id, job.payload["model"])
    if call is None or scope_id is None:
        return None
    if job.payload.get(AGAIN):
        unread_nodes = unread_turns.oldest_aside(conn, scope_id, BATCH_TURNS + 1)
    else:
        # At idle nothing follows soon: who opens a new chat for each question is read as well.
        is_first = bool(job.payload.get("at_once") or job.payload.get(IDLE))
        waits = not (is_first or job.payload.get(READS_REST))
        if waits and unread_turns.count(conn, scope_id, min_turns) < min_turns:
            return None
        unread_nodes = unread_turns.oldest(conn, scope_id, BATCH_TURNS + 1, first=is_first)
    if not unread_nodes:
        return None
    messages = unread_turns.messages_of(conn, scope_id, unread_nodes[:BATCH_TURNS])
    conversations = {message.conversation for message in messages}
    choice = _MessageChoice(screen, find_replaced(conn, scope_id, conversations))
    nodes = choice.choose(messages, unread_nodes[:BATCH_TURNS])
    known_facts = _known_facts(
        conn, scope_id, blocks, [s.content for s in choice.shown if s.role == "user"]
    )
    has_more = len(nodes) < len(unread_nodes)
    return ExtractionInput(call, nodes, choice.shown, known_facts, has_more, choice.withheld)


class _MessageChoice:
    """What the model is shown of some turns, and what not.

    Of users the messages that may tell something, in their own words and without secrets; of the
    assistant the end of what a short message answers. replaced: see `find_replaced`.
    """

    def __init__(self, screen: Screen, replaced_turns: ReplacedTurns) -> None:
        self._screen = screen
        self._replaced_turns = replaced_turns
        self._seen_texts: set[str] = set()
        self._room = BATCH_CHARACTERS
        self.shown: list[TurnMessage] = []
        self.withheld: list[Drop] = []

    def choose(self, messages: Sequence[TurnMessage], nodes: Sequence[int]) -> Sequence[int]:
        """Choose among the messages of turns; return the turns that fit.

        messages: turn by turn. Where chats ran side by side their messages may have been stored in
        another order; a turn that was not looked at must not count as read.
        """
        previous_messages: dict[int, TurnMessage] = {}
        for message in messages:
            if self._is_replaced(message):
                if message.role == "user":
                    self.withheld.append(Drop("message", "replaced", message=message.id))
                continue
            if message.role != "user":
                previous_messages[message.conversation] = message
                continue
            previous_message = previous_messages.get(message.conversation)
            words, reasons = self._read(message)
            self._room -= len(words)
            if self._room < 0:
                return [n for n in nodes if n < message.node]
            self.withheld += [Drop("message", reason, message=message.id) for reason in reasons]
            if not words:
                continue
            if len(words) <= SHORT_ANSWER_CHARACTERS and previous_message is not None:
                end = self._screen.mask(_end_of_answer(previous_message))[0]
                self.shown.append(replace(previous_message, content=end))
            self.shown.append(replace(message, content=words))
            previous_messages.pop(message.conversation, None)
        return nodes

    def _is_replaced(self, message: TurnMessage) -> bool:
        return self._replaced_turns.has(message.conversation, message.node)

    def _read(self, message: TurnMessage) -> tuple[str, list[Reason]]:
        """Return what is shown of a message, "" for nothing, and why the rest is not."""
        text, left_out_reasons = read_own_words(message.content)
        words = self._screen.mask(text)[0]
        telling = without_masks(words)
        # Most secrets were left out when the message was stored.
        reasons: list[Reason] = list(left_out_reasons)
        if telling != words:
            reasons.append("secret")
        if words in self._seen_texts:
            return "", [*reasons, "duplicate"]
        if not may_tell(telling):
            return "", reasons or ["small_talk" if is_small_talk(words) else "question"]
        self._seen_texts.add(words)
        return words, reasons


def _end_of_answer(message: TurnMessage) -> str:
    return without_thoughts(message.content)[-MAX_ANSWER_CHARACTERS:]


def _known_facts(
    conn: Connection, scope_id: int, blocks: Mapping[str, CoreBlock], user_texts: Sequence[str]
) -> list[KnownFacts]:
    """Return the lines of the block, the newest passages and those nearest to what was said."""
    if not user_texts:
        return []
    # Of these matters a fact may have changed, though no word of it is said again.
    matters = find_matters("\n".join(user_texts))
    known_query = SearchQuery(limit=COMPARED_KNOWN if matters else NEWEST_KNOWN)
    newest_passages = passage_rows.search(conn, scope_id, passage_rows.PassageFilter(known_query))
    same_matter = (h for h in newest_passages if not matters.isdisjoint(find_matters(h["content"])))
    # Without a passage none is near.
    compared_texts = user_texts if newest_passages else ()
    similar_passages = (
        h
        for text in compared_texts
        for h in fact_rows.neighbours(conn, scope_id, text, ALIKE_KNOWN)
    )
    facts_by_id = {
        h["id"]: KnownFacts(h["content"][:MAX_KNOWN_CHARACTERS], h["id"])
        for h in [
            *islice(same_matter, SAME_KNOWN),
            *similar_passages,
            *newest_passages[:NEWEST_KNOWN],
        ]
    }
    lines = map(KnownFacts, HumanBlock(scope_id, blocks).lines(conn))
    return [*lines, *list(facts_by_id.values())[:MAX_KNOWN]]
