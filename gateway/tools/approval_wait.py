"""Waits for a person's decision on a call. Any worker may take it: the row is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec

from gateway.tools.checked_call import AdmittedCall
from memory import Memory, MemoryFault, management
from memory.management.approvals import ALIVE_SECONDS, ApprovalRequest, StoredApproval

log = logging.getLogger("mnemogate")
# Between looks at the row: a decision arrives within a second.
LOOK_SECONDS = 0.4
RENEW_SECONDS = ALIVE_SECONDS / 3
NOT_POSSIBLE = "Error: this call needs a person's approval, and cannot be asked for right now."


async def wait_for_decision(memory: Memory, question: ApprovalRequest) -> StoredApproval:
    """Ask for a decision and return it, or what ended the wait.

    Being cancelled ends the wait as well: nobody decides on a call of a client that left. Raises
    MemoryFault if the store cannot take the question.
    """
    approval = await management.approvals.ask_person(memory, question)
    until = time.monotonic() + question.seconds
    try:
        decision = await _look_until(memory, approval, until)
    except asyncio.CancelledError:
        ending = asyncio.ensure_future(
            management.approvals.end_wait(memory, approval.id, "cancelled")
        )
        ending.add_done_callback(_log_failure)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.wait([ending], timeout=1))
        raise
    if decision is not None:
        return decision
    return await management.approvals.end_wait(memory, approval.id, "expired")


async def _look_until(
    memory: Memory, approval: StoredApproval, until: float
) -> StoredApproval | None:
    """Return the decision; None if there is none by then."""
    renewed_at = time.monotonic()
    while (seconds_left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(LOOK_SECONDS, seconds_left))
        try:
            row = await management.approvals.find_approval(memory, approval.id)
            if row.status != "pending":
                return row
            if time.monotonic() - renewed_at > RENEW_SECONDS:
                await management.approvals.renew_wait(memory, approval.id)
                renewed_at = time.monotonic()
        except MemoryFault as e:
            # The store may be back before the time is over.
            log.warning("cannot look for a decision on %s: %s", approval.id, e)
    return None


class AskedApproval(msgspec.Struct, frozen=True):
    """What a person decided. id: of the row. refusal: the call's result, "" if it may run."""

    id: str
    refusal: str


class CallApprovals:
    """Asks for decisions on the calls of one request.

    wanted: what all its questions share. until: the loop's time by which the turn ends.
    """

    def __init__(self, memory: Memory, question: ApprovalRequest, until: float) -> None:
        self._memory = memory
        self._question = question
        self._until = until

    async def ask(self, call: AdmittedCall) -> AskedApproval:
        """Wait for a decision on a call."""
        seconds_left = self._until - asyncio.get_running_loop().time()
        seconds = max(0.0, min(self._question.seconds, seconds_left))
        masked_arguments, _ = self._memory.policy.screen.mask(call.run.arguments)
        question = msgspec.structs.replace(
            self._question, tool=call.name, arguments=masked_arguments, seconds=seconds
        )
        try:
            decision = await wait_for_decision(self._memory, question)
        except MemoryFault as e:
            log.warning("a person could not be asked about %s: %s", call.name, e)
            return AskedApproval("", NOT_POSSIBLE)
        return AskedApproval(decision.id, refusal_of(decision, self._question.seconds))


def _log_failure(ending: asyncio.Future[StoredApproval]) -> None:
    if not ending.cancelled() and (error := ending.exception()) is not None:
        log.warning("the end of a wait for a person could not be written: %s", error)


def refusal_of(decided: StoredApproval, seconds: float) -> str:
    """Return the result of a call that was not allowed; "" for one that was.

    seconds: for which the call waited.
    """
    if decided.status == "allowed":
        return ""
    if decided.status == "denied":
        return f"Error: a person refused this call. {decided.reason}".rstrip()
    return f"Error: nobody decided on this call within {seconds:g} s; it was not run."
