"""Moves a user's memory to another name, or into another one: form, preview, progress.

A move may take longer than a browser waits. So it runs in the background of this process, and its
page shows the progress. An interrupted move has moved nothing. An interrupted merge keeps what it
has added, and is completed by repeating it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import (
    BadRequest,
    Forbidden,
    GatewayError,
    RequestConflict,
    ResourceNotFound,
    Unavailable,
)
from gateway.management.context import EVERY, check_name, translate_errors
from gateway.management.merges import open_merge
from gateway.ui.people import of_all_agents, summarise_user
from gateway.ui.texts import link
from gateway.ui.visitor import AboutUser, AtVisit, Subject, Visitor, go_to
from memory import Memory, OwnerRename, VisibleScopes, management

if TYPE_CHECKING:
    from memory.management.merging import Merge, MergePlan

log = logging.getLogger("mnemogate")
# A short move is over by then.
FIRST_LOOK_SECONDS = 1.0
# That are remembered, with how they ended.
MAX_MOVES = 20
# Whoever has one of these has a memory.
OWNED = ("blocks", "passages", "conversations")
INTERRUPTED = "It was interrupted. Nothing is lost: begin it again."
Owner = tuple[str, str]


@dataclass(slots=True)
class Move:
    """One move. turns: prepared so far, and in all. error: why it failed; "" otherwise.

    merge: set if the target has a memory; then `turns` counts lines.
    """

    source: Owner
    target: Owner
    merge: Merge | None = None
    turns: int = 0
    error: str = ""
    is_over: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def note(self, turns: int) -> None:
        """Note how far it is."""
        self.turns = turns


class MoveOffice:
    """The moves of this process, newest last; only one runs at a time."""

    def __init__(self) -> None:
        self._moves: dict[str, Move] = {}

    def begin(self, memory: Memory, secret: bytes, move: Move) -> str:
        """Begin a move and return its id. Raises Unavailable while another one runs."""
        if any(not m.is_over for m in self._moves.values()):
            raise Unavailable("Another memory is being moved. Try again when it is done.")
        while len(self._moves) >= MAX_MOVES:
            del self._moves[next(iter(self._moves))]
        ident = secrets.token_hex(16)
        self._moves[ident] = move
        move.task = asyncio.create_task(_run(memory, secret, move))
        return ident

    def find(self, ident: str) -> Move:
        """Return a move. Raises ResourceNotFound."""
        if ident not in self._moves:
            raise ResourceNotFound(
                f"This process knows no move {ident[:40]!r}. Look for the new name in the list."
            )
        return self._moves[ident]


Moves = NamedDependency[MoveOffice]


async def _run(memory: Memory, secret: bytes, move: Move) -> None:
    from memory.management.merging import merge_live_users
    from memory.management.renaming import rename_live_user

    move_text = f"{move.source[1]!r} ({move.source[0]}) to {move.target[1]!r} ({move.target[0]})"
    # Until it has ended.
    move.error = INTERRUPTED
    try:
        with translate_errors():
            if move.merge is not None:
                await merge_live_users(memory, move.merge, move.note)
            else:
                rename = OwnerRename(secret, move.source, move.target)
                await rename_live_user(memory, rename, move.note)
        move.error = ""
        log.info("moved the memory of %s", move_text)
    except GatewayError as e:
        move.error = e.message
        log.warning("could not move the memory of %s: %s", move_text, e.message)
    except Exception:
        # A task that nobody awaits: the page shows the error, the log has the details.
        move.error = "Something went wrong inside the gateway; its log has the details."
        log.exception("could not move the memory of %s", move_text)
    finally:
        move.is_over = True


@get("/user/move")
async def move_form(subject: AboutUser) -> Template:
    _require_operator(subject.visitor)
    of_all_agents(subject)
    return subject.page(
        "move.html", target=None, taken=None, plan=None, **await summarise_user(subject)
    )


@post("/user/move", status_code=200)
async def move_user(subject: AboutUser, moves: Moves) -> Template | Redirect:
    """Show what a move does; with `confirmed`, start it."""
    visitor = subject.visitor
    _require_operator(visitor)
    of_all_agents(subject)
    source = (subject.context.scope.tenant, subject.user)
    target = _target(visitor, source)
    target_counts = await _count(subject, target)
    confirmed = visitor.form.get("confirmed")
    if confirmed not in ("yes", "merge"):
        plan = None
        if target_counts:
            plan = await _plan(subject, target)
        head = await summarise_user(subject)
        return subject.page("move.html", target=target, taken=target_counts, plan=plan, **head)
    if confirmed == "yes" and target_counts is not None:
        raise RequestConflict(f"{target[1]!r} has a memory by now, so nothing was moved.")
    merge = None
    if confirmed == "merge":
        merge = open_merge(subject.context, target[1], target[0])
    move = Move(source, target, merge)
    log.info("key %r moves the memory of %r to %r", visitor.caller.principal.key, source, target)
    ident = moves.begin(visitor.caller.memory, visitor.gateway.secret, move)
    if move.task is not None:
        await asyncio.wait({move.task}, timeout=FIRST_LOOK_SECONDS)
    return go_to(link("/move", id=ident))


@get("/move")
async def move_page(visitor: AtVisit, moves: Moves, id: FromQuery[str]) -> Template:
    _require_operator(visitor)
    move = moves.find(id)
    tenant = ""
    if visitor.caller.principal.admin:
        tenant = move.target[0]
    name = "moving.html"
    if visitor.is_fragment:
        name = "parts/move.html"
    return visitor.page(name, move=move, ident=id, tenant=tenant)


async def _plan(subject: Subject, target: Owner) -> MergePlan:
    """Return what a merge of the user into another one would do. Raises RequestConflict."""
    from memory.management.merging import plan_merge

    merge = open_merge(subject.context, target[1], target[0])
    return await subject.context.read(plan_merge(subject.context.memory.db, merge))


def _require_operator(visitor: Visitor) -> None:
    """Raise Forbidden unless the visitor runs this gateway."""
    if not visitor.caller.runs_it:
        raise Forbidden("Only an admin key, or the local token, moves memories.")


def _target(visitor: Visitor, source: Owner) -> Owner:
    """Return the owner that gets the memory. Raises BadRequest."""
    user = visitor.field("to").strip()
    tenant = source[0]
    if visitor.caller.principal.admin:
        tenant = visitor.form.get("to_tenant", "").strip() or tenant
    target = (check_name(tenant, "to_tenant"), check_name(user, "to"))
    if tenant == EVERY:
        raise BadRequest("A user belongs to one tenant: name it.", param="to_tenant")
    if target == source:
        raise BadRequest("That is this user's name already. Choose another one.", param="to")
    return target


async def _count(subject: Subject, owner: Owner) -> dict[str, Any] | None:
    """Return the counts of a user's memory; None if there is no memory."""
    reach = VisibleScopes(owner[0], [owner[1]])
    context = subject.context
    users = await context.read(management.users.list_users(context.memory, reach, None, 1))
    if users and any(users[0][kind] for kind in OWNED):
        return users[0]
    return None


ROUTES = (move_form, move_user, move_page)
