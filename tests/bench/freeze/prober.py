"""`python -m tests.bench.freeze.prober PORT`: how long others wait, asked of a gateway again and
again from a process of its own.

Two things are asked in turn: `/health`, and a chat with memory of a user of its own, which another
upstream answers at once. A line on standard input begins anew, and the worst waits since the line
before are told as one line of JSON, in seconds.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

# Seconds.
APART = 0.01
TIMEOUT = 120.0
BODY = json.dumps(
    {"model": "probe", "user": "bob", "messages": [{"role": "user", "content": "hi"}]}
)
HEADERS = {"content-type": "application/json", "authorization": "Bearer k"}


class Waits:
    """The worst waits since they were last taken; one of a question under way counts as long as it
    has waited.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worst: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self.degraded = 0

    def begin(self, name: str) -> None:
        with self._lock:
            self._asked[name] = time.perf_counter()

    def overslept(self, seconds: float) -> None:
        """Note how much longer than asked a sleep lasted: so busy the machine is with others."""
        with self._lock:
            self._worst["machine"] = max(seconds, self._worst.get("machine", 0.0))

    def end(self, name: str, degraded: bool) -> None:
        with self._lock:
            took = time.perf_counter() - self._asked.pop(name)
            self._worst[name] = max(took, self._worst.get(name, 0.0))
            self.degraded += degraded

    def take(self) -> dict[str, float]:
        with self._lock:
            now, out = time.perf_counter(), {**self._worst}
            for name, begun in self._asked.items():
                out[name] = max(now - begun, out.get(name, 0.0))
            self._worst, self.degraded, degraded = {}, 0, self.degraded
            return {**out, "degraded": degraded}


def ask(port: int, waits: Waits, name: str, method: str, path: str, body: str | None) -> None:
    """Asks one thing for ever."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    while True:
        waits.begin(name)
        degraded = False
        try:
            connection.request(method, path, body, HEADERS)
            answer = connection.getresponse()
            answer.read()
            degraded = answer.getheader("x-memory-status") == "degraded"
        except OSError:
            connection.close()
        waits.end(name, degraded)
        slept = time.perf_counter()
        time.sleep(APART)
        waits.overslept(time.perf_counter() - slept - APART)


def main() -> None:
    port, waits = int(sys.argv[1]), Waits()
    for name, method, path, body in (
        ("health", "GET", "/health", None),
        ("chat", "POST", "/v1/chat/completions", BODY),
    ):
        threading.Thread(
            target=ask, args=(port, waits, name, method, path, body), daemon=True
        ).start()
    for _ in sys.stdin:
        print(json.dumps(waits.take()), flush=True)


if __name__ == "__main__":
    main()
