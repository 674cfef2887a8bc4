"""Two pages that help: `Connect your app`, and `Why does it not remember?`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from litestar import get
from litestar.params import FromQuery
from litestar.response import Template

from gateway.errors import StoreDown
from gateway.management.context import STORE_OPTIONAL
from gateway.relay.endpoint import upstream_models
from gateway.storage.usage import UsageFilter
from gateway.ui.conversations import reach_of
from gateway.ui.failures import FailedRequest, list_failed, may_see, to_failure
from gateway.ui.requests import find_turn, read_usage
from gateway.ui.texts import ago, link
from gateway.ui.visitor import AtVisit, Visitor
from memory import VisibleScopes, management
from memory.management.activity import RecentTurn

DAY_SECONDS = 86_400.0
DAYS = 7
SIMILAR = 5
RECENT = 50
SAMPLE_MODEL = "gpt-4o-mini"
# Of what a server lists, models for other things than talk.
_NO_CHAT = re.compile(r"embed|rerank|whisper|tts|dall-e|image|moderation|bge-|clip|audio|realtime")
SILENT_TURNS = 8
MEMORY_PATHS = ("/chat/completions", "/responses", "/messages")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check. state: `good`, `bad` or `note`. remedy: what to do."""

    state: str
    title: str
    text: str
    remedy: str = ""
    href: str = ""


@get("/why", opt={STORE_OPTIONAL: True})
async def why_page(
    visitor: AtVisit, id: FromQuery[str] = "", user: FromQuery[str] = ""
) -> Template:
    diagnoses = _check_setup(visitor)
    try:
        if id:
            diagnoses += await _check_request(visitor, id.strip())
        if user:
            diagnoses += await _check_user(visitor, user)
        if not (id or user):
            diagnoses += await _check_everything(visitor)
        if not id:
            failed_requests = await list_failed(visitor, time.time() - DAY_SECONDS, user or None)
            diagnoses = [*_check_failures(failed_requests), *diagnoses]
    except StoreDown as e:
        diagnoses = [Diagnosis("bad", "The store is down", e.message), *diagnoses]
    return visitor.page("why.html", findings=diagnoses, asked=id, user=user)


def _check_failures(failed_requests: Sequence[FailedRequest]) -> list[Diagnosis]:
    """Tell of requests that failed in the last day, by what happened, the newest first."""
    similar_requests: dict[tuple[int, str, str], list[FailedRequest]] = {}
    for request in failed_requests:
        similar_requests.setdefault((request.status, request.code, request.target), []).append(
            request
        )
    return [
        Diagnosis(
            "bad",
            "The newest request failed" if place == 0 else "Requests failed",
            f"{len(requests)} of the last day ended with {requests[0].what}; the newest was "
            f"{requests[0].request_id}, {ago(requests[0].ended_at)}. Nothing was remembered of it.",
            requests[0].advice,
        )
        for place, requests in enumerate([*similar_requests.values()][:SIMILAR])
    ]


def _check_setup(visitor: Visitor) -> list[Diagnosis]:
    """Check what applies to every request."""
    gateway = visitor.gateway
    settings = gateway.settings.memory
    diagnoses = []
    if gateway.memory.ready:
        diagnoses.append(
            Diagnosis("good", "The store works", "The memory can be read and written.")
        )
    if degraded := gateway.metrics.memory.get("degraded", 0):
        diagnoses.append(
            Diagnosis(
                "bad",
                "Some requests went without memory",
                f"{degraded} of this process's requests were degraded since it started.",
                "The header x-memory-reason of an answer says what was missing.",
            )
        )
    if settings.tools == "never":
        diagnoses.append(
            Diagnosis(
                "note",
                "No memory tools are offered",
                'memory.tools is "never": models cannot save or search by themselves.',
                'Set memory.tools = "always", or memory.extract = "always".',
            )
        )
    mode = visitor.caller.principal.memory
    if mode != "full":
        diagnoses.append(
            Diagnosis("bad", "Your key may not do everything", f"Its memory policy is {mode!r}.")
        )
    return diagnoses


async def _check_request(visitor: Visitor, ident: str) -> list[Diagnosis]:
    """Check one request, by the id in `x-mnemogate-request-id`."""
    turn = await find_turn(visitor, ident)
    if turn is not None and turn.explain is not None:
        return _check_turn(visitor, turn)
    caller = visitor.caller
    since = time.time() - DAYS * DAY_SECONDS
    usage_filter = UsageFilter(caller.reach.tenant, since=since, request_id=ident)
    rows = [r for r in await read_usage(visitor, usage_filter) if may_see(visitor, r)]
    if not rows:
        return [
            Diagnosis(
                "bad",
                "No such request",
                f"No request {ident[:80]!r} of the last {DAYS} days is known to this key.",
                "Take the id from the header x-mnemogate-request-id. A request with another key "
                "or mode belongs to another tenant, whose memory is its own.",
            )
        ]
    return [_without_memory(rows[0])]


def _without_memory(row: dict[str, Any]) -> Diagnosis:
    if row["status"] >= 400:
        return Diagnosis(
            "bad",
            "The request failed",
            f"It ended with status {row['status']} ({row['code'] or 'no code'}), so there was "
            "nothing to remember.",
            to_failure(row).advice,
        )
    if row["path"] not in MEMORY_PATHS:
        return Diagnosis(
            "bad",
            "The path has no memory",
            f"{row['path']} is relayed unchanged.",
            f"Memory is on {', '.join('/v1' + p for p in MEMORY_PATHS)}.",
        )
    if row["mode"] == "off":
        return Diagnosis(
            "bad",
            "Memory was off for this request",
            "It asked for that, a policy says so, or it looked like a chat application's own "
            "background prompt.",
            "The header x-memory-reason of the answer says which: request, policy or background. "
            "Check X-Memory, and the policies of the key, the model and the user.",
        )
    return Diagnosis(
        "bad",
        "The request left no record",
        "The memory was unavailable, or its record has expired (memory.explain_days).",
        "If x-memory-status was degraded, x-memory-reason says what was missing.",
    )


def _check_turn(visitor: Visitor, turn: RecentTurn) -> list[Diagnosis]:
    explain = turn.explain
    assert explain is not None  # noqa: S101 - the caller has looked
    tenant = ""
    if visitor.caller.principal.admin:
        tenant = turn.tenant
    href = link("/request", id=explain.id, tenant=tenant)
    diagnoses = [
        Diagnosis("good", "The memory took part", "Here is what was added and run.", href=href)
    ]
    if turn.user is None:
        diagnoses.append(NOBODY)
    else:
        diagnoses.append(Diagnosis("good", "Somebody was named", f"The user is {turn.user!r}."))
    if not explain.tools:
        diagnoses.append(
            Diagnosis(
                "note",
                "The model called no memory tool",
                "It saved nothing by itself, and searched nothing.",
                "Facts are then extracted in the background, if memory.extract allows it.",
            )
        )
    diagnoses += [
        Diagnosis("note", f"{name.capitalize()} was {'on' if d.on else 'off'}", d.why)
        for name, d in explain.decisions.items()
    ]
    return diagnoses + [
        Diagnosis("note", "The record remarks", remark) for remark in explain.remarks
    ]


NOBODY = Diagnosis(
    "bad",
    "Nobody was named",
    "What is remembered belongs to that conversation alone.",
    "Send `user` in the body or the header X-Memory-User, use the path /u/{user}/v1, or give the "
    "key a default_user.",
)


async def _check_user(visitor: Visitor, user: str) -> list[Diagnosis]:
    """Check one user: is there such a memory, what may it do, does the model use it?"""
    caller = visitor.caller
    reach = reach_of(visitor)
    user_scopes = VisibleScopes(reach.tenant, [user] if caller.principal.may_name(user) else [])
    rows = await caller.read(management.users.list_users(caller.memory, user_scopes, None, SIMILAR))
    if not rows:
        return [*await _check_spelling(visitor, user), *_elsewhere(visitor)]
    row = rows[0]
    diagnoses = []
    href = link("/user", user=user, tenant=row["tenant"] if caller.principal.admin else "")
    diagnoses.append(
        Diagnosis(
            "good",
            "There is a memory of this name",
            f"{row['passages']} passages, {row['messages']} messages.",
            href=href,
        )
    )
    find = management.policies.find_policy(caller.memory, row["tenant"], user)
    mode = (await caller.read(find)).memory
    if mode != "full":
        diagnoses.append(
            Diagnosis(
                "bad",
                f"The user's policy is {mode!r}",
                "It limits what the memory does for this user.",
                "Change it on the user's page.",
                href,
            )
        )
    return diagnoses + await _check_use(visitor, user)


async def _check_use(visitor: Visitor, user: str) -> list[Diagnosis]:
    """Check whether models use the memory of a user."""
    caller = visitor.caller
    turns = await caller.read(
        management.activity.list_turns(
            caller.memory,
            reach_of(visitor),
            time.time() - DAYS * DAY_SECONDS,
            RECENT,
            user,
        )
    )
    explains = [t.explain for t in turns if t.explain is not None]
    if not explains:
        return [
            Diagnosis(
                "bad",
                f"No turn in the last {DAYS} days",
                "No request with memory named this user.",
                "Does the app send exactly this name? Compare the header x-memory-user of an "
                "answer.",
            )
        ]
    if len(explains) >= SILENT_TURNS and not any(x.tools for x in explains):
        model = explains[0].model
        return [
            Diagnosis(
                "bad",
                "The model never asks",
                f"{model!r} called no memory tool in the last {len(explains)} turns.",
                'Set memory.extract and memory.recall to "auto" or "always", or use a model that '
                "takes tools.",
            )
        ]
    return [
        Diagnosis("good", "The model uses the memory", f"{len(explains)} recent turns were seen.")
    ]


async def _check_spelling(visitor: Visitor, user: str) -> list[Diagnosis]:
    caller = visitor.caller
    diagnoses = [
        Diagnosis(
            "bad",
            "There is no memory of this name",
            f"Nobody is named exactly {user[:80]!r}. Names are compared character by character.",
        )
    ]
    trimmed_name = user.strip()
    for part in dict.fromkeys((trimmed_name, trimmed_name[:3])) if trimmed_name else ():
        rows = await caller.read(
            management.users.list_users(caller.memory, reach_of(visitor), None, SIMILAR, part)
        )
        if rows:
            names = ", ".join(repr(r["id"][:80]) for r in rows)
            return [*diagnoses, Diagnosis("note", "Another spelling?", f"There are: {names}.")]
    return diagnoses


def _elsewhere(visitor: Visitor) -> list[Diagnosis]:
    mode = visitor.gateway.settings.mode
    return [
        Diagnosis(
            "note",
            "Another tenant?",
            f"This gateway is in {mode} mode, and each tenant has a memory of its own. What was "
            "said in another mode, or with a key of another tenant, is there.",
            "Move on a user's page, or `mnemogate users move`, gives a memory to another name; an "
            "admin key sees all tenants.",
        )
    ]


async def _check_everything(visitor: Visitor) -> list[Diagnosis]:
    """Check the newest turns of everybody."""
    caller = visitor.caller
    turns = await caller.read(
        management.activity.list_turns(
            caller.memory, reach_of(visitor), time.time() - DAYS * DAY_SECONDS, RECENT
        )
    )
    if not turns and await list_failed(visitor, time.time() - DAY_SECONDS):
        return []
    if not turns:
        return [
            Diagnosis(
                "bad",
                f"No request with memory in the last {DAYS} days",
                "Does the app use this gateway?",
                "`Connect your app` has the lines for each client.",
                link("/connect", tenant=caller.asked_tenant),
            )
        ]
    unnamed = sum(t.user is None for t in turns)
    diagnoses = [Diagnosis("good", "Requests arrive", f"{len(turns)} recent turns had memory.")]
    if unnamed:
        text = f"{unnamed} of the {len(turns)} newest turns named nobody. {NOBODY.text}"
        diagnoses.append(Diagnosis("bad", NOBODY.title, text, NOBODY.remedy))
    return diagnoses


@get("/connect")
async def connect_page(visitor: AtVisit) -> Template:
    request = visitor.caller.request
    root = f"{request.scope['scheme']}://{request.headers.get('host', '127.0.0.1:8080')}"
    since = int(time.time())
    model = await _known_model(visitor)
    return visitor.page("connect.html", root=root, since=since, turn=None, model=model)


async def _known_model(visitor: Visitor) -> str:
    """Return a model that this gateway serves.

    One of the configuration, else the newest used, else the first that the upstream lists.
    """
    configured = [name for name in visitor.gateway.settings.models if "*" not in name]
    if configured:
        return configured[0]
    usage_filter = UsageFilter(visitor.caller.reach.tenant, since=time.time() - DAYS * DAY_SECONDS)
    rows = [r for r in await read_usage(visitor, usage_filter) if r["status"] < 400]
    if rows and rows[0]["model"]:
        return str(rows[0]["model"])
    # Nothing is asked of servers.
    if not visitor.gateway.settings.routing.ask_windows:
        return SAMPLE_MODEL
    upstream_list = await upstream_models(visitor.gateway, visitor.caller.principal)
    names = [str(model["id"]) for model in upstream_list]
    talking = (name for name in names if not _NO_CHAT.search(name))
    return next(talking, names[0] if names else SAMPLE_MODEL)


@get("/connect/tick")
async def connect_tick(visitor: AtVisit, since: FromQuery[int]) -> Template:
    """Tell whether a request with memory has arrived since a Unix time."""
    caller = visitor.caller
    since = min(max(since, 0), int(time.time()))
    turns = await caller.read(
        management.activity.list_turns(caller.memory, reach_of(visitor), float(since), 1)
    )
    return visitor.page("parts/tick.html", turn=turns[0] if turns else None, since=since)


ROUTES = (why_page, connect_page, connect_tick)
