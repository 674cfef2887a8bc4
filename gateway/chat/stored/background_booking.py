"""Books what a response in the background cost, once it is known.

Its request ends before the provider has worked on it, so the whole reservation counts as spent, in
an estimated usage record. Whoever sees the finished response first corrects that record: a client
that fetches or streams it, on any worker, or a task of a process that asks for it, also after a
restart. The record can be corrected only while it is an estimate, so a response is booked once.

The task needs a credential: the provider's key of the configuration, or in own-key mode the one
that the tenant sent last, which is in memory only; after a restart the tenant's next request brings
it. What nobody has seen finished after 24 hours stays spent as it was reserved.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from gateway.auth.authenticator import Principal
from gateway.chat.stored.provider_call import ProviderCall
from gateway.errors import GatewayError, UpstreamRefused
from gateway.limits.counters import Reservation
from gateway.relay.endpoint import route_for
from gateway.storage.bookings import BOOKING, PendingBooking
from gateway.storage.responses import StoredResponse
from gateway.usage.pricing import TokenUsage, cost_of, tokens_of
from memory import MemoryFault

if TYPE_CHECKING:
    from gateway.chat.intake.request import TurnInput
    from gateway.routing.dispatcher import Dispatcher
    from gateway.state import GatewayState
    from gateway.wire.chat import Json

UNFINISHED = ("queued", "in_progress")
# A provider may tell no usage of them: then there is none.
UNPAID = ("failed", "cancelled")
# Between two looks.
FIRST_SECONDS, LONGEST_SECONDS = 10.0, 120.0
GIVEN_UP_SECONDS = 86400.0
NO_ACCESS = (401, 403)
GONE = (404, 410)
ASK_SECONDS = 30.0
# Of a booking: what hidden rounds and summaries used, whose usage is known.
BEFORE = "before"
# Questions to providers.
AT_ONCE = 8
BILLED = (b"openai-organization", b"openai-project")

log = logging.getLogger("mnemogate")


def booking_of(request: TurnInput, forward: Dispatcher) -> Json:
    """Return what a row says of the usage record of its request; {} if that is final."""
    if not request.runs_in_background:
        return {}
    booking: Json = {"request": request.id, "key": request.principal.key, "period": ""}
    if (place := forward.meter.counted_in) is not None:
        booking |= place._asdict()
    before = forward.meter.bill_hidden()
    if before.tokens != TokenUsage():
        booking[BEFORE] = {"tokens": asdict(before.tokens), "usd": before.known_cost}
    billed = {k.decode(): v.decode("latin-1") for k, v in request.headers.items() if k in BILLED}
    return {BOOKING: booking | ({"headers": billed} if billed else {})}


async def book_finished(call: ProviderCall, row: StoredResponse, response: Json) -> bool:
    """Book a response if it is finished; True once nothing is left to book."""
    booking = row.echo.get(BOOKING)
    if not isinstance(booking, dict):
        return True
    if response.get("status") in UNFINISHED:
        return False
    usage = tokens_of(response.get("usage"))
    if usage is None and response.get("status") in UNPAID:
        usage = TokenUsage()
    gateway = call.gateway
    try:
        # Where a provider tells no usage, the reservation stands.
        if usage is not None and not await _correct(call, booking, usage):
            return False
        await gateway.process.bookings.remove(row.tenant, row.id)
    except MemoryFault as e:
        log.warning("a response in the background is not booked yet: %s", e)
        return False
    return True


async def _correct(call: ProviderCall, booking: Json, usage: TokenUsage) -> bool:
    """Correct the usage record and the counters; False if the record is not there yet."""
    gateway = call.gateway
    cost = cost_of(usage, call.target.price)
    if earlier := booking.get(BEFORE):
        usage += TokenUsage(**earlier["tokens"])
        cost = None if cost is None else cost + earlier["usd"]
    earlier_record = await gateway.usage.correct(booking["request"], usage, cost)
    if earlier_record is None:
        return False
    tokens = usage.input + usage.output - earlier_record.tokens
    usd = 0.0
    if booking["period"] and cost is not None:
        usd = cost - earlier_record.cost
    if earlier_record.estimated and (tokens or usd):
        booked_second = booking.get("second", 0)
        shared = booking.get("shared", False)
        hold = Reservation("", booking["key"], booked_second, 0, 0, booking["period"], shared)
        await gateway.limits.correct(hold, tokens, usd)
    return True


def watch(call: ProviderCall, row: StoredResponse) -> None:
    """Have a response asked for until it is finished, and booked."""
    if BOOKING in row.echo:
        gateway = call.gateway
        principal = call.principal
        gateway.credentials.keep(principal.tenant, principal.authorization)
        gateway.process.bookings.expect(row.tenant, row.id)


async def book_pending(current_state: Callable[[], GatewayState]) -> None:
    """Ask for the responses that are not booked, this process's and those of earlier ones.

    current_state: returns the state with the newest settings.
    """
    bookings = current_state().process.bookings
    while True:
        bookings.change_event.clear()
        try:
            pause = await _look_at_all(current_state())
        except MemoryFault as e:
            log.warning("responses in the background cannot be booked yet: %s", e)
            pause = LONGEST_SECONDS
        except Exception:
            # A bug of ours; without this task nothing is booked any more.
            log.exception("responses in the background cannot be booked; trying again")
            pause = LONGEST_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await bookings.change_event.wait()
        # However many requests come, at most one look a second.
        await asyncio.sleep(min(FIRST_SECONDS, 1.0))


async def _look_at_all(gateway: GatewayState) -> float | None:
    """Ask for what is due; return the seconds until something is again, None for nothing."""
    bookings = gateway.process.bookings
    places = asyncio.Semaphore(AT_ONCE)
    after = ""
    soonest = math.inf
    while page := await bookings.read_page(after):
        after = page[-1].name
        times = await asyncio.gather(*(_look_at(gateway, row, places) for row in page))
        soonest = min(soonest, *times)
    if bookings.are_expected:
        gateway.responses.write_held()
        soonest = min(soonest, time.time() + FIRST_SECONDS)
    if soonest == math.inf:
        return None
    return max(soonest - time.time(), 0.0)


async def _look_at(gateway: GatewayState, row: PendingBooking, places: asyncio.Semaphore) -> float:
    """Ask for a response if that is due; return when to look again, infinity for never."""
    bookings = gateway.process.bookings
    response = _response_of(row)
    begun_at = response.created_at
    now = time.time()
    if now > begun_at + GIVEN_UP_SECONDS:
        log.warning("a response was not seen finished; its whole reservation counts as spent")
        await bookings.remove(response.tenant, response.id)
        return math.inf
    if now < (due := max(row.due, begun_at + FIRST_SECONDS)):
        return due
    call = _call_for(gateway, response)
    if call is None:
        return begun_at + GIVEN_UP_SECONDS
    again_at = now + min(max((now - begun_at) / 2, FIRST_SECONDS), LONGEST_SECONDS)
    async with places:
        is_mine = await bookings.claim(row, again_at)
        if is_mine and await _is_booked(call, response):
            return math.inf
        return again_at


def _response_of(row: PendingBooking) -> StoredResponse:
    return StoredResponse(user=None, **row.response)


def _call_for(gateway: GatewayState, response: StoredResponse) -> ProviderCall | None:
    """Return how to ask for a response; None without its target or a credential."""
    tenant = response.tenant
    booking = response.echo[BOOKING]
    uses_own_keys = gateway.keys.own
    authorization = None
    if uses_own_keys:
        authorization = gateway.credentials.get(tenant)
    principal = Principal(tenant, booking["key"], authorization=authorization)
    try:
        route = route_for(gateway, response.model, principal)
    except GatewayError:
        return None
    target = next((x for x in route.targets if x.label == response.target), None)
    if target is None:
        return None
    headers = {k.encode(): v.encode("latin-1") for k, v in booking.get("headers", {}).items()}
    call = ProviderCall(gateway, principal, headers, target)
    if uses_own_keys and not call.has_credential:
        gateway.process.bookings.wait_for(tenant)
        return None
    return call


async def _is_booked(call: ProviderCall, response: StoredResponse) -> bool:
    """Ask for a response, and book it if it is finished."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            answer = await call.ask("GET", "responses", response.rounds[-1])
    except (GatewayError, TimeoutError) as e:
        log.debug("a response in the background cannot be asked for: %s", e)
        refusal_status = 0
        if isinstance(e, UpstreamRefused):
            refusal_status = e.status
        if refusal_status in NO_ACCESS and call.principal.authorization is not None:
            call.gateway.credentials.drop(response.tenant, call.principal.authorization)
        if refusal_status not in GONE:
            return False
        # Nobody will ever know what it cost, so the reservation stays spent.
        await call.gateway.process.bookings.remove(response.tenant, response.id)
        return True
    return await book_finished(call, response, answer)
