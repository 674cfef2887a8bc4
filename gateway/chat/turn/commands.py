"""Chat commands: `/remember`, `/forget`, `/memory`, `/undo`, `/why` (memory.commands).

A user message that is exactly one of them is answered by the gateway, not by a model. The request
is handled like one without memory, with an upstream that runs the command and answers with its
text. So limits apply first, and each format writes the answer as usual. A near miss of one is
answered with what may be meant.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import msgspec

from gateway.apis.responses.responses_format import RESPONSES, input_items
from gateway.auth.authenticator import Principal
from gateway.chat.intake.near_commands import answer_near_miss
from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.command_answer import is_to_be_kept
from gateway.config.settings import Price
from gateway.routing.router import Route, Target
from gateway.state import GatewayState
from gateway.upstream.local_answer import NAME, SETTINGS, local_upstream
from gateway.wire.chat import encode
from memory import (
    EditSource,
    ManagementActor,
    MemoryFault,
    NewPassage,
    NotFound,
    PassageFilter,
    SearchQuery,
    ToolError,
    UndoneChange,
    VisibleScopes,
    is_system,
    iso,
    management,
    text_of,
)

COMMAND = re.compile(
    r"/(?:(remember|forget|undo)(?:\s+(\S.*))?|(memory|why))", re.DOTALL | re.IGNORECASE
)
# The second is what Japanese keyboards write.
SLASHES = ("/", "\uff0f")
# The name of what is only like a command; its text is the answer.
NEAR_MISS = ""
MAX_COMMAND_CHARACTERS = 10_000
MAX_LISTED = 10
MAX_TURNS = 50
MAX_SHOWN_CHARACTERS = 500
DAY_SECONDS = 86_400.0
REASON = "command"
ACTOR = "user"
NOBODY = (
    "Nobody is named in this request, so there is no memory to show or change. Send `user`, or the "
    "header X-Memory-User."
)
UNAVAILABLE = "The memory is not available right now. Try again shortly."
NOT_PROVEN = "No upstream has accepted this key yet. Say something to the model first."
KEPT = ("stream", "stream_options", "model")


class ChatCommand(NamedTuple):
    """A command and its argument; a near miss and its answer."""

    name: str
    text: str


def command_of(gateway: GatewayState, request: TurnInput) -> ChatCommand | None:
    """Return the command in a request's newest message; None if there is none."""
    facts = request.whole_facts
    if not gateway.settings.memory.commands or request.mode == "off" or facts is None:
        return None
    messages = facts.history
    if not len(messages):
        return None
    newest_message = messages[len(messages) - 1]
    text = ""
    if newest_message.get("role") == "user":
        text = text_of(newest_message)
    if len(text) > MAX_COMMAND_CHARACTERS:
        return None
    text = request.harness.own_part(text).strip()
    if not text.startswith(SLASHES):
        return None
    if match := COMMAND.fullmatch("/" + text[1:]):
        return ChatCommand((match[1] or match[3]).lower(), (match[2] or "").strip())
    answer = answer_near_miss(text, map(text_of, takewhile(is_system, messages)))
    if answer is None:
        return None
    return ChatCommand(NEAR_MISS, answer)


def to_command(gateway: GatewayState, request: TurnInput, command: ChatCommand) -> TurnInput:
    """Return the request, routed to an upstream that runs the command."""
    server = local_upstream(partial(_answer, gateway, request, command))
    keeps = request.api is RESPONSES and is_to_be_kept(request)
    target = Target(NAME, REASON, server, SETTINGS, price=Price(input=0, output=0))
    return msgspec.structs.replace(
        request,
        mode="off",
        off_reason=REASON,
        raw_body=_plain_body(request),
        route=Route(((target,),), request.route.name, request.route.memory),
        kept_items=input_items(request.body)[-1:] if keeps else None,
    )


async def _answer(gateway: GatewayState, request: TurnInput, command: ChatCommand) -> str:
    if command.name == NEAR_MISS:
        return command.text
    if request.too_heavy:
        return UNAVAILABLE
    try:
        return await _run(gateway, request, command)
    except ToolError as e:
        return str(e)
    except MemoryFault:
        return UNAVAILABLE


def _plain_body(request: TurnInput) -> bytes:
    """Return a body that asks for an answer in the same way, without anything else in it."""
    members = {name: request.body[name] for name in KEPT if name in request.body}
    messages = [{"role": "user", "content": "."}]
    if request.api is RESPONSES:
        return encode({**members, "input": messages, "store": False})
    return encode({**members, "messages": messages, "max_tokens": 1024})


async def _run(gateway: GatewayState, request: TurnInput, command: ChatCommand) -> str:
    if request.owner is None:
        return NOBODY
    settings = gateway.settings
    memory = gateway.memory
    tenant = request.principal.tenant
    agent = request.agent_call.agent
    if settings.mode == "own-key" and not await _is_proven(gateway, request.principal):
        return NOT_PROVEN
    reads, run = COMMANDS[command.name]
    if request.mode not in ("full", "read" if reads else "write"):
        return f"The memory may only {request.mode} here, so /{command.name} is not possible."
    if agent is None:
        policy = memory.policy
    else:
        policy = gateway.agents.policy_of(agent)
    actor = ManagementActor(
        memory.scope(tenant, request.owner, request.agent, request.project),
        policy.blocks_in(request.project),
        EditSource(ACTOR, request.id, user=request.user, agent=request.agent),
    )
    text = await run(gateway, actor, command.text)
    gateway.worker.wake()
    return text


async def _is_proven(gateway: GatewayState, caller: Principal) -> bool:
    """Tell whether an upstream ever accepted the caller's key.

    In single-user mode all keys share one memory, so there it must be this very key.
    """
    if gateway.settings.single_user:
        return gateway.credentials.is_accepted(caller.authorization)
    return await management.users.is_proven(gateway.memory, caller.tenant)


async def _remember(gateway: GatewayState, actor: ManagementActor, text: str) -> str:
    if not text:
        return "What should be remembered? For example: /remember Grace arrives on Friday"
    gateway.memory.policy.screen.check("content", text)
    passage = NewPassage(text, actor=ACTOR)
    added_passages = await management.passages.add_passage(gateway.memory, actor, passage)
    return "\n".join(f"Remembered: {_short(p['content'])}" for p in added_passages)


async def _forget(gateway: GatewayState, actor: ManagementActor, text: str) -> str:
    if not text:
        return "What should be forgotten? Give its words or its id: /forget Grace"
    memory = gateway.memory
    query = SearchQuery(text, limit=MAX_LISTED)
    if text.startswith("passage_"):
        await management.passages.set_passage_aside(memory, actor, text)
        return f"Forgotten: {text}. /undo restores it."
    passages = await management.passages.search_passages(memory, actor.scope, PassageFilter(query))
    exact_matches = [p for p in passages if p["content"].casefold() == text.casefold()]
    if len(candidates := exact_matches or passages) == 1:
        await management.passages.set_passage_aside(memory, actor, candidates[0]["id"])
        return f"Forgotten: {_short(candidates[0]['content'])}. /undo restores it."
    if not candidates:
        return "Nothing like that is remembered as a detail. /memory shows what is."
    suggestions = "\n".join(f"- {_short(p['content'])}: /forget {p['id']}" for p in candidates)
    return f"Which of these?\n{suggestions}"


async def _show(gateway: GatewayState, actor: ManagementActor, text: str) -> str:
    memory = gateway.memory
    blocks = await management.blocks.list_blocks(memory, actor)
    passages = await management.passages.list_passages(memory, actor.scope, None, MAX_LISTED)
    lines = [f"**{b.label}**\n{_short(b.value)}" for b in blocks.values() if b.value]
    if passages:
        lines.append("**Newest details**")
        lines += [f"- {_short(p['content'])} ({p['id']})" for p in passages]
    return "\n".join(lines) or "Nothing is remembered yet."


async def _undo(gateway: GatewayState, actor: ManagementActor, text: str) -> str:
    """Undo the newest change, of a block or a detail; with a label, of that block."""
    memory = gateway.memory
    if text.startswith("passage_"):
        restored_passage = await management.passages.restore_passage(memory, actor, text)
        return f"Restored: {_short(restored_passage['content'])}"
    try:
        if not text:
            return _describe_undone(await management.shared_undo.undo_newest(memory, actor))
        return _describe_undone(await management.shared_undo.undo_label(memory, actor, text))
    except NotFound:
        subject = "a block or a detail"
        if text:
            subject = f"the block {text[:80]}"
        return f"There is no edit of {subject} to undo."


def _describe_undone(change: UndoneChange) -> str:
    """Say which change was undone, and what holds now."""
    kind, name, text = change
    shown_text = _short(text or "(empty)")
    return {
        "block": f"Undone: the edit of the block {name}. {name} now reads:\n{shown_text}"
        if text is not None
        else f"Undone: the block {name} is gone.",
        "edited": f"Undone: the edit of a detail. It now reads: {shown_text}",
        "forgotten": f"Undone: the detail is remembered again: {shown_text}",
        "added": f"Undone: the detail is forgotten again: {shown_text}",
    }[kind]


async def _explain(gateway: GatewayState, actor: ManagementActor, text: str) -> str:
    scope = actor.scope
    reach = VisibleScopes(scope.tenant, [scope.user or ""])
    since = time.time() - 7 * DAY_SECONDS
    turns = await management.activity.list_turns(
        gateway.memory, reach, since, MAX_TURNS, scope.user
    )
    newest_turn = next((turn for turn in turns if turn.agent == scope.agent), None)
    if newest_turn is None or (explain := newest_turn.explain) is None:
        return "No recent turn of yours is on record."
    lines = [
        f"Your last turn, {iso(newest_turn.began_at)}: {explain.tokens.injected} tokens were "
        "added.",
        *(f"- {c.name}: {_short(c.result)}" for c in explain.tools),
        *(
            f"- {name} was {'on' if d.on else 'off'}: {d.why}"
            for name, d in explain.decisions.items()
        ),
        f"All of it: /ui/request?id={explain.id}",
    ]
    return "\n".join(lines)


def _short(text: str) -> str:
    beginning = text[:MAX_SHOWN_CHARACTERS]
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return beginning
    return f"{beginning}…"


Run = Callable[[GatewayState, ManagementActor, str], Awaitable[str]]
# Whether it only reads, and what runs it.
COMMANDS: dict[str, tuple[bool, Run]] = {
    "remember": (False, _remember),
    "forget": (False, _forget),
    "memory": (True, _show),
    "undo": (False, _undo),
    "why": (True, _explain),
}
