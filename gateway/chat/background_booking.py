"""Books what a response in the background cost, once it is known.

Its request ends before the provider has worked on it, so the whole reservation counts as spent, in
an estimated usage record. Whoever sees the finished response first corrects that record: a client
that fetches or streams it, on any worker, or a task of this process that asks for it, with the
caller's credential in memory. The record can be corrected only while it is an estimate, so a
response is booked once. If nobody ever sees it finished, the reservation stays spent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from gateway.chat.request import TurnInput
from gateway.errors import GatewayError
from gateway.limits.limiter import span
from gateway.storage.responses import StoredResponse
from gateway.usage.pricing import TokenUsage, cost_of, tokens_of
from gateway.wire.chat import Json
from memory import MemoryFault

if TYPE_CHECKING:
    from gateway.chat.provider_call import ProviderCall

BOOKING = "booking"  # the member of a row's echo
UNFINISHED = ("queued", "in_progress")
FIRST_SECONDS, LONGEST_SECONDS = 10.0, 120.0  # between two looks
GIVEN_UP_SECONDS = 86400.0
MOST_WATCHED = 1000  # responses of one process; the clients of others have to fetch them

log = logging.getLogger("mnemogate")


def runs_in_background(request: TurnInput) -> bool:
    """Tell whether a response goes on at its provider without its client."""
    return bool(request.body.get("background")) and request.body.get("store") is not False


def booking_of(request: TurnInput) -> Json:
    """Return what a row says of the usage record of its request; {} if that is final."""
    if not runs_in_background(request):
        return {}
    principal = request.principal
    period = span(principal.budget.period, time.time()).name if principal.budget.usd else ""
    return {BOOKING: {"request": request.id, "key": principal.key, "period": period}}


async def book_finished(call: ProviderCall, row: StoredResponse, response: Json) -> bool:
    """Book a response if it is finished; True once nothing is left to book."""
    booking = row.echo.get(BOOKING)
    if not isinstance(booking, dict):
        return True
    if response.get("status") in UNFINISHED:
        return False
    gateway = call.gateway
    usage = tokens_of(response.get("usage")) or TokenUsage()
    cost = cost_of(usage, call.target.price)
    try:
        before = await gateway.usage.correct(booking["request"], usage, cost)
    except MemoryFault as e:
        log.warning("a response in the background is not booked yet: %s", e)
        return False
    if before is None:
        return False
    if booking["period"] and cost is not None and cost != before:
        await gateway.limits.correct(booking["key"], booking["period"], cost - before)
    return True


def watch(call: ProviderCall, row: StoredResponse) -> None:
    """Ask for a response until it is finished, and book it."""
    jobs = call.gateway.process.jobs
    if BOOKING in row.echo and len(jobs) < MOST_WATCHED:
        task = asyncio.create_task(_ask_until_finished(call, row), name="background-booking")
        jobs.add(task)
        task.add_done_callback(jobs.discard)


async def _ask_until_finished(call: ProviderCall, row: StoredResponse) -> None:
    pause, until = FIRST_SECONDS, time.monotonic() + GIVEN_UP_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_SECONDS)
        try:
            found = await call.ask("GET", "responses", row.rounds[-1])
        except GatewayError as e:
            log.debug("a response in the background cannot be asked for: %s", e.message)
            continue
        if await book_finished(call, row, found):
            return
