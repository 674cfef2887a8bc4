"""Chroma in its own process, so that it cannot block the gateway.

Run by `memory.stores.chroma`, which talks to it over the standard streams in frames: a length in
four bytes and a MessagePack value, `[operation, arguments]` in one direction and `{"value": ...}`
or `{"error": ...}` in the other. It ends when its input ends, and by a system timer if a call takes
too long.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec

BATCH = 500
# Collections listed at once.
PAGE = 100
# A gateway that was just killed releases the folder by itself.
LOCK_SECONDS = 5.0
SPACE = {"hnsw:space": "cosine"}


class UnusableFrame(Exception):
    """Chroma cannot be opened; the message says what to do."""


def open_client(where: str, folder: Path) -> Any:
    """Return a client. where: `embedded` or a URL. Raises UnusableFrame."""
    try:
        import chromadb
        from chromadb.config import Settings
    except ImportError as e:
        raise UnusableFrame(
            "Chroma is not installed: run pip install '.[chroma]' in the folder of Mnemogate's "
            "source, or set "
            'storage.vectors = "none"'
        ) from e
    quiet = Settings(anonymized_telemetry=False)
    if where != "embedded":
        url = urlsplit(where)
        return chromadb.HttpClient(
            url.hostname or "localhost", url.port or 8000, ssl=url.scheme == "https", settings=quiet
        )
    folder.mkdir(parents=True, exist_ok=True)
    _lock_folder(folder)
    return chromadb.PersistentClient(str(folder), settings=quiet)


def _lock_folder(folder: Path) -> None:
    """Lock the folder, since two processes on one folder lose vectors silently.

    Raises UnusableFrame.
    """
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as e:
            if time.monotonic() > until:
                raise UnusableFrame(
                    f"another process uses the embedded Chroma in {folder}: run one worker, or "
                    "a Chroma server for a fleet"
                ) from e
            time.sleep(0.05)


def upsert(client: Any, name: str, items: list[tuple[int, list[float]]]) -> None:
    collection = client.get_or_create_collection(name, embedding_function=None, metadata=SPACE)
    for i in range(0, len(items), BATCH):
        part = items[i : i + BATCH]
        collection.upsert(ids=[str(k) for k, _ in part], embeddings=[v for _, v in part])


def nearest(client: Any, name: str, vector: list[float], limit: int) -> dict[int, float]:
    collection = client.get_or_create_collection(name, embedding_function=None, metadata=SPACE)
    found = collection.query(query_embeddings=[vector], n_results=limit, include=["distances"])
    return {int(k): 1.0 - d for k, d in zip(found["ids"][0], found["distances"][0], strict=True)}


def forget(client: Any, prefix: str, keys: list[int] | None) -> None:
    from chromadb.errors import NotFoundError

    for name in find_collections(client, prefix):
        # Another worker has deleted it meanwhile.
        with contextlib.suppress(NotFoundError):
            if keys is None:
                client.delete_collection(name)
            elif keys:
                found = client.get_collection(name, embedding_function=None)
                found.delete(ids=[str(k) for k in keys])


def find_collections(client: Any, prefix: str) -> list[str]:
    """Return the collections with this prefix.

    Their names could be computed from the scope, but not those of models used in earlier years. A
    server may cap its answer, so it is asked page by page.
    """
    found: set[str] = set()
    at = 0
    while page := client.list_collections(limit=PAGE, offset=at):
        found.update(c.name for c in page if c.name.startswith(prefix))
        at += len(page)
    return sorted(found)


OPERATIONS: dict[str, Callable[..., Any]] = {"upsert": upsert, "nearest": nearest, "forget": forget}


def serve(asked: BinaryIO, told: BinaryIO, work: Callable[[str, list[Any]], Any]) -> None:
    """Answer frame after frame until the input ends."""
    while len(head := asked.read(4)) == 4:
        name, arguments = msgspec.msgpack.decode(asked.read(int.from_bytes(head, "big")))
        try:
            answer = {"value": work(name, arguments)}
        except UnusableFrame as e:
            answer = {"error": str(e)}
        except Exception as e:
            # Whatever a library raises is sent to the parent.
            answer = {"error": f"Chroma failed: {type(e).__name__}"}
        frame = msgspec.msgpack.encode(answer)
        told.write(len(frame).to_bytes(4, "big") + frame)
        told.flush()


def main(where: str, folder: str, seconds: float) -> None:
    """Run the child. seconds: a call that takes longer ends the process."""
    told = os.fdopen(os.dup(1), "wb")
    # Output of libraries must not mix with frames.
    os.dup2(2, 1)
    clients: list[Any] = []

    def work(name: str, arguments: list[Any]) -> Any:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            if name == "open":
                clients.append(open_client(where, Path(folder)))
                return None
            return OPERATIONS[name](clients[0], *arguments)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    serve(sys.stdin.buffer, told, work)
    # Its threads may hang.
    os._exit(0)


if __name__ == "__main__":
    # Ctrl-C in a terminal: the gateway ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
