"""A request or an answer of 60 MiB costs three times `max_body_mib` at most, in a process apart."""

import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.freeze import dimensions, format_dimensions
from tests.bench.freeze.dimensions import Exchange
from tests.bench.freeze.stage import Stage

# The default of server.max_body_mib.
BODY_MIB = 64
PLAYED = {
    **{d.name: d for d in dimensions.REQUESTS + dimensions.ANSWERS},
    **{d.name: d for d in format_dimensions.REQUESTS + format_dimensions.ANSWERS},
}
IMAGES = ["bytes of an image", "responses: bytes of an image", "messages: bytes of an image"]
ANSWERS = [
    "words of a whole answer",
    "responses: words of a whole answer",
    "messages: words of a whole answer",
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")


CARRIED = [(IMAGES[0], "translated"), (IMAGES[1], "bridged"), (IMAGES[2], "bridged")]


def play(folder: Path, name: str, model: str = "") -> float:
    """Play a dimension at the limit of a body; return how many MiB the gateway grew at its peak."""
    with Stage(folder) as stage:
        stage.settle()
        idle = stage.gateway.resident()
        played = PLAYED[name]
        if model:
            played = replace(played, play=asked_of(model, played.play))
        assert stage.play(played, dimensions.BODY_BYTES).status == 200
        return stage.peak() / dimensions.MIB - idle


def asked_of(model: str, make: Callable[[int], Exchange]) -> Callable[[int], Exchange]:
    def ask(size: int) -> Exchange:
        exchange = make(size)
        named = rb'"model":"%b"' % model.encode()
        exchange.body = re.sub(rb'"model":"\w+"', named, exchange.body, count=1)
        return exchange

    return ask


@linux
@pytest.mark.parametrize("name", [*IMAGES, *ANSWERS])
def test_a_large_body_costs_three_times_the_limit_at_most(tmp_path: Path, name: str):
    assert play(tmp_path, name) <= 3 * BODY_MIB


@linux
@pytest.mark.parametrize(("name", "model"), CARRIED)
def test_nor_does_one_that_is_carried_in_another_format(tmp_path: Path, name: str, model: str):
    assert play(tmp_path, name, model) <= 3 * BODY_MIB


SECRET = "my password: hunter2-Zebra! "


def with_secret(make: Callable[[int], Exchange]) -> Callable[[int], Exchange]:
    """Return an answer with a secret in the middle of its text."""

    def answer(size: int) -> Exchange:
        exchange = make(size)
        (head, _, body) = exchange.answers[0][0].partition(b"\r\n\r\n")
        middle = len(body) // 2
        body = body[:middle] + SECRET.encode() + body[middle + len(SECRET) :]
        return replace(exchange, answers=[[head + b"\r\n\r\n" + body]])

    return answer


@linux
# Of the wire where it costs most: they take half a minute each.
@pytest.mark.parametrize("name", ANSWERS[2:])
def test_nor_does_an_answer_with_a_secret_in_it(tmp_path: Path, name: str):
    with Stage(tmp_path) as stage:
        stage.settle()
        idle = stage.gateway.resident()
        played = replace(PLAYED[name], play=with_secret(PLAYED[name].play))
        assert stage.play(played, dimensions.BODY_BYTES).status == 200
        # The text without the secret is a third copy, beside the answer's bytes and its text.
        assert stage.peak() / dimensions.MIB - idle <= 3 * BODY_MIB
        with sqlite3.connect(tmp_path / "store" / "mnemogate.db") as db:
            (there,) = db.execute("SELECT count(*) FROM message_pieces").fetchone()
            (told,) = db.execute(
                "SELECT count(*) FROM message_pieces WHERE instr(data, 'hunter2')"
            ).fetchone()
    assert there
    assert not told


class LateAnswer(list[bytes]):
    """An answer that comes once its request is stored, and the store takes nothing more."""

    def __init__(self, pieces: list[bytes], store: sqlite3.Connection) -> None:
        super().__init__(pieces)
        self._store = store

    def __iter__(self) -> Iterator[bytes]:
        time.sleep(1)
        self._store.execute("BEGIN IMMEDIATE")
        return super().__iter__()


@linux
# Of one wire: they take half a minute each, and the same path.
@pytest.mark.parametrize("name", ANSWERS[:1])
def test_nor_does_an_answer_with_a_secret_whose_store_is_late(tmp_path: Path, name: str):
    """The store is locked until the answer is in the recovery log, and then takes it from there.

    What its rows would have said, a copy without the secret, is gone before the log's copy is made.
    """
    waits, store = tmp_path / "store" / "spill.ndjson", tmp_path / "store" / "mnemogate.db"
    with Stage(tmp_path) as stage:
        stage.settle()
        idle = stage.gateway.resident()
        db = sqlite3.connect(store, isolation_level=None, check_same_thread=False)

        def late(size: int) -> Exchange:
            exchange = with_secret(PLAYED[name].play)(size)
            return replace(exchange, answers=[LateAnswer(exchange.answers[0], db)])

        try:
            played = replace(PLAYED[name], play=late)
            assert stage.play(played, dimensions.BODY_BYTES).status == 200
            assert waits.stat().st_size > dimensions.BODY_BYTES
        finally:
            db.execute("ROLLBACK")
        until(lambda: not waits.exists())
        assert stage.peak() / dimensions.MIB - idle <= 3 * BODY_MIB
        (size, told) = db.execute(
            "SELECT sum(length(data)), sum(instr(data, 'hunter2')) FROM message_pieces"
        ).fetchone()
        assert (size > dimensions.BODY_BYTES - dimensions.MIB, told) == (True, 0)
        db.close()


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)
