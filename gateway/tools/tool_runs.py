"""Runs checked calls: side by side within their limits, each within its time."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

import msgspec

from gateway.tools.checked_call import AdmittedCall
from gateway.tools.kind import ToolCaller, ToolOutput
from gateway.tools.kinds import AGENTS, TRUSTED_KINDS
from gateway.tools.own_tools import RESULT_OPEN, TOOL_SEARCH
from gateway.tools.registry import RegisteredTool, ToolEntry, ToolRegistry
from gateway.tools.results import (
    ERROR,
    HEAD,
    NO_SUCH_RESULT,
    ImageRoom,
    Showing,
    open_result,
    show_output,
)
from gateway.tools.running_call import RunningCall, RunTiming
from gateway.tools.tool_search import search_tools
from memory import ErasedMeanwhile, StoreUnavailable, iso
from memory.session.toolbox import (
    EarlierRun,
    RunLedger,
    RunRecord,
    RunStatus,
    StartedRun,
    text_of_result,
)

log = logging.getLogger("mnemogate")
# That a run gets, however little is left of its turn.
LEAST_SECONDS = 0.05
NOT_WRITTEN = (
    "Error: {} was not run, because the memory cannot record it right now. Answer without it, and "
    "say so if it matters."
)
NO_ROOM = "Error: the budget has no room for a run of {}."
NOT_KNOWN = (
    "Error: {} was started before the connection broke; whether it took effect is not known. Check "
    "before you repeat it."
)


class RunObserver(Protocol):
    """What counts runs, and what they cost."""

    def came(self) -> None:
        """Take note of a run that waits for its slot."""
        ...

    def began(self) -> None:
        """Take note of a run that has its slot."""
        ...

    def ended(self, entry: str, status: str, seconds: float | None) -> None:
        """Take note of how it ended. seconds: since it had its slot, None if it never had one."""
        ...

    def count_refusal(self, entry: str) -> None:
        """Take note of a call that is not run."""
        ...

    async def reserve(self, cost_usd: float) -> bool:
        """Book this cost, if the budget of the key has room for it; tell whether it has."""
        ...

    def book(self, cost_usd: float) -> None:
        """Add to the cost of the request; a negative one takes back what was reserved."""
        ...


class ToolRuns:
    """Runs the calls of one turn. until: the loop's time by which the turn ends."""

    def __init__(
        self,
        registry: ToolRegistry,
        usable: Mapping[str, RegisteredTool],
        caller: ToolCaller,
        until: float,
        observer: RunObserver,
    ) -> None:
        self._registry = registry
        self._usable = usable
        self._caller = caller
        self._until = until
        self._observer = observer
        self._slots = asyncio.Semaphore(registry.settings.parallel)
        self._images = ImageRoom(registry.settings.images_per_turn)
        self._in_order: dict[str, asyncio.Lock] = {}
        self.count = 0

    async def run(
        self, call: AdmittedCall, ledger: RunLedger, hidden: Collection[str] = ()
    ) -> RunRecord:
        """Run a call; return how it ended. Never raises for a failure of a tool.

        hidden: names of tools that a search does not find.
        """
        if call.tool is None:
            return await self._run_own(call, ledger, hidden)
        entry = call.tool.entry
        price = call.tool.entry.settings.price
        if price and not await self._observer.reserve(price):
            return self.refuse(call.run, NO_ROOM.format(call.name), {})
        timing = RunTiming()
        running_call = RunningCall(call.name, self._caller, timing)
        self._registry.running_calls.add(running_call)
        self._observer.came()
        status: RunStatus = "cancelled"
        try:
            record = await self._run_within(call, call.tool, ledger, timing)
            status = record.status
        except asyncio.CancelledError:
            ledger.note_cancelled(self._describe_cancelled(call, timing))
            raise
        finally:
            self._registry.running_calls.discard(running_call)
            self._observer.ended(entry.name, status, timing.seconds if timing.has_begun else None)
            if price and not timing.is_charged:
                self._observer.book(-price)
        return record

    async def find_refusal(self, call: AdmittedCall) -> str:
        """Return why a call could not run now, before anybody is asked about it; "" for nothing."""
        price = 0.0 if call.tool is None else call.tool.entry.settings.price
        if price and not await self._observer.reserve(price):
            return NO_ROOM.format(call.name)
        # It waits for a person, and is booked once it runs.
        self._observer.book(-price)
        return ""

    def _describe_cancelled(self, call: AdmittedCall, timing: RunTiming) -> RunRecord:
        """Return the record of a run whose client left."""
        facts = {**self.list_facts(call.run, ""), "started_at": iso(timing.started_at)}
        facts["queued_ms"] = timing.queued_ms
        milliseconds = round(timing.seconds * 1000, 2)
        return RunRecord(call.run, "cancelled", "", milliseconds, facts)

    def refuse(self, run: StartedRun, text: str, facts: Mapping[str, Any]) -> RunRecord:
        """Return the record of a call that is not run. facts: which rule or person refused it."""
        self._observer.count_refusal(run.entry)
        return RunRecord(run, "refused", text, facts={**self.list_facts(run, text), **facts})

    def list_facts(self, run: StartedRun, text: str) -> dict[str, Any]:
        """Return what a record tells of a call that was not run now. text: its result."""
        tool = self._usable.get(run.name)
        return {
            "kind": "toolbox" if tool is None else tool.entry.settings.kind,
            "started_at": iso(time.time()),
            "queued_ms": 0.0,
            "characters": len(text),
            "images": 0,
            "cost_usd": 0.0,
        }

    def note_end(self, record: RunRecord) -> None:
        """Count a call that is over."""
        self.count += 1

    async def _run_within(
        self, call: AdmittedCall, tool: RegisteredTool, ledger: RunLedger, timing: RunTiming
    ) -> RunRecord:
        """Run a call within its time, and write down what becomes of it."""
        seconds_left = self._until - asyncio.get_running_loop().time()
        seconds = max(LEAST_SECONDS, min(tool.timeout, seconds_left))
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as stack:
                await self._take_slots(stack, tool.entry)
                timing.begin()
                self._observer.began()
                earlier = await _start(call, ledger)
                if earlier is not None:
                    facts = self.list_facts(call.run, text_of_result(earlier.result))
                    return msgspec.structs.replace(earlier, facts=facts)
                timing.is_charged = True
                output = await _run_kind(call, tool, self._caller)
        except TimeoutError:
            text = f"Error: {call.name} did not answer within {round(seconds, 1):g} s."
            output = ToolOutput(text, "error")
            status = "timeout"
        else:
            status = output.status
            if output.cost_usd:
                self._observer.book(output.cost_usd)
        record = self._record(call, tool, output, timing, ledger)
        record = msgspec.structs.replace(record, status=status)
        _count(tool.entry, record, timing)
        await ledger.end(record)
        return record

    async def _take_slots(self, stack: AsyncExitStack, entry: ToolEntry) -> None:
        """Wait until the run may begin: in this order everywhere, so that none waits for ever."""
        if entry.settings.serial:
            lock = self._in_order.setdefault(entry.name, asyncio.Lock())
            await stack.enter_async_context(lock)
        # An agent that is asked runs tools too, which would wait for the slot of the ask.
        of_process = () if entry.settings.kind == AGENTS else (self._registry.slots,)
        for slots in (self._slots, entry.slots, *of_process):
            await stack.enter_async_context(slots)

    def _record(
        self,
        call: AdmittedCall,
        tool: RegisteredTool,
        output: ToolOutput,
        timing: RunTiming,
        ledger: RunLedger,
    ) -> RunRecord:
        """Return how a run ended, with what the model is shown of it."""
        settings = tool.entry.settings
        limit = settings.result_characters or self._registry.settings.result_characters
        how = Showing(limit, ledger.records, settings.kind not in TRUSTED_KINDS)
        output = dataclasses.replace(output, text=tool.entry.hidden.hide(output.text))
        shown_result = show_output(call.name, output, how, self._images)
        cost = settings.price + output.cost_usd
        facts: dict[str, Any] = {
            "kind": settings.kind,
            "started_at": iso(timing.started_at),
            "queued_ms": timing.queued_ms,
            "characters": shown_result.characters,
            "images": shown_result.image_count,
            "cost_usd": cost,
        }
        if output.origin:
            facts["origin"] = output.origin
        facts |= output.facts
        return RunRecord(
            call.run,
            output.status,
            shown_result.result,
            round(timing.seconds * 1000, 2),
            facts,
            shown_result.ident,
            shown_result.full_text,
        )

    async def _run_own(
        self, call: AdmittedCall, ledger: RunLedger, hidden: Collection[str]
    ) -> RunRecord:
        """Run a tool of the toolbox itself."""
        start_time = time.perf_counter()
        if call.name == RESULT_OPEN:
            text = await _open(call.arguments, ledger)
        elif call.name == TOOL_SEARCH:
            visible_tools = {
                name: tool for name, tool in self._usable.items() if name not in hidden
            }
            text = search_tools(visible_tools, call.arguments)
        else:
            text = f"Error: {call.name} cannot be called that way."
        milliseconds = round((time.perf_counter() - start_time) * 1000, 2)
        status: RunStatus = "error" if text.startswith(ERROR) else "ok"
        return RunRecord(call.run, status, text, milliseconds, {"kind": "toolbox"})


async def _start(call: AdmittedCall, ledger: RunLedger) -> RunRecord | None:
    """Write that a run with an effect starts; return its record if it must not."""
    run = call.run
    if run.effect == "read":
        return None
    try:
        earlier: EarlierRun | None = await ledger.start(run)
    except (StoreUnavailable, ErasedMeanwhile):
        return RunRecord(run, "refused", NOT_WRITTEN.format(call.name))
    if earlier is None:
        return None
    if earlier.is_done:
        return RunRecord(run, "replayed", earlier.result, has_succeeded=earlier.is_ok)
    return RunRecord(run, "unknown", NOT_KNOWN.format(call.name))


async def _run_kind(call: AdmittedCall, tool: RegisteredTool, caller: ToolCaller) -> ToolOutput:
    try:
        return await tool.entry.kind.run(tool.tool, call.arguments, caller)
    except TimeoutError:
        raise
    except Exception as e:
        # A defect of the kind is the model's to work around, and ours to read in the log.
        log.exception("unexpected failure of the tool %s", call.name)
        return ToolOutput(f"Error: {call.name} failed ({type(e).__name__}).", "error")


def _count(entry: ToolEntry, record: RunRecord, timing: RunTiming) -> None:
    entry.runs += 1
    entry.milliseconds.append(timing.seconds * 1000)
    if record.status != "ok":
        entry.errors += 1
        entry.last_error = str(record.result)[:300]


async def _open(arguments: Mapping[str, Any], ledger: RunLedger) -> str:
    """Return what `result_open` shows."""
    ident = arguments["id"]
    try:
        content = await ledger.read_result(ident)
    except StoreUnavailable:
        return "Error: results cannot be opened right now. Answer without it."
    if content is None:
        return NO_SUCH_RESULT
    text = open_result(ident, content, arguments.get("offset") or 0, arguments.get("find") or "")
    if text.startswith(ERROR):
        return text
    return HEAD.format(RESULT_OPEN) + text
