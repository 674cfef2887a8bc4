"""Chroma as the index of large scopes: one collection a scope and kind, always explicit vectors, a thread for its synchronous client.

SQL is the record and this can be rebuilt from it. Two processes on one embedded folder lose vectors silently, so a lock
file keeps it to one.
"""
from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from memory.errors import StoreUnavailable

T = TypeVar("T")
BATCH = 500


class ChromaIndex:
    """where: `chroma:embedded` or `chroma:http://host:port`. folder: the embedded one's home. Opens on first use."""

    def __init__(self, where: str, folder: Path) -> None:
        self._where, self._folder = where.removeprefix("chroma:"), folder
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="chroma")
        self._client: Any = None
        self._lock: int | None = None
        self._opening = asyncio.Lock()

    async def upsert(self, name: str, items: Sequence[tuple[int, list[float]]]) -> None:
        """Adds or replaces vectors by row key. Raises StoreUnavailable."""

        def work(client: Any) -> None:
            collection = client.get_or_create_collection(name, embedding_function=None, metadata={"hnsw:space": "cosine"})
            for i in range(0, len(items), BATCH):
                part = items[i : i + BATCH]
                collection.upsert(ids=[str(k) for k, _ in part], embeddings=[v for _, v in part])

        await self._run(work)

    async def nearest(self, name: str, vector: list[float], limit: int) -> dict[int, float]:
        """Row key to cosine similarity, of the `limit` nearest. Raises StoreUnavailable."""

        def work(client: Any) -> dict[int, float]:
            collection = client.get_or_create_collection(name, embedding_function=None, metadata={"hnsw:space": "cosine"})
            found = collection.query(query_embeddings=[vector], n_results=limit, include=["distances"])
            return {int(k): 1.0 - d for k, d in zip(found["ids"][0], found["distances"][0], strict=True)}

        return await self._run(work)

    async def forget(self, prefix: str, keys: Sequence[int] | None) -> None:
        """Forgets vectors by row key, None for all, in every collection whose name begins so; what is not there is no error. Raises
        StoreUnavailable."""

        def work(client: Any) -> None:
            for name in [c.name for c in client.list_collections() if c.name.startswith(prefix)]:
                if keys is None:
                    client.delete_collection(name)
                elif keys:
                    client.get_collection(name, embedding_function=None).delete(ids=[str(k) for k in keys])

        await self._run(work)

    async def close(self) -> None:
        """Lets the folder go."""
        self._threads.shutdown(wait=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _run(self, work: Callable[[Any], T]) -> T:
        loop = asyncio.get_running_loop()
        async with self._opening:
            if self._client is None:
                self._client = await loop.run_in_executor(self._threads, self._opened)
        try:
            return await loop.run_in_executor(self._threads, work, self._client)
        except Exception as e:
            raise StoreUnavailable(f"Chroma failed: {type(e).__name__}") from e

    def _opened(self) -> Any:
        try:
            import chromadb
            from chromadb.config import Settings
        except ImportError as e:
            raise StoreUnavailable("Chroma is not installed: run pip install '.[chroma]' in the folder of Mnemogate's source, or set storage.vectors = \"none\"") from e
        if self._where != "embedded":
            url = urlsplit(self._where)
            return chromadb.HttpClient(url.hostname or "localhost", url.port or 8000, ssl=url.scheme == "https", settings=Settings(anonymized_telemetry=False))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise StoreUnavailable(f"another process uses the embedded Chroma in {self._folder}: run one worker, or a Chroma server for a fleet") from e
        return chromadb.PersistentClient(str(self._folder), settings=Settings(anonymized_telemetry=False))

