"""Writes the log of `mnemogate serve` to standard error, as text or JSON, from its own thread.

Logging never blocks. Lines wait in a queue; if it is full, lines are dropped, and a warning says
how many once writing works again. The thread writes past Python's own buffer, whose lock would hold
up the end of the process too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from functools import lru_cache
from typing import Literal

from gateway.http.access_log import AccessLogLine

Format = Literal["text", "json"]
MAX_QUEUED_LINES = 4000
LINES_PER_WRITE = 200
# Lines gather, so that a busy gateway seldom wakes the thread.
GATHER_SECONDS = 0.02
CLOSE_SECONDS = 1.0
DROPPED = "%d lines of this log were dropped: nobody read them fast enough"


class TextFormatter(logging.Formatter):
    """`time level message`, one line each; a traceback follows its own."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if not text.isprintable():
            # A quoted value must not forge a line.
            text = text.replace("\r", "\\r").replace("\n", "\\n")
        text = f"{stamp(record.created)} {record.levelname.lower()} {text}"
        if record.exc_info is None:
            return text
        return f"{text}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        text = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(line := record.msg, AccessLogLine):
            return json.dumps({**text, **line.members()}, ensure_ascii=False)
        text["message"] = record.getMessage()
        if record.exc_info is not None:
            text["exception"] = self.formatException(record.exc_info)
        return json.dumps(text, ensure_ascii=False)


def stamp(at: float) -> str:
    """Return a Unix time in ISO 8601, UTC."""
    return f"{_second(int(at))}.{int(at % 1 * 1000):03d}Z"


@lru_cache(8)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


class LogWriter(logging.Handler):
    """Queues records and writes them from its own thread.

    fd: file descriptor to write to. dropped_records: total number of records that found the queue
    full.
    """

    def __init__(self, fd: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.dropped_records = 0
        self._fd = fd
        self._reported_count = 0
        self._lines: deque[logging.LogRecord | str] = deque()
        self._has_records = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= MAX_QUEUED_LINES:
            self.dropped_records += 1
            return
        # Format everything but a finished line now, before its objects change.
        self._lines.append(record if isinstance(record.msg, AccessLogLine) else self.format(record))
        if not self._has_records.is_set():
            self._has_records.set()

    def close(self) -> None:
        """Write what waits, as far as somebody reads it within a second."""
        self._ending.set()
        self._has_records.set()
        self._thread.join(CLOSE_SECONDS)
        super().close()

    def _work(self) -> None:
        while not (self._ending.is_set() and not self._lines):
            self._has_records.wait()
            self._ending.wait(GATHER_SECONDS)
            self._has_records.clear()
            while self._lines:
                self._write(
                    [self._lines.popleft() for _ in range(min(LINES_PER_WRITE, len(self._lines)))]
                )

    def _write(self, lines: list[logging.LogRecord | str]) -> None:
        texts = [
            self.format(line) if isinstance(line, logging.LogRecord) else line for line in lines
        ]
        if (dropped_count := self.dropped_records) > self._reported_count:
            texts.append(
                self.format(
                    logging.LogRecord(
                        "mnemogate",
                        logging.WARNING,
                        "",
                        0,
                        DROPPED,
                        (dropped_count - self._reported_count,),
                        None,
                    )
                )
            )
            self._reported_count = dropped_count
        data = memoryview(("\n".join(texts) + "\n").encode("utf-8", "backslashreplace"))
        # The reader is gone.
        with contextlib.suppress(OSError):
            while data:
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:
                    time.sleep(GATHER_SECONDS)


def begin(form: Format, level: str, fd: int = 2) -> LogWriter:
    """Send all logs of this process to `fd`, unless an embedding program has set up logging.

    level: of Mnemogate's own loggers; others are shown from `warning` on.
    """
    # What no line shows need not be asked of the system for each of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    sink = LogWriter(fd, JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(sink)
        root.setLevel(logging.WARNING)
        logging.getLogger("mnemogate").setLevel(level.upper())
    return sink
