"""Runs a round's calls side by side: those of memory tools, and those of the operator's tools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from memory.conversation.messages import Json
from memory.core.tool_definitions import OURS
from memory.errors import ErasedMeanwhile, StoreUnavailable
from memory.session.composer import Prompt
from memory.session.context import TurnContext
from memory.session.run_ledger import RoundLedger
from memory.session.tool_runner import ToolRunner
from memory.session.toolbox import (
    NO_LONGER_AVAILABLE,
    Result,
    RunRecord,
    StartedRun,
    ToolTurn,
    text_of_result,
)
from memory.session.turn_trace import note_runs, runs_before
from memory.tools import ToolCall


class RoundRunner:
    """Runs the rounds of one turn. seen: label to the block's version shown to the model."""

    def __init__(self, turn: TurnContext, seen_versions: Mapping[str, int]) -> None:
        self._turn = turn
        self._memory = ToolRunner(turn, seen_versions)

    async def run(self, calls: Sequence[ToolCall], reply: Json, prompt: Prompt) -> Sequence[Result]:
        """Run one round's calls and return one result for each.

        Edits of the memory are committed before slow runs end. A round that an earlier attempt
        began is gone on with: what is over there is not run again.
        """
        if prompt.owned is OURS:
            return await self._memory.run(calls, reply, prompt.tools)
        return await self._run_mixed(calls, reply, prompt)

    async def _run_mixed(
        self, calls: Sequence[ToolCall], reply: Json, prompt: Prompt
    ) -> Sequence[Result]:
        rounds = self._turn.progress.rounds
        is_resumed = bool(rounds) and rounds[-1]["reply"] is reply
        ledger = RoundLedger(self._turn, reply, calls)
        pending_places = [i for i, result in enumerate(ledger.results) if result is None]
        memory_places = [i for i in pending_places if self._is_own(calls[i])]
        tool_places = [i for i in pending_places if i not in memory_places]
        turn = self._tool_turn(tool_places, ledger, self._memory_runner(calls, ledger, prompt))
        self._note_replayed(calls, ledger)
        start_time = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                if memory_places:
                    group.create_task(self._run_memory(calls, memory_places, ledger, prompt.tools))
                tool_calls = [calls[i] for i in tool_places]
                tool_task = group.create_task(self._run_others(tool_calls, turn))
        except asyncio.CancelledError:
            # What was shown before is recorded, and says what was given up.
            self._trace(calls, ledger, round((time.perf_counter() - start_time) * 1000, 2))
            raise
        records = tool_task.result()
        for record in records:
            ledger.take(record)
        try:
            await ledger.close(records)
        except (StoreUnavailable, ErasedMeanwhile):
            self._turn.progress.unsaved = True
        if is_resumed:
            rounds[-1] = ledger.entry()
        else:
            rounds.append(ledger.entry())
        note_runs(self._turn)
        elapsed = round((time.perf_counter() - start_time) * 1000, 2)
        self._trace(calls, ledger, elapsed)
        return [result for result in ledger.results if result is not None]

    def _is_own(self, call: ToolCall) -> bool:
        """Tell whether a call is one of a memory tool that no rule judges."""
        toolbox = self._turn.ask.toolbox
        return call.name in OURS and (toolbox is None or call.name not in toolbox.governed_memory)

    def _memory_runner(
        self, calls: Sequence[ToolCall], ledger: RoundLedger, prompt: Prompt
    ) -> Callable[[int], Awaitable[str]]:
        """Return what runs the memory call at a place, once rules allow it."""

        async def run_memory(place: int) -> str:
            (text,) = await self._memory.run_at([place], calls, prompt.tools, ledger)
            return text

        return run_memory

    def _tool_turn(
        self,
        places: Sequence[int],
        ledger: RoundLedger,
        run_memory: Callable[[int], Awaitable[str]],
    ) -> ToolTurn:
        identity = self._turn.identity
        return ToolTurn(
            ledger.number,
            places,
            ledger,
            runs_before(self._turn, ledger.before),
            run_memory,
            identity.conversation.name,
            identity.explain_id,
        )

    async def _run_memory(
        self,
        calls: Sequence[ToolCall],
        places: Sequence[int],
        ledger: RoundLedger,
        definitions: Sequence[Json],
    ) -> None:
        """Run memory calls, and keep their results in the ledger."""
        texts = await self._memory.run_at(places, calls, definitions, ledger)
        for place, text in zip(places, texts, strict=True):
            ledger.take_text(place, text)

    async def _run_others(self, calls: Sequence[ToolCall], turn: ToolTurn) -> list[RunRecord]:
        if not calls:
            return []
        toolbox = self._turn.ask.toolbox
        if toolbox is not None:
            return await toolbox.run(calls, turn)
        return [
            RunRecord(
                StartedRun(place, "", call.name, 0, "read", call.arguments, ""),
                "refused",
                NO_LONGER_AVAILABLE.format(call.name),
            )
            for place, call in zip(turn.places, calls, strict=True)
        ]

    def _note_replayed(self, calls: Sequence[ToolCall], ledger: RoundLedger) -> None:
        """Note which calls an earlier attempt ran, of a round that is gone on with."""
        toolbox = self._turn.ask.toolbox
        for place, result in enumerate(ledger.results):
            if result is not None and toolbox is not None and not self._is_own(calls[place]):
                record = toolbox.describe_replayed(calls[place], place, result)
                ledger.ended[place] = record

    def _trace(self, calls: Sequence[ToolCall], ledger: RoundLedger, elapsed: float) -> None:
        """Note the calls of the round for the explain record, without secrets."""
        mask = self._turn.policy.screen.mask
        for place, call in enumerate(calls):
            result = ledger.results[place]
            record = ledger.ended.get(place)
            if result is None and record is None:
                # Of the memory, given up.
                continue
            entry = {
                "round": ledger.number,
                "name": call.name,
                "arguments": call.arguments,
                "result": "" if result is None else text_of_result(result),
                "ms": elapsed,
            }
            if record is not None and call.name in OURS:
                entry |= record.facts
            elif record is not None:
                run = record.run
                entry |= {
                    "name": run.name,
                    "arguments": mask(run.arguments)[0],
                    "result": mask(str(entry["result"]))[0],
                    "ms": record.milliseconds,
                    "entry": run.entry,
                    "version": run.version,
                    "status": record.status,
                    **record.facts,
                }
            self._turn.progress.trace.tools.append(entry)
