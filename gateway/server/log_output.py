"""Where the log of `mnemogate serve` goes: to standard error, as text or as JSON, by a thread of
its own.

Nobody who logs waits for whoever reads: lines wait in a queue, what finds it full is dropped, and
how many were is told as soon as something is read again. The thread writes past Python's own
buffer, whose lock would hold the end of the process up too.
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
MAX_QUEUED_LINES = 4000  # lines that wait
LINES_PER_WRITE = 200  # lines written at once
GATHER_SECONDS = (
    0.02  # seconds in which lines gather, so that a busy gateway wakes the thread seldom
)
CLOSE_SECONDS = 1.0
DROPPED = "%d lines of this log were dropped: nobody read them fast enough"


class TextFormatter(logging.Formatter):
    """`time level message`, one line each; a traceback follows its own."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if not text.isprintable():
            text = text.replace("\r", "\\r").replace(
                "\n", "\\n"
            )  # nothing that is quoted makes a line of its own
        told = f"{stamp(record.created)} {record.levelname.lower()} {text}"
        return (
            told if record.exc_info is None else f"{told}\n{self.formatException(record.exc_info)}"
        )


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(line := record.msg, AccessLogLine):
            return json.dumps({**told, **line.members()}, ensure_ascii=False)
        told["message"] = record.getMessage()
        if record.exc_info is not None:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def stamp(at: float) -> str:
    """Return a time in ISO 8601, in UTC."""
    return f"{_second(int(at))}.{int(at % 1 * 1000):03d}Z"


@lru_cache(8)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


class LogWriter(logging.Handler):
    """See the module.

    fd: where the lines are written. dropped: how many found the queue full, in all.
    """

    def __init__(self, fd: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.dropped = 0
        self._fd, self._told = fd, 0
        self._lines: deque[logging.LogRecord | str] = deque()
        self._some, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= MAX_QUEUED_LINES:
            self.dropped += 1
            return
        # What holds other objects than a finished line is told now, before they change.
        self._lines.append(record if isinstance(record.msg, AccessLogLine) else self.format(record))
        if not self._some.is_set():
            self._some.set()

    def close(self) -> None:
        """Write what waits, as far as somebody reads it within a second."""
        self._ending.set()
        self._some.set()
        self._thread.join(CLOSE_SECONDS)
        super().close()

    def _work(self) -> None:
        while not (self._ending.is_set() and not self._lines):
            self._some.wait()
            self._ending.wait(GATHER_SECONDS)
            self._some.clear()
            while self._lines:
                self._write(
                    [self._lines.popleft() for _ in range(min(LINES_PER_WRITE, len(self._lines)))]
                )

    def _write(self, lines: list[logging.LogRecord | str]) -> None:
        texts = [
            self.format(line) if isinstance(line, logging.LogRecord) else line for line in lines
        ]
        if (dropped := self.dropped) > self._told:
            texts.append(
                self.format(
                    logging.LogRecord(
                        "mnemogate", logging.WARNING, "", 0, DROPPED, (dropped - self._told,), None
                    )
                )
            )
            self._told = dropped
        data = memoryview(("\n".join(texts) + "\n").encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):  # whoever read it is gone
            while data:
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:
                    time.sleep(GATHER_SECONDS)


def begin(form: Format, level: str, fd: int = 2) -> LogWriter:
    """Send every log of this process there, unless somebody who embeds it has said where logs go.

    level: of Mnemogate's own; what others log is shown from `warning` on.
    """
    sink = LogWriter(fd, JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(sink)
        root.setLevel(logging.WARNING)
        logging.getLogger("mnemogate").setLevel(level.upper())
    return sink
