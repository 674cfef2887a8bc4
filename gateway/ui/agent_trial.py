"""A trial chat with an agent, beside the blocks that change as it talks.

A message is a turn as any client's: the same rights, limits and books, and the same memory.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery
from litestar.response import Template

from gateway.auth.authenticator import Principal
from gateway.errors import BadRequest, Forbidden, GatewayError
from gateway.http.asgi import Receive
from gateway.http.json_thread import run_by_weight
from gateway.management import agents as api
from gateway.management.context import EVERY, check_name
from gateway.routing.inner_call import InnerAnswer, InnerCall
from gateway.state import GatewayState
from gateway.ui.agents import agent_page
from gateway.ui.texts import text_of_content
from gateway.ui.trial_chat import Trial, TrialBlock, TrialMessage, mark_changes
from gateway.ui.visitor import AtVisit, Visitor
from gateway.wire.chat import object_or_empty

RunTurn = Callable[[GatewayState, Any, Receive, InnerCall], Awaitable[InnerAnswer]]
TRIAL_USER = "trial"
MAX_MESSAGE_CHARACTERS = 100_000
NO_ANSWER = "The answer has no text."
HIDDEN_BLOCKS = "This key may not see this memory, so its blocks are not shown."


@get("/agent")
async def trial_page(visitor: AtVisit, name: FromQuery[str], user: FromQuery[str] = "") -> Template:
    _check_one_tenant(visitor)
    agent = await api.find_agent(visitor.caller, name)
    trial = Trial(visitor, agent, user.strip() or _default_user(visitor), _new_conversation())
    blocks = [TrialBlock(block) for block in await trial.read_blocks()]
    return _page(trial, [], blocks)


@post("/agent", status_code=200)
async def send_trial(
    visitor: AtVisit, name: FromQuery[str], run_turn: NamedDependency[RunTurn]
) -> Template:
    """Let the agent answer a message, and show its blocks afterwards."""
    _check_one_tenant(visitor)
    agent = await api.find_agent(visitor.caller, name)
    user = visitor.field("user").strip() or _default_user(visitor)
    conversation = visitor.field("conversation") or _new_conversation()
    trial = Trial(visitor, agent, check_name(user, "user"), conversation)
    text = visitor.field("message")
    before = await trial.read_blocks()
    messages = await trial.read_messages()
    if not text.strip():
        return _page(trial, messages, [TrialBlock(block) for block in before])
    try:
        answer = await _answer(trial, text, run_turn)
        is_sent = answer.role != "error"
    except GatewayError as e:
        answer = TrialMessage("error", e.message)
        is_sent = False
    after = await trial.read_blocks()
    blocks = await asyncio.to_thread(mark_changes, before, after)
    messages += [TrialMessage("user", text), answer]
    return _page(trial, messages, blocks, draft="" if is_sent else text)


def _check_one_tenant(visitor: Visitor) -> None:
    """Raise BadRequest for an admin's view of every tenant, which has no memory."""
    if visitor.caller.tenant == EVERY:
        raise BadRequest("An agent talks with the memory of one tenant: name it.", param="tenant")


async def _answer(trial: Trial, text: str, run_turn: RunTurn) -> TrialMessage:
    """Return the agent's answer, or the error that a client would get. Raises GatewayError."""
    if len(text) > MAX_MESSAGE_CHARACTERS:
        raise BadRequest(
            f"The message has {len(text)} characters; the page sends at most "
            f"{MAX_MESSAGE_CHARACTERS}. Shorten it."
        )
    visitor = trial.visitor
    request = trial.visitor.caller.request
    call = InnerCall(_principal(visitor), trial.agent, trial.user, trial.conversation, text)
    answer = await run_turn(visitor.gateway, request.scope, request.receive, call)
    body = await run_by_weight(answer.body, object_or_empty, answer.body)
    if answer.status != 200:
        error = body.get("error")
        message = None
        if isinstance(error, dict):
            message = error.get("message")
        return TrialMessage("error", f"{answer.status}: {message or 'no answer'}")
    explain = answer.headers.get(b"x-memory-explain", b"").decode("latin-1")
    return TrialMessage("assistant", _text_in(body) or NO_ANSWER, _note_on(answer), explain)


def _principal(visitor: Visitor) -> Principal:
    """Return on whose behalf the agent is called. Raises BadRequest, Forbidden, Unauthenticated.

    In own-key mode the form may bring the provider's key, which is used once and not kept.
    """
    caller = visitor.caller
    key = ""
    if _takes_key(visitor):
        key = visitor.form.get("key", "").strip()
    if not key:
        return msgspec.structs.replace(caller.principal, tenant=caller.tenant)
    if not (key.isascii() and key.isprintable()):
        raise BadRequest("This is not a key: it has characters that no key has.", param="key")
    principal = visitor.gateway.keys.caller({b"authorization": b"Bearer " + key.encode()})
    if principal.tenant != caller.tenant:
        raise Forbidden("This key has a memory of its own. Sign in with it to use it here.")
    return principal


def _takes_key(visitor: Visitor) -> bool:
    """Tell whether a provider is called with the client's own key."""
    settings = visitor.gateway.settings
    without_key = (p for p in settings.providers.values() if not p.api_key)
    return settings.mode == "own-key" and next(without_key, None) is not None


def _default_user(visitor: Visitor) -> str:
    """Return the user of a trial: one made for it, or the first that the key may name."""
    only = visitor.caller.principal.only
    if only is None:
        return TRIAL_USER
    return next(iter(only), TRIAL_USER)


def _new_conversation() -> str:
    return f"trial-{secrets.token_hex(8)}"


def _text_in(body: Mapping[str, Any]) -> str:
    """Return the text of a chat completion."""
    match body.get("choices"):
        case [{"message": {"content": content}}, *_]:
            return text_of_content(content)
    return ""


def _note_on(answer: InnerAnswer) -> str:
    """Return what the answer's headers say of its memory, where that is not plainly `ok`."""
    status = answer.headers.get(b"x-memory-status", b"").decode("latin-1")
    reason = answer.headers.get(b"x-memory-reason", b"").decode("latin-1")
    if status == "ok":
        return ""
    return f"memory {status}{f': {reason}' if reason else ''}"


def _page(
    trial: Trial, messages: Sequence[TrialMessage], blocks: Sequence[TrialBlock], draft: str = ""
) -> Template:
    visitor = trial.visitor
    context = {
        "trial": trial,
        "messages": messages,
        "blocks": blocks,
        "changes": sum(bool(b.lines) for b in blocks),
        "draft": draft,
        "takes_key": _takes_key(visitor),
        "hidden": "" if trial.may_look else HIDDEN_BLOCKS,
    }
    template = "agent.html"
    if visitor.is_fragment:
        template = "parts/agent-talk.html"
    return agent_page(visitor, template, trial.agent, **context)


ROUTES = (trial_page, send_trial)
