"""One request with memory: composed from one snapshot, its calls run, its answer recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.context.compaction import COMPACTION
from memory.context.fitted import SentPrompt
from memory.context.tokens import PromptReport
from memory.conversation.json_spans import Span
from memory.conversation.messages import Json
from memory.session.composer import Composer, Prompt
from memory.session.context import TurnContext
from memory.session.recorder import TurnRecorder
from memory.session.round_runner import RoundRunner
from memory.session.store_deadline import StoreDeadline
from memory.session.toolbox import Result
from memory.session.trace import ExplainTrace, ObservedCall
from memory.session.turn_exits import TurnExits
from memory.session.turn_record import TurnOutcome
from memory.session.turn_trace import note_runs
from memory.session.waiting_messages import read_waiting
from memory.stores.sql.turns.turn_reader import ConversationState
from memory.tools import ToolCall


async def begin_session(turn: TurnContext) -> Session:
    """Compose a turn's prompt and return its session."""
    # Recall reads what was said in other conversations.
    seconds = turn.policy.read_deadline
    conversation = turn.identity.conversation.id
    await turn.services.db.filer.file_of(turn.ask.scope.key, seconds, conversation)
    if turn.ask.inbox is not None:
        turn.progress.delivery = await read_waiting(turn)
    if turn.progress.rounds:
        note_runs(turn)
    composer = Composer(turn)
    session = Session(turn, composer, await composer.compose())
    if turn.snapshot.shares is not None:
        turn.progress.trace.note_shared(turn.snapshot.blocks.values(), turn.snapshot.omitted_labels)
    if layers := turn.snapshot.layers:
        recall_layers = session.prompt.recall_result.layers
        turn.progress.trace.note_layers(layers, turn.snapshot.block_layers, recall_layers)
    return session


class Session:
    """One request's view of the memory.

    exits: the rules on tools that act on the turn, None for none. prompt: what to send now.
    refused_tokens: of the newest prompt that was refused for its length.
    rounds: finished rounds of an earlier attempt, then of this one.
    """

    def __init__(self, turn: TurnContext, composer: Composer, prompt: Prompt) -> None:
        self.prompt = prompt
        self.conversation: ConversationState = turn.identity.conversation
        self.trace: ExplainTrace = turn.progress.trace
        self.rounds: Sequence[Json] = turn.progress.rounds
        self._turn = turn
        self._composer = composer
        self.explain_id: str = turn.identity.explain_id
        self._runner: RoundRunner | None = None
        self._recorder = TurnRecorder(turn)
        self._sent_prompt: SentPrompt | None = None
        self.refused_tokens = 0
        self.exits: TurnExits | None = None
        toolbox = turn.ask.toolbox
        if toolbox is not None and toolbox.exits is not None:
            self.exits = TurnExits(turn, toolbox, toolbox.exits)

    @property
    def patience(self) -> StoreDeadline:
        return self._turn.attempt.patience

    @property
    def is_recording(self) -> bool:
        return self._turn.is_recording

    @property
    def leaves_record(self) -> bool:
        """Whether an explain record is written of the turn, as far as is known by now."""
        return self._turn.is_recording and not self._recorder.has_no_answer

    @property
    def is_task(self) -> bool:
        """Whether the request is a task, and no talk."""
        return self._turn.task is not None

    @property
    def is_late(self) -> bool:
        """Whether the store did not take the answer, which waits in the recovery log."""
        return self._recorder.is_late

    @property
    def unsaved(self) -> bool:
        """Whether the store did not take the edits of its tools."""
        return self._turn.progress.unsaved

    @property
    def continues(self) -> bool:
        """Whether what earlier turns hid is known, and put back."""
        return self._turn.injects and self._turn.snapshot.past.node is not None

    @property
    def injected_tokens(self) -> int:
        return self.prompt.injected_tokens

    def observed_calls(self) -> list[ObservedCall]:
        """Return the memory tools that ran, and automatic recall if it searched."""
        trace = self.trace
        calls = [
            ObservedCall.of(c["name"], c["result"], c["ms"])
            for c in trace.tools
            if "entry" not in c
        ]
        if (ms := trace.timings.get("recall")) is not None:
            calls.append(ObservedCall.of_recall(self.prompt.recall, ms))
        return calls

    @property
    def can_defer_opening(self) -> bool:
        return self._recorder.can_defer_opening

    async def wait_for_opening(self, opening: asyncio.Future[None], patience: float) -> None:
        """Wait for the write of the request: for a connection, then at most `patience` seconds."""
        await self._recorder.wait_for_opening(opening, patience)

    async def compact_harder(
        self, attempt: int, error_tokens: tuple[int, int] | None = None
    ) -> bool:
        """Cut the prompt to a half, a quarter, an eighth, after a context overflow.

        error_tokens: tokens of the prompt and of the window, if the error names them: numbers by
        which it was cut once, and refused again, mislead. Returns False if nothing more can be
        removed.
        """
        if attempt != 0:
            error_tokens = None
        if not self._turn.injects:
            # A summary would have to be placed.
            return False
        self.prompt = self._composer.recount(self.prompt, error_tokens)
        self.refused_tokens = self.prompt.fitted.tokens
        smaller = await self._composer.compact_harder(self.prompt, attempt, error_tokens)
        if smaller is None:
            return False
        self.prompt = smaller
        if smaller.plan.reason == COMPACTION:
            self._sent_prompt = None
        return True

    def inject_nothing(self) -> None:
        """Note that the target only accepted the client's own body, without memory."""
        self.prompt = self.prompt.without_memory()
        self.trace.notes.append(
            "the target refused the request with memory in it; the client's own was sent"
        )

    def remember_sent_prompt(self, target: str, parts: Sequence[bytes | Span]) -> None:
        """Keep what was sent in this turn, so that the next one can reuse it."""
        self._sent_prompt = (
            self.prompt.sent_to(target, parts, self._turn.ask.tokenizer) or self._sent_prompt
        )

    @property
    def request_bytes(self) -> int:
        """The bytes of the client's request, 0 if unknown."""
        return len(self._turn.ask.body)

    async def calibrate_token_counter(
        self, usage: Json | None, *, proven: bool = False
    ) -> PromptReport | None:
        """Correct the token estimate by what the upstream counted; return that.

        proven: it is known to read requests of this size whole, so its count is not doubted.
        """
        sent_prompt = self._sent_prompt
        previous_prompt = self.prompt.previous_prompt
        is_same_target = (
            not proven
            and sent_prompt is not None
            and previous_prompt is not None
            and sent_prompt.by == previous_prompt.by
        )
        report = await self._composer.calibrate(
            self.prompt, usage, previous_prompt if is_same_target else None
        )
        if report is not None and sent_prompt is not None:
            sent_prompt.reported_tokens = report.reported_tokens
        return report

    async def run(self, calls: Sequence[ToolCall], reply: Json) -> Sequence[Result]:
        """Run one round's calls, or what an earlier attempt left of them; see `RoundRunner.run`."""
        if self._runner is None:
            self._runner = RoundRunner(self._turn, self.prompt.seen_versions)
        return await self._runner.run(calls, reply, self.prompt)

    async def open(self) -> None:
        """Make the request durable; see `TurnRecorder.open`."""
        await self._recorder.open(self.prompt)

    async def finish(self, outcome: TurnOutcome) -> bool:
        """Record how the turn ended; see `TurnRecorder.finish`."""
        return await self._recorder.finish(self.prompt, outcome, self._sent_prompt)

    async def fail(self) -> None:
        """End the turn without an answer; see `TurnRecorder.fail`."""
        await self._recorder.fail(self.prompt)

    async def drop_all(self) -> None:
        """Remove the opened turn; see `TurnRecorder.drop`."""
        await self._recorder.drop()

    async def proven(self) -> bool:
        """Tell whether an upstream ever answered this tenant; see `TurnRecorder.proven`."""
        return await self._recorder.proven()
