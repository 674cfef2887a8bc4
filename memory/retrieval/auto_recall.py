"""Automatic recall: finds what seems relevant to the newest user message, without a tool call.

Only what covers enough of the message comes in: at most five items, each once in a conversation,
within a token budget. What the request contains already is left out, and so is what was corrected
since. For small talk nothing is searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import msgspec

from memory.context.tokens import TokenCounter
from memory.conversation.beginnings import MAX_INSPECTED_CHARACTERS, SentBeginnings, shown_beginning
from memory.conversation.harness import SHIPPED_HARNESS, Harness
from memory.conversation.messages import Json
from memory.conversation.thoughts import without_thoughts
from memory.core.blocks import escape
from memory.core.layers import OWN
from memory.core.repeated_spans import without_repeated_spans
from memory.retrieval.active_scopes import RECALLED
from memory.retrieval.retriever import RecallHits
from memory.search.dedup import covers
from memory.search.own_words import has_statement, is_like_request, own_words, sentences
from memory.search.small_talk import is_acknowledgement, is_small_talk
from memory.search.zones import UTC_NAME, day_of
from memory.stores.sql.rows.messages import SearchQuery

ITEMS = 5
# Tokens of all items, and their share of a small context window.
TOKENS, WINDOW_SHARE = 600, 0.05
MAX_QUERY_CHARACTERS = 2000
# Characters of a text whose words are looked for in a body.
PROBED_CHARACTERS = 120
# Items that a conversation remembers to have shown
MAX_RECALLED = 100
HEADING = "Found in memory; it may or may not matter here."
ITEM_START = "- ("
# A line of recalled items, as a model may repeat it.
_ITEM = re.compile(
    r"^[ \t>*]{0,8}(?:- \(\d{4}-\d\d-\d\d"
    r"(?:, (?:user|assistant|tenant|team|project)(?:[ :][^)\n]{1,300})?)?\) .*"
    rf"|{re.escape(HEADING)})$",
    re.MULTILINE,
)
Hit = dict[str, Any]


class Recall(msgspec.Struct, frozen=True):
    """What is added to a message.

    keys: of all items shown. passages: of those in archival memory. layers: of these by public id,
    where several layers were searched.
    """

    text: str = ""
    keys: Sequence[int] = ()
    passages: Sequence[int] = ()
    layers: Mapping[str, str] = {}

    def keys_after(self, earlier_keys: Sequence[int]) -> list[int]:
        """Return what the conversation was shown so far, the newest last."""
        return [*earlier_keys, *self.keys][-MAX_RECALLED:]


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """What recall leaves out.

    beginnings: of the request's messages. keys: shown earlier in this conversation. core: the text
    of core memory. outdated: facts that were corrected or forgotten. message: to which is added.
    """

    beginnings: Container[str] = ()
    keys: Collection[int] = ()
    core: str = ""
    outdated: Sequence[str] = ()
    message: str = ""

    def has_shown(self, hit: Hit) -> bool:
        """Tell whether a hit was shown earlier, or stands in a newer version of its turn."""
        return bool(hit.get("replaced")) or _key(hit) in self.keys

    def holds(self, hit: Hit, beginning: str) -> bool:
        """Tell whether a hit is in the request already, or says nothing. beginning: of it."""
        if beginning in self.beginnings or escape(beginning) in self.core:
            return True
        if "role" not in hit:
            return False
        # An earlier question answers nothing, and neither does a thank you; an earlier message may
        # tell what was corrected since.
        if hit["role"] == "user":
            is_empty = _says_nothing(hit["content"], self.message)
        else:
            is_empty = is_acknowledgement(beginning)
        if is_empty:
            return True
        return any(covers(beginning, fact) for fact in self.outdated)


def _says_nothing(earlier_message: str, message: str) -> bool:
    """Tell whether a user's earlier message tells nothing, or only asks for what this one does."""
    words = own_words(earlier_message)
    return not has_statement(words) or is_like_request(words, message)


class ShownAs(NamedTuple):
    """How items are shown. tag: of the scope. zone: in which days are told, by its name."""

    tag: str
    zone: str = UTC_NAME


def recall_query(
    message: str, max_characters: int | None = None, harness: Harness = SHIPPED_HARNESS
) -> SearchQuery | None:
    """Return what to search for a user's message; None for small talk and pasted text alone.

    max_characters: the conversation's end for an unnamed user. harness: what its client puts around
    it.
    """
    own_text = own_words(harness.own_edges(message))
    words = " ".join(s for s in sentences(own_text) if not is_small_talk(s))[:MAX_QUERY_CHARACTERS]
    if words:
        return replace(RECALLED, text=words, within=max_characters)
    return None


def alternate(recall_hits: RecallHits) -> list[Hit]:
    """Return what passed the gate, best first: passages and earlier messages alternately."""
    pairs = zip_longest(recall_hits.passages, recall_hits.messages)
    return [hit for hit in chain.from_iterable(pairs) if hit is not None]


class BodyBeginnings:
    """The beginnings of a request's messages, decoded only where its bytes may hold a text.

    body: the request, in which all of them stand. load: returns its messages.
    """

    def __init__(self, body: bytes, load: Callable[[], Sequence[Json]]) -> None:
        self._body = body
        self._load = load
        # So a plain character may be spelt otherwise.
        self._is_escaped = b"\\u00" in body
        self._decoded_body: SentBeginnings | None = None

    def __contains__(self, beginning: object) -> bool:
        if not self._is_escaped:
            for word in str(beginning)[:PROBED_CHARACTERS].split()[:-1]:
                if word.isascii() and word.isalnum() and word.encode() not in self._body:
                    return False
        if self._decoded_body is None:
            self._decoded_body = SentBeginnings.read(self._load())
        return beginning in self._decoded_body


def _key(hit: Hit) -> int:
    """Return the row key of a passage or message."""
    return int(hit.get("key") or hit["id"])


def _spoken(hit: Hit) -> str:
    """Return what a hit says; what an earlier version stored of an assistant has its thoughts."""
    text = str(hit["content"][:MAX_INSPECTED_CHARACTERS])
    if hit.get("role") == "assistant":
        return without_thoughts(text)
    return text


def _beginnings(hit: Hit, tag: str) -> tuple[str, str]:
    """Return how a hit begins, and without what a model repeated of our own spans."""
    spoken_text = _spoken(hit)
    if hit.get("role") == "user":
        own_text = without_repeated_spans(spoken_text, tag)
    else:
        own_text = without_repeated_spans(spoken_text)
        if ITEM_START in own_text or HEADING in own_text:
            own_text = _ITEM.sub("", own_text)
    whole_beginning = shown_beginning(spoken_text)
    if own_text == spoken_text:
        return whole_beginning, whole_beginning
    return whole_beginning, shown_beginning(own_text)


def _said_by(hit: Hit) -> str:
    """Return who said a hit, as it stands in its line; of a passage which layer, if not theirs."""
    if "role" not in hit:
        layer = hit.get("layer", OWN)
        if layer == OWN:
            return ""
        return f", {escape(layer)}"
    name = ""
    if hit.get("speaker"):
        name = f" {escape(hit['speaker'])}"
    return f", {hit['role']}{name}"


def token_budget(window: int | None) -> int:
    """Return the most tokens of the items. window: the model's, None if unknown."""
    if window is None:
        return TOKENS
    return min(TOKENS, int(WINDOW_SHARE * window))


def render_recall(
    hits: Sequence[Hit],
    already_there: AlreadyThere,
    presentation: ShownAs,
    counter: TokenCounter,
    room: int = TOKENS,
) -> Recall:
    """Return the hits as prompt text, escaped; empty if none is left. room: in tokens."""
    tag = presentation.tag
    lines: dict[str, str] = {}
    shown_hits: list[Hit] = []
    size = 0
    for hit in hits:
        if len(shown_hits) == ITEMS:
            break
        if already_there.has_shown(hit):
            continue
        whole_beginning, words = _beginnings(hit, tag)
        if not words or words in lines or already_there.holds(hit, words):
            continue
        if words != whole_beginning and whole_beginning in already_there.beginnings:
            continue
        day = day_of(hit["created_at"], presentation.zone)
        line = f"- ({day}{_said_by(hit)}) {escape(words)}"
        # No text has more tokens than bytes, so that few lines need no counting.
        size += len(line.encode("utf-8", "surrogatepass"))
        if size > room and sum(map(counter.text, (*lines.values(), line))) > room:
            break
        lines[words] = line
        shown_hits.append(hit)
    if not shown_hits:
        return Recall()
    body = "\n".join(lines.values())
    return Recall(
        f'<recalled_memory tag="{tag}">\n{HEADING}\n{body}\n</recalled_memory>',
        [_key(h) for h in shown_hits],
        [_key(h) for h in shown_hits if "role" not in h],
        {str(h["id"]): h["layer"] for h in shown_hits if "layer" in h},
    )
