"""Requests to one agent follow each other, also over the workers that share a database.

Its conversation is kept here, so two turns at once would go on from the same place. Within a worker
a lock keeps their order. Over several workers the one whose turn it is has a row in the database,
as long as it lives.
"""

from __future__ import annotations

import asyncio
import logging

from gateway.letta.call import LettaCall
from gateway.letta.errors import AgentBusy
from gateway.routing.agents import Agent
from gateway.state import RequestQueue
from memory import MemoryFault, management
from memory.management.agent_turns import LinePlace

log = logging.getLogger("mnemogate")
# Seconds between looks at the line.
FIRST_LOOK, LAST_LOOK, SLOWER = 0.02, 0.5, 1.5
# Until the end of a turn is written again.
RETRY_SECONDS = 1.0
RETRY_AFTER = (b"retry-after", b"2")


class QueuedTurn:
    """The place of one request among those to its agent.

    digest: of the request. repeats_unanswered: it is the last one again, which had no answer.
    """

    def __init__(self, call: LettaCall, agent: Agent, digest: bytes) -> None:
        self._call = call
        self._name = agent.name
        self._digest = digest
        self.repeats_unanswered = False
        self._key = (call.tenant, agent.name)
        queues = call.gateway.process.queues
        queue = queues.get(self._key)
        if queue is None:
            queue = queues[self._key] = RequestQueue()
        self._queue = queue
        self._counts = self._holds = False
        self._place: LinePlace | None = None

    async def begin(self) -> None:
        """Wait for this request's turn. Raises AgentBusy, StoreDown."""
        max_waiting = self._call.gateway.settings.server.letta_waiting
        if self._queue.requests >= max_waiting:
            raise AgentBusy(
                f"{max_waiting} messages to this agent wait for an answer already, which is "
                "all that server.letta_waiting allows. Send this one again when one of them is "
                "answered.",
                headers=[RETRY_AFTER],
            )
        self._counts = True
        self._queue.requests += 1
        await self._queue.lock.acquire()
        self._holds = True
        place = management.agent_turns.place_in_line(self._call.memory, *self._key)
        if place is not None:
            # Set first: a request that is cancelled meanwhile may stand in line already.
            self._place = place
            await self._wait_in_line(place)
        before = self._call.gateway.process.unanswered.pop(self._key)
        self.repeats_unanswered = before is not None and before == self._digest

    async def _wait_in_line(self, place: LinePlace) -> None:
        turns = management.agent_turns
        memory = self._call.memory
        pause = FIRST_LOOK
        is_first: bool | None = await self._call.read(turns.enter_line(memory, place))
        while not is_first:
            await asyncio.sleep(pause)
            pause = min(LAST_LOOK, pause * SLOWER)
            is_first = await self._call.read(turns.is_first(memory, place))
            if is_first is None:
                is_first = await self._call.read(turns.enter_line(memory, place))

    def note_failure(self) -> None:
        """Note that the request had no answer, if its turn had come."""
        if self._holds:
            self._call.gateway.process.unanswered.put(self._key, self._digest)

    def end(self) -> None:
        """Let the next request have its turn."""
        if self._counts:
            self._counts = False
            self._queue.requests -= 1
        if not self._holds:
            return
        self._holds = False
        if self._place is None:
            self._queue.lock.release()
            return
        jobs = self._call.gateway.process.jobs
        leaving = asyncio.create_task(self._leave_line(self._place), name="leave-agent")
        jobs.add(leaving)
        leaving.add_done_callback(jobs.discard)

    async def _leave_line(self, place: LinePlace) -> None:
        """Leave the line, however long that takes: others wait as long as this worker lives."""
        try:
            while True:
                try:
                    await management.agent_turns.leave_line(self._call.memory, place)
                    return
                except MemoryFault as e:
                    log.warning("the end of a turn of %s cannot be written yet: %s", self._name, e)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._queue.lock.release()
