"""What a caller asks of the memory: one request, and the policy of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from memory.context.epoch import EpochPolicy
from memory.context.summary import PROMPT, Complete
from memory.conversation.harness import SHIPPED_HARNESS, Harness
from memory.conversation.history import Messages
from memory.conversation.matching import Repeat, RequestHistory
from memory.conversation.messages import keyed_hash
from memory.core.autonomy import Decision
from memory.core.block_space import OperatorBlocks, space_of
from memory.core.blocks import CoreBlock, with_opening
from memory.core.screen import Screen
from memory.jobs.distillation import SkillPolicy
from memory.jobs.fact_prompt import ExtractionRules
from memory.jobs.reflection import ReflectionSchedule
from memory.scope import Scope
from memory.session.toolbox import Toolbox
from memory.stores.sql.rows.general_memory import GeneralBlocks


@dataclass(frozen=True, slots=True)
class Policy:
    """How this memory behaves.

    Times are in seconds. ahead: make summaries in the background before they are needed.
    screen: what is not kept. model_blocks: whether a model may make blocks. project_blocks: the
    operator's in a project; project_writes: there a model may write the general blocks too.
    """

    blocks: Mapping[str, CoreBlock] = field(default_factory=dict)
    rules: EpochPolicy = field(default_factory=EpochPolicy)
    read_deadline: float = 0.15
    start_wait: float = 5.0
    summary_seconds: float = 30.0
    summary_prompt: str = PROMPT
    ahead: bool = False
    reflect: ReflectionSchedule = field(default_factory=ReflectionSchedule)
    skills: SkillPolicy = field(default_factory=SkillPolicy)
    extraction: ExtractionRules = field(default_factory=ExtractionRules)
    screen: Screen = field(default_factory=Screen)
    model_blocks: bool = False
    project_blocks: Mapping[str, CoreBlock] = field(default_factory=dict)
    project_writes: bool = False

    def blocks_in(self, project: str) -> Mapping[str, CoreBlock]:
        """Return the operator's blocks in a project, "" for none."""
        if project:
            return self.project_blocks
        return self.blocks

    def general_blocks(self, scope: Scope) -> GeneralBlocks | None:
        """Return the blocks that a memory in a project shows of those outside; None elsewhere."""
        if not scope.project or not scope.is_named:
            return None
        return GeneralBlocks(scope.general, self.blocks, self.project_writes)

    def of_agent(
        self,
        blocks: Sequence[CoreBlock],
        opening: str,
        reflect: ReflectionSchedule | None = None,
        *,
        inherits: bool = True,
    ) -> Policy:
        """Return the policy of an agent with blocks and words of its own.

        opening: what its core text begins with. inherits: it has the operator's blocks too, where
        its own have other labels.
        """
        agent_blocks = {block.label: block for block in blocks}
        return replace(
            self,
            blocks=OperatorBlocks(
                {**(self.blocks if inherits else {}), **agent_blocks}, space_of(self.blocks)
            ),
            rules=replace(self.rules, instruction=with_opening(opening, self.rules.instruction)),
            reflect=self.reflect if reflect is None else reflect,
        )


class InboxLimits(msgspec.Struct, frozen=True):
    """How many messages to an agent one turn delivers, of which age at most."""

    messages: int
    characters: int
    days: float


class TurnRequest(msgspec.Struct):
    """One request.

    members_digest: a digest of the body's other members; with the history it names the request
    among its retries, beside the client's own idempotency key. explicit: the conversation that is
    named. resends: who names it sends its history too, so none is kept for it here. certain: the
    client says that this is a retry. repeats: what it is if it says what the newest turn asked.
    offer: whether the target and the request take our tools. recall: whether what seems relevant is
    searched and injected unasked. inject: False for a target that refuses every addition. window:
    the model's context in tokens, None when unknown. tokenizer: the model's family. max_output: the
    client's own limit. complete: the summariser, with this request's credentials. extract: facts
    are gathered in the background. unread: extraction may read this turn, now or later. decisions:
    why recall and extraction are on or off, by their names. records: False for who asks only what
    would be sent. tasks: a request like those before it is a task (see `conversation.openings`).
    body: the request's bytes, empty when unknown. zone: the user's time zone, if the client names
    one. policy: of the agent, if it has one of its own. harness: what the client's program puts
    around its user's words. said_by: the user whom the request names, where the memory is an
    agent's own. toolbox: the operator's tools that were granted, None for none. inbox: of a turn
    that delivers the messages which wait for its agent. asked_by: what the record tells of the
    agent that asks, None for none.
    """

    scope: Scope
    messages: Messages
    model: str
    request_id: str
    mode: str = "full"
    explicit: str | None = None
    resends: bool = False
    client_tools: object = None
    offer: bool = True
    inject: bool = True
    recall: bool = False
    window: int | None = None
    tokenizer: str = "estimate"
    max_output: int | None = None
    complete: Complete | None = None
    members_digest: bytes = b""
    idempotency: str = ""
    certain: bool = False
    repeats: Repeat = "again"
    extract: bool = False
    unread: bool = False
    decisions: Mapping[str, Decision] = msgspec.field(default_factory=dict)
    records: bool = True
    tasks: bool = False
    body: bytes = b""
    zone: str = ""
    policy: Policy | None = None
    harness: Harness = SHIPPED_HARNESS
    said_by: str | None = None
    toolbox: Toolbox | None = None
    inbox: InboxLimits | None = None
    asked_by: Mapping[str, Any] | None = None

    @property
    def size(self) -> int:
        """The bytes of the body, 0 when unknown."""
        return len(self.body)


def request_key(ask: TurnRequest, turn: RequestHistory) -> bytes:
    """Return what identifies a request among its retries.

    Made of the scope, the named conversation, the history, the other members of the body, and the
    client's own idempotency key.
    """
    names = f"{ask.explicit or ''}\0{ask.idempotency}".encode("utf-8", "surrogatepass")
    return keyed_hash(
        ask.scope.key,
        b"request",
        names,
        b"\x00",
        turn.chain.end,
        turn.messages.after.system,
        ask.members_digest,
    )
