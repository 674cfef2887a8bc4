"""Pages for operators: monitors, jobs, keys, usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest, RequestConflict
from gateway.management import jobs as jobs_api
from gateway.management import keys as keys_api
from gateway.management.stats import DAYS, Stats, read_stats
from gateway.management.usage import usage as usage_api
from gateway.management.usage import visible_user
from gateway.storage.usage import MEMBERS, UsageFilter
from gateway.ui import charts
from gateway.ui.texts import link
from gateway.ui.visitor import AtVisit, Visitor, go_to
from memory import management

PAGE = 50
FLAGS = ("trusted", "admin")


@get("/monitors")
async def monitors_page(visitor: AtVisit, user: FromQuery[str] = "") -> Template:
    caller = visitor.caller
    stats = await read_stats(caller, None, visible_user(caller, _own_user(visitor, user)))
    return visitor.page("monitors.html", stats=stats, days=DAYS, user=user, plots=_plots(stats))


def _own_user(visitor: Visitor, user: str) -> str | None:
    """Return the user whose numbers are shown; a key of a single user sees only that user's."""
    only = visitor.caller.principal.only
    return user or (only[0] if only else None)


def _plots(stats: Stats) -> dict[str, Any]:
    days = list(reversed(stats.usage["by_day"]))
    edits = {day: float(sum(by.values())) for day, by in stats.core.edited.items()}
    return {
        "prompts": charts.line([float(p.prompt_tokens) for p in stats.recent]),
        "injected": charts.line(
            [float(p.injected_tokens) for p in stats.recent],
            max((float(p.prompt_tokens) for p in stats.recent), default=0.0),
        ),
        "searches": charts.line([p.search_ms for p in stats.recent if p.searches]),
        "growth": charts.bars({day: float(n) for day, n in stats.archival.added.items()}),
        "edits": charts.bars(edits),
        "requests": charts.bars({d["day"]: float(d["requests"]) for d in days}),
        "tokens": charts.bars(
            {d["day"]: float(d["input_tokens"] + d["output_tokens"]) for d in days}
        ),
    }


@get("/jobs")
async def jobs_page(
    visitor: AtVisit, which: FromQuery[str] = "dead", cursor: FromQuery[str | None] = None
) -> Template:
    jobs_list = await jobs_api.jobs.fn(visitor.caller, which, cursor or None, PAGE)
    return visitor.page(
        "jobs.html",
        jobs=jobs_list.data,
        rest=jobs_list.next_cursor,
        which=which,
        states=management.jobs.STATES,
    )


@post("/jobs/retry", status_code=200)
async def retry_job(visitor: AtVisit) -> Redirect:
    await jobs_api.retry_job.fn(visitor.caller, visitor.field("id"))
    return go_to(link("/jobs", tenant=visitor.caller.asked_tenant))


@get("/keys")
async def keys_page(visitor: AtVisit, cursor: FromQuery[str | None] = None) -> Template:
    return visitor.page("keys.html", made=None, **await _keys(visitor, cursor or None))


async def _keys(visitor: Visitor, cursor: str | None) -> dict[str, Any]:
    keys_list = await keys_api.list_keys.fn(visitor.caller, cursor, PAGE)
    return {
        "keys": keys_list.data,
        "rest": keys_list.next_cursor,
        "first": keys_api.is_first_key(visitor.caller),
    }


@post("/keys", status_code=200)
async def make_key(visitor: AtVisit) -> Template:
    grant = _grant(visitor.form)
    if keys_api.is_first_key(visitor.caller) and not grant["admin"]:
        raise RequestConflict(
            "Make an admin key first: with the first key the gateway asks every client for one "
            "from its next start on, and only an admin key manages the others.",
            param="admin",
        )
    new_key = await keys_api.make_key(visitor.caller, msgspec.json.encode(grant))
    return visitor.page("keys.html", made=new_key, **await _keys(visitor, None))


def _grant(form: Mapping[str, str]) -> dict[str, Any]:
    """Return what a key may do, as the API takes it. Raises BadRequest."""
    grant: dict[str, Any] = {
        name: form[name].strip()
        for name in ("name", "tenant", "default_user")
        if form.get(name, "").strip()
    }
    grant |= {name: name in form for name in FLAGS}
    if models := form.get("models", "").split():
        grant["models"] = models
    try:
        usd = float(form.get("usd") or 0)
        rpm = int(form.get("rpm") or 0)
    except ValueError as e:
        raise BadRequest("The budget and the limit must be numbers; 0 is none.") from e
    return {**grant, "budget": {"usd": usd}, "limits": {"rpm": rpm}}


@post("/keys/revoke", status_code=200)
async def revoke_key(visitor: AtVisit) -> Redirect:
    await keys_api.withdraw_key(visitor.caller, visitor.field("id"))
    return go_to(link("/keys"))


@get("/usage")
async def usage_page(
    visitor: AtVisit, by: FromQuery[str] = "model", cursor: FromQuery[str | None] = None
) -> Template:
    caller = visitor.caller
    only = visible_user(caller, _own_user(visitor, ""))
    usage_filter = UsageFilter(caller.reach.tenant, only)
    usage_rows = await usage_api.fn(caller, usage_filter, by, cursor or None, PAGE)
    groups = [name for name in MEMBERS if name != "tenant" or caller.principal.admin]
    return visitor.page(
        "usage.html",
        rows=usage_rows.data,
        rest=usage_rows.next_cursor,
        by=by,
        groups=[*groups, "request"],
    )


ROUTES = (
    monitors_page,
    jobs_page,
    retry_job,
    keys_page,
    make_key,
    revoke_key,
    usage_page,
)
