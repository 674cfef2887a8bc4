"""The context budget of a request, what it contains, and what of it was sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from memory.context.epoch import PlacementPlan
from memory.context.summary import PROMPT, Complete
from memory.context.tokens import TokenCounter
from memory.context.window import (
    NOTHING_LEFT_OUT,
    SOFT,
    SummarizedGap,
)
from memory.conversation.history import Messages, PrefixInfo
from memory.conversation.json_spans import Span
from memory.conversation.matching import RequestHistory
from memory.conversation.messages import EMPTY, Json, is_system
from memory.core.blocks import INSTRUCTION, CoreBlock

# Chain link of the last message a summary covers, and its text.
Kept = tuple[bytes, str]
# Index of that message, and the text.
Summary = tuple[int, str]
# Of the budget: the bytes that an answer may add before what is sure is looked at anew.
ANSWER = 0.1


class TokenBound(msgspec.Struct):
    """The tokens that a request has at most.

    size: its bytes, since no token is shorter than one. likely_tokens: what samples of it say, None
    if none were taken.
    """

    size: int
    likely_tokens: int | None = None

    @property
    def tokens(self) -> int:
        """The smaller of the two."""
        if self.likely_tokens is None:
            return self.size
        return min(self.size, self.likely_tokens)


class ContextBudget(msgspec.Struct):
    """What a request may use.

    budget: tokens for the prompt, None if the model's window is unknown. other_tokens: tokens of
    what is not a message (tools). load, save: access to the scope's stored summaries. seconds:
    timeout of a summary. coming: whether a summary of this conversation is being made. token_bound:
    upper bound for the request's tokens, None if only counting can tell. instruction: what the core
    text begins with. prompt: for a summary.
    """

    counter: TokenCounter
    model: str
    blocks: Sequence[CoreBlock]
    tag: str
    edits: int
    budget: int | None
    other_tokens: int
    complete: Complete | None
    load: Callable[[Sequence[bytes]], Awaitable[list[Kept]]]
    save: Callable[[bytes, str, int], Awaitable[None]]
    seconds: float = 30
    coming: Callable[[], Awaitable[bool]] | None = None
    token_bound: TokenBound | None = None
    instruction: str = INSTRUCTION
    prompt: str = PROMPT

    @property
    def certainly_fits(self) -> bool:
        """Whether the request fits without counting, and needs no summary soon."""
        if self.token_bound is None or self.budget is None:
            return self.token_bound is not None
        return self.token_bound.tokens <= SOFT * self.budget

    @property
    def certainly_fits_with_answer(self) -> bool:
        """Whether that will still be certain once the request is answered, at its usual length."""
        if self.token_bound is None or self.budget is None:
            return self.token_bound is not None
        return self.token_bound.tokens <= (SOFT - ANSWER) * self.budget


class SampledSize(msgspec.Struct, frozen=True):
    """The tokens of a body, estimated from samples.

    size: of the body in bytes. tokens: unscaled.
    """

    size: int
    tokens: int

    def grow(self, size: int) -> SampledSize:
        """Return what is known of a body that continues this one.

        No token is shorter than a byte.
        """
        return SampledSize(size, self.tokens + max(0, size - self.size))


class FittedContext(msgspec.Struct):
    """How a request was made to fit.

    drop: messages left out. swap: messages sent as stubs. tokens: 0 if not counted. evicted:
    indexes that this turn evicted or stubbed. cut: index of the last message that the epoch left
    behind, -1 for none. held: tokens of the messages and what is placed among them, unscaled.
    coming: the summary after the epoch's own exists or was requested. sampled: where nothing was
    counted, but the bytes alone did not tell that it fits. reported: tokens of all of it as its
    upstream counted them, 0 if it did not tell, or not of all.
    """

    plan: PlacementPlan
    drop: SummarizedGap = NOTHING_LEFT_OUT
    swap: dict[int, Json] = msgspec.field(default_factory=dict)
    tokens: int = 0
    evicted: list[int] = msgspec.field(default_factory=list)
    how: str = ""
    cut: int = -1
    held: int = 0
    coming: bool = False
    sampled: SampledSize | None = None
    reported: int = 0


class SentPrompt(msgspec.Struct):
    """What was sent upstream for the messages of `of`, kept so that the next turn can reuse it.

    by: the target it was encoded for. parts: the messages with what was placed among them, as JSON;
    for the client's own, spans in its body, since a body that begins with the same bytes contains
    them too. other_tokens: tokens of the tools. reported_tokens: what the upstream counted of all
    of it, 0 if unknown.
    """

    of: PrefixInfo
    by: str
    parts: Sequence[bytes | Span]
    fitted: FittedContext
    places: dict[int, int]
    tokenizer: str = "estimate"
    other_tokens: int = 0
    reported_tokens: int = 0

    def goes_on(self, messages: Messages) -> bool:
        """Tell whether these messages continue the same prompt with an answer.

        New system messages among them would belong to the beginning.
        """
        prefix = messages.before
        return (
            prefix is self.of
            and messages.after.newest == prefix.count
            and messages.after.system == prefix.system
        )


def message_size(counter: TokenCounter, message: Json, digest: bytes) -> int:
    return counter.message(message, digest if digest != EMPTY else None)


class UncompactedMessages:
    """The messages after a cut, hashed and counted.

    Of those before it only what is sent nevertheless: system messages, the newest user message,
    and the one that a long tool loop answers, if the cut is inside of that.
    cut: index of the last message that was cut, -1 for none; link: of the chain there. start: index
    of the first message of the tail, where `messages` and `sizes` (tokens) begin. links: of the
    chain, from the cut on, each with the index of its message.
    """

    def __init__(
        self, turn: RequestHistory, counter: TokenCounter, cut_index: int, link: bytes | None = None
    ) -> None:
        self.turn = turn
        self.start = cut_index + 1
        if link is not None:
            turn.reach(self.start, link)
        self.messages: Sequence[Json] = turn.messages[self.start :]
        self.sizes = [
            message_size(counter, m, turn.chain.digest(i))
            for i, m in enumerate(self.messages, self.start)
        ]
        self._counter = counter
        self._early_indexes = turn.messages.first(self.start)
        indexed_links = [(turn.chain.link(i), i) for i in range(self.start, len(turn.messages))]
        if cut_index >= 0 or turn.messages.after.behind:
            indexed_links.insert(0, (turn.chain.before(self.start), cut_index))
        # System messages do not change a link.
        self.links = dict(reversed(indexed_links))

    def kept_indexes(self, cut_index: int) -> list[int]:
        """Return the indexes up to `cut_index` that are sent nevertheless."""
        candidates = [*self._early_indexes, *range(self.start, cut_index + 1)]
        users = {self.turn.messages.after.user, self._find_opener(candidates, cut_index)}
        return [i for i in candidates if i in users or is_system(self.turn.messages[i])]

    def _find_opener(self, candidates: Sequence[int], cut_index: int) -> int:
        """Return the user message of the turn that a cut is inside of; -1 for none.

        What is sent begins with a user message: strict servers refuse an answer without one.
        """
        messages = self.turn.messages
        later_messages = (messages[i] for i in range(cut_index + 1, len(messages)))
        next_message = next((m for m in later_messages if not is_system(m)), None)
        if next_message is None or next_message.get("role") == "user":
            return -1
        return next((i for i in reversed(candidates) if messages[i].get("role") == "user"), -1)

    def count_before(self, indexes: Sequence[int]) -> int:
        """Count the tokens of those messages that are before the tail."""
        messages = self.turn.messages
        return sum(self._counter.message(messages[i]) for i in indexes if i < self.start)

    def between(self, start_index: int, end_index: int) -> list[int]:
        """Return the messages of the tail between two indexes that are left out.

        The newest user message is included: it is left out once there is a newer one.
        """
        return [
            i
            for i in range(max(start_index + 1, self.start), end_index)
            if not is_system(self.turn.messages[i])
        ]

    def size(self, index: int) -> int:
        return self.sizes[index - self.start]
