"""The operator's tools of one request (see `Toolbox`): what it is offered, and its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from hashlib import sha256

import msgspec

from gateway.tools.agent_tools import AgentTools
from gateway.tools.approval_wait import CallApprovals
from gateway.tools.checked_call import AdmittedCall, CallChecker, RefusedCall, called_name
from gateway.tools.kinds import AGENTS, SKILLS
from gateway.tools.own_tools import OWN_TOOLS, RESULT_OPEN, TOOL_CALL, TOOL_SEARCH
from gateway.tools.registry import GrantedTools, RegisteredTool, ShownTools, ToolRegistry
from gateway.tools.results import ERROR
from gateway.tools.skill_tool import SKILL_OPEN
from gateway.tools.tool_runs import ToolRuns
from gateway.tools.verdicts import ALLOW, ReplyRules, RunRules
from gateway.wire.chat import Json
from memory import ToolCall
from memory.session.toolbox import (
    NO_LONGER_AVAILABLE,
    NO_OFFER,
    Result,
    RunRecord,
    StartedRun,
    ToolOffer,
    ToolTurn,
    text_of_result,
)

# Stand among an epoch's tools, for the header that narrowed them and for what the agent grants.
HEADER_LABEL = "header:"
AGENT_LABEL = "agent:"
LABELS = (HEADER_LABEL, AGENT_LABEL)
LABEL_DIGITS = 16
NONE_HIDDEN = frozenset[str]()
OWN_NAMES = tuple(OWN_TOOLS)
NONE_SHOWN = ShownTools(NO_OFFER, (), ())
# Of entries that no registry lists: what they reach is looked at with each call.
UNLISTED = (AGENTS, SKILLS)
FindChanged = Callable[[], Awaitable[GrantedTools | None]]


async def _find_nothing_changed() -> None:
    return None


class ToolCircumstances(msgspec.Struct, frozen=True):
    """What a request may use.

    granted_tools: tools. client_names: names that the client's own tools have. header: as it came.
    of_agent: patterns that the agent's profile grants. takes: the request and its target take
    tools. colleagues: tools that reach other agents, None for none. find_changed: returns what is
    granted now of the registry's tools, None while nothing of that changed.
    """

    registry: ToolRegistry
    granted_tools: GrantedTools
    client_names: frozenset[str]
    header: str
    rules: RunRules
    approvals: CallApprovals
    of_agent: tuple[str, ...] = ()
    takes: bool = True
    colleagues: AgentTools | None = None
    find_changed: FindChanged = _find_nothing_changed

    def label(self) -> dict[str, str]:
        """Return what an epoch's tools were chosen by: another value begins a new epoch.

        An agent's grants count with those of their names that are there, so that a tool is shown
        from the next request after it was granted, or came back.
        """
        labels = {HEADER_LABEL: self.header} if self.header else {}
        if self.of_agent:
            present_names = [name for name in self.of_agent if name in self.granted_tools.tools]
            digest = sha256(msgspec.json.encode([self.of_agent, present_names])).hexdigest()
            labels[AGENT_LABEL] = digest[:LABEL_DIGITS]
        return labels


class TurnToolbox:
    """See the port. deferred: names of tools that only `tool_search` finds."""

    def __init__(self, request: ToolCircumstances, runs: ToolRuns) -> None:
        granted_tools = request.granted_tools
        client_names = request.client_names
        self._request = request
        self._runs = runs
        self._labels = request.label()
        self.names: Collection[str] = granted_tools.names | OWN_TOOLS.keys()
        self._usable = granted_tools.tools
        self._own_names = OWN_NAMES
        self._present: Mapping[str, RegisteredTool] = {}
        self.withheld: list[str] = []
        self._is_whole = client_names.isdisjoint(self.names)
        if not self._is_whole:
            self.withheld = sorted(client_names & granted_tools.names)
            self._usable = {
                name: t for name, t in granted_tools.tools.items() if name not in client_names
            }
            self._own_names = tuple(name for name in OWN_NAMES if name not in client_names)
            self.names = frozenset((*self._usable, *self._own_names))
        self.deferred: Sequence[str] = ()
        settings = request.registry.settings
        self._checker = CallChecker(self._usable, settings.calls_per_turn)
        # As long as no block lists a skill, the turn is one without tools of ours.
        self.is_idle = self._usable.keys() == {SKILL_OPEN}
        self.exits = request.rules.exits
        self.governed_memory = request.rules.governed_memory

    @property
    def fingerprint(self) -> object | None:
        if not self._is_whole or self._request.colleagues is not None:
            return None
        return self._request.granted_tools, *self._labels.items()

    def choose_tools(self, blocks: Collection[str]) -> Mapping[str, str]:
        granted_tools = self._request.granted_tools
        block_labels = granted_tools.needed_blocks.intersection(blocks)
        tool_digests = None
        if self._is_whole:
            tool_digests = granted_tools.choices.get(block_labels)
        if tool_digests is None:
            tool_digests = self._choose(blocks)
            if self._is_whole:
                granted_tools.choices[block_labels] = tool_digests
        if self._labels:
            return {**self._labels, **tool_digests}
        return tool_digests

    def _choose(self, blocks: Collection[str]) -> Mapping[str, str]:
        usable = {
            name: tool
            for name, tool in self._usable.items()
            if not tool.tool.needs_block or tool.tool.needs_block in blocks
        }
        if not usable:
            return {}
        tokens = sum(tool.tokens for tool in usable.values())
        helpers = [RESULT_OPEN]
        tools = usable
        if tokens > self._request.registry.settings.schema_tokens:
            helpers += [TOOL_SEARCH, TOOL_CALL]
            tools = {name: tool for name, tool in tools.items() if not tool.is_deferrable}
        digests = {name: tool.digest for name, tool in tools.items()}
        return digests | {
            name: OWN_TOOLS[name].digest for name in helpers if name in self._own_names
        }

    def continues(self, tool_digests: Mapping[str, str]) -> bool:
        labels = self._labels
        for label in LABELS:
            if tool_digests.get(label, "") != labels.get(label, ""):
                return False
        for name, digest in tool_digests.items():
            if name in LABELS:
                continue
            tool = self._usable.get(name) or (
                OWN_TOOLS.get(name) if name in self._own_names else None
            )
            if tool is None or tool.digest != digest:
                return False
        return True

    def offer(self, tool_digests: Mapping[str, str]) -> ToolOffer:
        shown_tools = self._show(tool_digests)
        self.deferred = shown_tools.deferred
        return shown_tools.offer

    def _show(self, tool_digests: Mapping[str, str]) -> ShownTools:
        if not self._request.takes:
            return NONE_SHOWN
        labels = tuple(tool_digests)
        granted_tools = self._request.granted_tools
        if self._is_whole and (offer := granted_tools.offers.get(labels)) is not None:
            return offer
        names = sorted(name for name in tool_digests if name not in LABELS)
        tools = [self._usable.get(name) or OWN_TOOLS[name] for name in names]
        offer = ShownTools(
            ToolOffer(
                [tool.definition for tool in tools],
                sum(tool.tokens for tool in tools),
                sum(tool.byte_count for tool in tools),
            ),
            names,
            [n for n in self._usable if n not in tool_digests]
            if TOOL_SEARCH in tool_digests
            else (),
        )
        if self._is_whole:
            granted_tools.keep_offer(labels, offer)
        return offer

    def describe(self, tool_digests: Mapping[str, str]) -> Json:
        shown_tools = self._show(tool_digests)
        withheld = [{"name": n, "why": "the client has a tool of this name"} for n in self.withheld]
        return {"offered": shown_tools.names, "deferred": self.deferred, "withheld": withheld}

    async def run(self, calls: Sequence[ToolCall], turn: ToolTurn) -> list[RunRecord]:
        if self._request.colleagues is not None:
            self._request.colleagues.begin_round(turn.conversation, turn.explain_id)
        self._present = await self._find_present()
        admitted_calls = self._check(calls, turn)
        runs: list[asyncio.Task[RunRecord] | RunRecord] = []
        async with asyncio.TaskGroup() as group:
            for call in admitted_calls:
                if isinstance(call, RunRecord):
                    runs.append(call)
                else:
                    runs.append(group.create_task(self._run_call(call, turn)))
        records = [
            record_or_task if isinstance(record_or_task, RunRecord) else record_or_task.result()
            for record_or_task in runs
        ]
        for record in records:
            self._runs.note_end(record)
        return records

    def describe_replayed(self, call: ToolCall, place: int, result: Result) -> RunRecord:
        run = self._run_of(call, place)
        facts = self._runs.list_facts(run, text_of_result(result))
        return RunRecord(run, "replayed", result, facts=facts)

    async def _find_present(self) -> Mapping[str, RegisteredTool]:
        """Return the tools that are granted still, as they were when the turn began.

        Of an entry that a reload replaced, the new one runs.
        """
        changed_tools = await self._request.find_changed()
        if changed_tools is None:
            return self._usable
        present_tools: dict[str, RegisteredTool] = {}
        for name, tool in self._usable.items():
            is_listed = tool.entry.settings.kind not in UNLISTED
            present_tool = changed_tools.tools.get(name) if is_listed else tool
            if present_tool is not None and present_tool.digest == tool.digest:
                present_tools[name] = present_tool
        return present_tools

    async def _run_call(self, call: AdmittedCall, turn: ToolTurn) -> RunRecord:
        """Run a call, once a person allowed it where one must; that takes no slot."""
        if not call.needs_approval:
            return await self._run_allowed(call, turn)
        if refusal := await self._runs.find_refusal(call):
            return self._runs.refuse(call.run, refusal, {})
        approval = await self._request.approvals.ask(call)
        facts = {"approval": approval.id} if approval.id else {}
        if approval.refusal:
            return self._runs.refuse(call.run, approval.refusal, facts)
        if call.tool is not None:
            # That took its time.
            call.tool = (await self._find_present()).get(call.name)
            if call.tool is None:
                text = NO_LONGER_AVAILABLE.format(call.name)
                return self._runs.refuse(call.run, text, facts)
        record = await self._run_allowed(call, turn)
        return msgspec.structs.replace(record, facts={**record.facts, **facts})

    async def _run_allowed(self, call: AdmittedCall, turn: ToolTurn) -> RunRecord:
        if call.name not in self.governed_memory:
            if call.name == TOOL_SEARCH:
                hidden = self._list_hidden(turn)
            else:
                hidden = NONE_HIDDEN
            return await self._runs.run(call, turn.ledger, hidden)
        text = await turn.run_memory(call.run.place)
        return RunRecord(call.run, "error" if text.startswith(ERROR) else "ok", text)

    def _list_hidden(self, turn: ToolTurn) -> frozenset[str]:
        """Return which tools a search does not find: revoked ones, and what rules withhold now."""
        revoked_names = self._usable.keys() - self._present.keys()
        if self.exits is None:
            return frozenset(revoked_names)
        return self.exits.list_withheld(self._usable, turn.before) | revoked_names

    def _check(self, calls: Sequence[ToolCall], turn: ToolTurn) -> list[AdmittedCall | RunRecord]:
        """Return the calls that may run, and a record for each that may not."""
        rules = self._request.rules.begin_reply(turn.before)
        self._checker.begin_reply(turn.before, self._present)
        admitted_calls: list[AdmittedCall | RunRecord] = []
        for call, place in zip(calls, turn.places, strict=True):
            try:
                admitted_calls.append(self._admit(call, place, rules))
            except RefusedCall as e:
                facts = {"rule": e.rule} if e.rule else {}
                admitted_calls.append(self._runs.refuse(self._run_of(call, place), str(e), facts))
        return admitted_calls

    def _admit(self, call: ToolCall, place: int, rules: ReplyRules) -> AdmittedCall:
        """Return a call that may run. Raises RefusedCall."""
        name = called_name(call.name, call.arguments)
        is_granted = name in self._present or name in self.governed_memory
        if is_granted:
            verdict = rules.judge(name)
        else:
            verdict = ALLOW
        if verdict.decision == "refuse":
            raise RefusedCall(verdict.message, verdict.rule)
        if call.name in self.governed_memory:
            admitted = AdmittedCall(self._run_of(call, place), None, {})
        else:
            admitted = self._checker.check(call, place)
        admitted.needs_approval = verdict.decision == "approve"
        rules.accept(name)
        return admitted

    def _run_of(self, call: ToolCall, place: int) -> StartedRun:
        """Return what is known of a call that was not checked."""
        name = called_name(call.name, call.arguments)
        tool = self._usable.get(name)
        if tool is None:
            return StartedRun(place, "", call.name, 0, "read", call.arguments, "")
        about = tool.tool
        return StartedRun(
            place, tool.entry.name, name, about.version, about.effect, call.arguments, ""
        )
