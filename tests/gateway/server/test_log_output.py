"""The log of `serve`: a line for each request, as text or JSON, by a thread that holds nobody
up.
"""

from __future__ import annotations

import json
import logging
import os
import time

import pytest

from gateway.http import access_log
from gateway.server import log_output
from gateway.usage.log import UsageRecord

SECRET = "sk-sentinel-0bad"


@pytest.fixture
def pipe():
    ours, theirs = os.pipe()
    sinks = []
    yield ours, theirs, sinks
    # So that a thread that waits for a reader ends.
    os.close(ours)
    for sink in sinks:
        sink.close()
        sink._thread.join(20)
        assert not sink._thread.is_alive()
    os.close(theirs)


@pytest.fixture
def logger():
    found = logging.getLogger("mnemogate.of-this-test")
    found.propagate = False
    found.setLevel(logging.DEBUG)
    yield found
    found.handlers.clear()


def line(path=b"/v1/chat/completions", **more):
    made = access_log.AccessLogLine("req_1", "POST", path, time.perf_counter(), **more)
    made.take_usage(
        UsageRecord(
            "req_1",
            1.0,
            "acme",
            "ada b",
            "app",
            "m",
            "openai/m",
            "/chat/completions",
            "full",
            3.0,
            200,
            1,
            2,
            10,
            output=3,
        ),
        "ok",
    )
    return made


def told(ours, sink):
    sink.close()
    return os.read(ours, 1 << 20).decode().splitlines()


def test_a_line_is_one_line_whatever_it_quotes(pipe, logger):
    logger.addHandler(sink := log_output.LogWriter(pipe[1], log_output.TextFormatter()))
    logger.warning("quoted: %s", "a\nforged line\r\nb")
    logger.info(line(b"/v1/a\nb\x1b[31m?key=" + SECRET.encode()))
    found = told(pipe[0], sink)
    assert len(found) == 2
    assert found[0].endswith(r"warning quoted: a\nforged line\r\nb")
    assert (
        r"POST /v1/a\nb\x1b[31m 200 key=app user=ada%20b memory=ok upstream=openai/m "
        r"attempts=1 "
        r"rounds=2 tokens=10+3 ms=0.0 req_1" in found[1]
    )
    assert SECRET not in found[1]


def test_as_json_every_line_is_an_object_and_an_exception_is_in_it(pipe, logger):
    logger.addHandler(sink := log_output.LogWriter(pipe[1], log_output.JsonFormatter()))
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    logger.info(line())
    first, second = map(json.loads, told(pipe[0], sink))
    assert (first["level"], first["message"]) == ("error", "failed")
    assert "ValueError: no" in first["exception"]
    assert {
        k: second[k]
        for k in (
            "status",
            "user",
            "key",
            "memory",
            "upstream",
            "rounds",
            "input_tokens",
            "output_tokens",
        )
    } == {
        "status": 200,
        "user": "ada b",
        "key": "app",
        "memory": "ok",
        "upstream": "openai/m",
        "rounds": 2,
        "input_tokens": 10,
        "output_tokens": 3,
    }


def test_who_logs_never_waits_for_who_reads_and_what_was_dropped_is_told(pipe, logger):
    logger.addHandler(sink := log_output.LogWriter(pipe[1], log_output.TextFormatter()))
    pipe[2].append(sink)
    # The pipe is full, then the queue: a log that waited would never come this far.
    while sink.dropped_records < 10:
        logger.info("x" * 500)
    found = b""
    while b"lines of this log were dropped" not in found:
        found += os.read(pipe[0], 1 << 16)
    assert sink.dropped_records >= 10


def test_the_end_waits_for_nobody_who_reads(pipe, logger):
    logger.addHandler(sink := log_output.LogWriter(pipe[1], log_output.TextFormatter()))
    pipe[2].append(sink)
    while not sink.dropped_records:
        logger.info("x" * 500)
    begun = time.monotonic()
    sink.close()
    assert time.monotonic() - begun < 10
    assert sink._thread.is_alive()


def test_a_reader_that_is_gone_costs_nothing_but_the_lines(logger):
    ours, theirs = os.pipe()
    os.close(ours)
    logger.addHandler(sink := log_output.LogWriter(theirs, log_output.TextFormatter()))
    logger.info("nobody reads this")
    sink.close()
    assert not sink._thread.is_alive()
    os.close(theirs)


def test_outside_of_a_request_nothing_is_noted_for_anybody():
    access_log.current_line().key = "app"
    assert access_log.current_line().key == ""
