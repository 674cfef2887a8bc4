"""A record of the recovery log is written, waits, or is set aside; none is lost without a log."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from memory.errors import Conflict, ErasedMeanwhile, RowRefused, StoreUnavailable
from memory.session.replay import Replay

SCOPE = SimpleNamespace(tenant="acme", user="ada")
RECORD = SimpleNamespace(
    owner=SimpleNamespace(scope=SCOPE), conversation="c", beside=None, large_bodies=()
)


class Log:
    def __init__(self):
        self.aside, self.cleared = [], False

    def load(self):
        return [RECORD]

    def set_aside(self, record):
        self.aside.append(record)

    def clear(self):
        self.cleared = True


class Store:
    def __init__(self, error):
        self._error = error

    async def write(self, work, *, lock):
        raise self._error


@pytest.mark.parametrize(
    "error", [RowRefused("too long"), Conflict("someone was faster"), ValueError("a defect")]
)
async def test_a_record_that_cannot_be_written_is_set_aside_and_logged(error, caplog):
    kept = Log()
    await Replay(Store(error), kept).run()
    assert (kept.aside, kept.cleared) == ([RECORD], True)
    assert "set aside" in caplog.text


async def test_a_record_of_an_erased_user_is_dropped_and_logged(caplog):
    caplog.set_level(logging.INFO, logger="mnemogate")
    kept = Log()
    await Replay(Store(ErasedMeanwhile("gone")), kept).run()
    assert (kept.aside, kept.cleared) == ([], True)
    assert "is dropped" in caplog.text


async def test_records_wait_for_a_store_that_is_away():
    kept = Log()
    with pytest.raises(StoreUnavailable):
        await Replay(Store(StoreUnavailable("away")), kept).run()
    assert (kept.aside, kept.cleared) == ([], False)
