"""While a thread works the interpreter changes hands sooner, and only then."""

import asyncio
import sys
import threading

import pytest

from gateway.server import worker_threads
from gateway.server.worker_threads import BUSY_SWITCH_SECONDS, WorkerThreads
from memory.conversation.steps import end_step

USUAL_SECONDS = 0.003


@pytest.fixture
def threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_SECONDS)
    with WorkerThreads(USUAL_SECONDS) as executor:
        yield executor
    sys.setswitchinterval(before)


def interval():
    return pytest.approx(sys.getswitchinterval())


async def test_while_any_thread_works_the_event_loop_waits_less_for_it(threads):
    asyncio.get_running_loop().set_default_executor(threads)
    first, second = threading.Event(), threading.Event()
    assert interval() == USUAL_SECONDS
    works = [asyncio.create_task(asyncio.to_thread(e.wait, 30)) for e in (first, second)]
    while threads._working < 2:
        await asyncio.sleep(0.001)
    assert interval() == BUSY_SWITCH_SECONDS
    first.set()
    await works[0]
    # The other still works.
    assert interval() == BUSY_SWITCH_SECONDS
    second.set()
    await works[1]
    assert interval() == USUAL_SECONDS


async def test_work_that_fails_ends_it_as_well(threads):
    asyncio.get_running_loop().set_default_executor(threads)
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)
    assert interval() == USUAL_SECONDS


async def test_a_thread_pauses_after_some_work_of_its_own(threads, monkeypatch):
    asyncio.get_running_loop().set_default_executor(threads)
    clock, pauses = [0.0], []
    monkeypatch.setattr(worker_threads.time, "thread_time", lambda: clock[0])
    monkeypatch.setattr(worker_threads.time, "sleep", pauses.append)

    def work():
        for _ in range(10):
            clock[0] += worker_threads.WORK_SECONDS / 2 + 1e-9
            end_step()

    await asyncio.to_thread(work)
    assert pauses == [worker_threads.PAUSE_SECONDS] * 5
    # The event loop never pauses.
    end_step()
    assert len(pauses) == 5


def test_a_request_is_served_in_the_pauses_of_a_thread():
    # At least as long as the work before it, so a thread leaves half of the time to others.
    assert worker_threads.PAUSE_SECONDS >= worker_threads.WORK_SECONDS
