"""Distillation: what a user had done again and again becomes a skill. Off by default.

At idle the newest turns are read as sequences of tool calls. One that was done often enough, in two
conversations or more, is described once by a model; a person makes it active, or it is at once. The
same job counts how uses of skills ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sqlalchemy import Connection

from memory.conversation.messages import keyed_hash
from memory.conversation.thoughts import answer_text
from memory.core.blocks import CoreBlock
from memory.core.screen import Screen
from memory.core.skill_text import ACTIVE, CANDIDATE, SkillDraft
from memory.core.task_turns import RepeatedTask, RepetitionRules, find_repeated, settle_uses
from memory.jobs.background_model import BackgroundCall, BackgroundModel, background_call
from memory.jobs.skill_answer import TOKENS, TaskEvidence, build_prompt, find_fault, read_draft
from memory.jobs.worker import Handler
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import skill_block, task_turns
from memory.stores.sql.rows import skills as skill_rows
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.jobs import Effect, QueuedJob, enqueue
from memory.stores.sql.rows.skill_block import SkillListing
from memory.stores.sql.rows.skills import NewSkill, SkillEditor

log = logging.getLogger("mnemogate")
KIND = "distill"
ACTOR = "distillation"
# Lists that are written in one transaction.
ALIGNED_ROWS = 100
# After a turn with tools; each one begins the wait anew.
IDLE_SECONDS = 5.0
# Of a task that the model is shown.
SHOWN_TURNS = 4
# Texts of one sequence that are refused, after which none is asked for.
MAX_REFUSALS = 3
# Turns that a skill names.
MADE_FROM = 20
SkillMode = Literal["off", "review", "auto"]
Blocks = Callable[[str], Mapping[str, CoreBlock]]


@dataclass(frozen=True, slots=True)
class SkillPolicy:
    """When skills are made, and how many are shown. tool_names: of tools that are set up here."""

    mode: SkillMode = "off"
    rules: RepetitionRules = field(default_factory=RepetitionRules)
    characters: int = 8000
    max_shown: int = 20
    tool_names: frozenset[str] = frozenset()

    @property
    def is_on(self) -> bool:
        return self.mode != "off"

    @property
    def list_length(self) -> int:
        """How many skills a prompt lists; 0 where they are off."""
        if self.is_on:
            return self.max_shown
        return 0

    @property
    def new_status(self) -> str:
        """The status that a new skill has."""
        if self.mode == "auto":
            return ACTIVE
        return CANDIDATE

    def job(self, scope_key: bytes, model: str, project: str = "") -> QueuedJob:
        """Return the job to queue after a turn with tools. project: of the memory, "" for none."""
        name = keyed_hash(scope_key, b"distill").hex()
        payload = {"model": model, **({"project": project} if project else {})}
        return QueuedJob(KIND, payload, dedupe=f"{KIND}-{name}", delay=IDLE_SECONDS, again=True)


class DistillationSettings(Protocol):
    """What the job reads anew each time: when skills are made, and what none must hold."""

    @property
    def skills(self) -> SkillPolicy: ...

    @property
    def screen(self) -> Screen: ...


@dataclass(frozen=True, slots=True)
class _Findings:
    """What the turns of a scope came to. outcomes: of uses. tasks: without a skill, to be done."""

    call: BackgroundCall
    outcomes: Mapping[int, bool]
    tasks: list[RepeatedTask]
    evidence: TaskEvidence | None
    names: frozenset[str]


def distillation_handler(
    db: Database,
    model: BackgroundModel,
    blocks: Blocks,
    read_settings: Callable[[], DistillationSettings],
) -> Handler:
    """Return the job of a distillation. blocks: the operator's in a project, "" for none."""

    async def run(job: QueuedJob) -> Effect | None:
        settings = read_settings()
        if job.scope_id is None or not settings.skills.is_on:
            return None
        key = db.journal.key_of(job.scope_id)
        findings = await db.read(lambda conn: _read(conn, job, settings.skills), of=key)
        if findings is None:
            return None
        effect = _Distillation(
            job, findings, settings, blocks(str(job.payload.get("project") or ""))
        )
        if findings.evidence is not None:
            request = build_prompt(findings.evidence, settings.skills.characters)
            answer = answer_text(await model(findings.call, request, TOKENS))
            effect.take_answer(findings.evidence, answer)
        if effect.has_work:
            return effect.write
        return None

    return run


def _read(conn: Connection, job: QueuedJob, policy: SkillPolicy) -> _Findings | None:
    scope_id = job.scope_id or 0
    call = background_call(conn, KIND, scope_id, job.payload["model"])
    if call is None:
        return None
    turns = task_turns.read_turns(conn, scope_id)
    uses = skill_rows.list_uses(conn, scope_id)
    if uses:
        nodes = task_turns.find_nodes(conn, scope_id, list(uses.values()))
    else:
        nodes = {}
    use_nodes = {use: nodes[request] for use, request in uses.items() if request in nodes}
    finished_steps = {
        steps
        for steps, (status, attempts) in skill_rows.read_steps(conn, scope_id).items()
        if status != skill_rows.REFUSED or attempts >= MAX_REFUSALS
    }
    tasks = find_repeated(turns, policy.rules, finished_steps)
    return _Findings(
        call,
        settle_uses(turns, use_nodes),
        tasks,
        _gather_evidence(conn, scope_id, tasks[0], policy.tool_names) if tasks else None,
        skill_rows.list_names(conn, scope_id),
    )


def _gather_evidence(
    conn: Connection, scope_id: int, task: RepeatedTask, tool_names: frozenset[str]
) -> TaskEvidence:
    turn_texts = [task_turns.read_details(conn, turn) for turn in task.turns[:SHOWN_TURNS]]
    known_names = tool_names | task_turns.read_known_names(conn, scope_id)
    return TaskEvidence(task, turn_texts, known_names)


class _Distillation:
    """What a job writes, in the transaction that completes it."""

    def __init__(
        self,
        job: QueuedJob,
        findings: _Findings,
        settings: DistillationSettings,
        blocks: Mapping[str, CoreBlock],
    ) -> None:
        self._job = job
        self._findings = findings
        self._settings = settings
        listing = SkillListing(blocks, settings.skills.list_length)
        self._editor = SkillEditor(job.scope_id or 0, listing, EditSource(ACTOR))
        self._draft: SkillDraft | None = None
        self._task: RepeatedTask | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._findings.outcomes) or self._task is not None

    def take_answer(self, evidence: TaskEvidence, answer: str) -> None:
        """Take in what a model wrote of a task, unless it is refused."""
        settings = self._settings
        self._task = evidence.task
        draft = read_draft(answer, evidence, self._findings.names)
        fault = "the answer is empty"
        if draft is not None:
            fault = find_fault(draft, evidence, settings.screen, settings.skills.characters)
        if fault:
            # Without the text, which may quote the user.
            log.info("a skill was not made: %s", fault.partition(":")[0])
        else:
            self._draft = draft

    def write(self, conn: Connection) -> None:
        """Write the new skill, and how uses ended."""
        task = self._task
        if self._findings.outcomes:
            skill_rows.settle_uses(conn, self._editor, self._findings.outcomes)
        if task is None:
            return
        if self._draft is None:
            skill_rows.note_refused(conn, self._editor.scope_id, task.digest)
        elif task.digest not in self._taken_steps(conn):
            source_turns = [f"{turn.nodes[0]:016x}" for turn in task.turns[:MADE_FROM]]
            status = self._settings.skills.new_status
            new_skill = NewSkill(self._draft, status, task.digest, source_turns)
            skill_rows.add(conn, self._editor, new_skill)
        if len(self._findings.tasks) > 1:
            enqueue(conn, QueuedJob(KIND, self._job.payload, self._job.scope_id))

    def _taken_steps(self, conn: Connection) -> set[str]:
        """Return the sequences of which another run made a skill meanwhile."""
        steps: dict[str, Any] = skill_rows.read_steps(conn, self._editor.scope_id)
        return {name for name, (status, _) in steps.items() if status != skill_rows.REFUSED}


def alignment_of(settings: Callable[[], DistillationSettings], blocks: Blocks) -> skill_block.Align:
    """Return what brings a few lists of skills in line with the settings."""

    def align(conn: Connection, after: int) -> int:
        listing = SkillListing(blocks(""), settings().skills.list_length)
        return skill_block.align(conn, listing, after, ALIGNED_ROWS)

    return align
