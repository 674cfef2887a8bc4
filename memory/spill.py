"""Turns whose record the store refused after their answer had left: kept in an fsynced file, replayed at the next start."""
from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from memory.epoch import Epoch
from memory.history import Node
from memory.jobs.queue import Job
from memory.scope import Scope
from memory.stores.sql.owners import Owner
from memory.stores.sql.turns import Record


class Spill:
    """One file of JSON lines beside the database. path None: nowhere to spill (in-memory databases of tests)."""

    def __init__(self, path: Path | None, secret: bytes) -> None:
        self._path, self._secret = path, secret
        self._part = path.with_name(f".{path.name}.part") if path is not None else None
        self._writing = threading.Lock()

    async def keep(self, record: Record) -> None:
        """Appends the record and fsyncs. Raises OSError when that fails too."""
        if self._path is not None:
            await asyncio.to_thread(self._append, packed(record))

    def _append(self, data: dict[str, Any]) -> None:
        assert self._path is not None  # noqa: S101 - checked by the caller
        with self._writing:
            _write(self._path, os.O_APPEND, msgspec.json.encode(data) + b"\n")

    def load(self) -> list[Record]:
        """The records kept so far, oldest first; a torn last line is left out."""
        if self._path is None or not self._path.exists():
            return []
        return list(self._records(self._path.read_bytes().split(b"\n")))

    def _records(self, lines: Iterable[bytes]) -> Iterable[Record]:
        for line in lines:
            try:
                if (data := _decoded(line)) is not None:
                    yield unpacked(data, self._secret)
            except KeyError:
                continue

    def forget(self, tenant: str, user: str) -> None:
        """Takes an erased user's records out of the file."""
        self._drop(lambda data: data.get("scope", [])[:2] == [tenant, user])

    def forget_conversation(self, key: int) -> None:
        """Takes a deleted conversation's records out of the file. key: its row's."""
        self._drop(lambda data: data.get("conversation") == key)

    def _drop(self, which: Callable[[dict[str, Any]], bool]) -> None:
        """A record that is kept meanwhile stays, and so do the others' wherever this is interrupted."""
        if self._path is None or self._part is None:
            return
        with self._writing:
            if not self._path.exists():
                return
            kept = [line for line in self._path.read_bytes().split(b"\n") if (data := _decoded(line)) is not None and not which(data)]
            if not kept:
                self.clear()
                return
            _write(self._part, os.O_TRUNC, b"".join(line + b"\n" for line in kept))
            self._part.replace(self._path)

    def clear(self) -> None:
        for path in (self._path, self._part):
            if path is not None:
                path.unlink(missing_ok=True)


def _write(path: Path, how: int, data: bytes) -> None:
    """Writes and fsyncs. how: O_APPEND or O_TRUNC."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    with os.fdopen(fd, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _decoded(line: bytes) -> dict[str, Any] | None:
    """A record as it stands in the file; None for a torn one."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def packed(r: Record) -> dict[str, Any]:
    """The record as JSON data; the server's secret stays out of it."""
    scope = r.owner.scope
    epoch = None
    if r.epoch:
        epoch = {n: getattr(r.epoch, n) for n in Epoch.__slots__} | {"blocks": dict(r.epoch.blocks)}
    return {"scope": [scope.tenant, scope.user, scope.agent], "generation": r.owner.generation, "conversation": r.conversation,
            "nodes": [asdict(n) for n in r.nodes], "answers": r.answers, "resent": r.resent, "epoch": epoch, "explain": r.explain,
            "evicted": r.evicted, "prove": r.prove, "again": True, "jobs": [asdict(j) for j in r.jobs]}


def unpacked(data: dict[str, Any], secret: bytes) -> Record:
    def raw(value: str | None) -> bytes | None:
        return None if value is None else msgspec.convert(value, bytes)

    tenant, user, agent = data["scope"]
    nodes = [Node(**{**n, **{k: raw(n[k]) for k in ("digest", "chain", "asked", "trail")}}) for n in data["nodes"]]
    epoch = data["epoch"] and replace(Epoch(**data["epoch"]), cut=raw(data["epoch"]["cut"]), elide=raw(data["epoch"]["elide"]))
    return Record(
        owner=Owner(Scope(tenant, user, agent, secret), data["generation"]), conversation=data["conversation"], nodes=nodes, answers=data["answers"],
        resent=data["resent"], epoch=epoch, explain=tuple(data["explain"]) if data["explain"] else None,
        evicted=[(m, raw(c) or b"") for m, c in data["evicted"]], prove=data["prove"], again=data["again"],
        jobs=[Job(**{**j, "held": (0, 0)}) for j in data.get("jobs", ())])
