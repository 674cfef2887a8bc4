"""Turns whose record the store refused after their answer had left: kept in an fsynced file, replayed at the next start."""
from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
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

    async def keep(self, record: Record) -> None:
        """Appends the record and fsyncs. Raises OSError when that fails too."""
        if self._path is not None:
            await asyncio.to_thread(self._append, packed(record))

    def _append(self, data: dict[str, Any]) -> None:
        assert self._path is not None  # noqa: S101 - checked by the caller
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(fd, "ab") as file:
            file.write(msgspec.json.encode(data) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def load(self) -> list[Record]:
        """The records kept so far, oldest first; a torn last line is left out."""
        if self._path is None or not self._path.exists():
            return []
        return list(self._records(self._path.read_bytes().split(b"\n")))

    def _records(self, lines: Iterable[bytes]) -> Iterable[Record]:
        for line in lines:
            try:
                yield unpacked(msgspec.json.decode(line), self._secret)
            except (msgspec.DecodeError, KeyError):
                continue

    def forget(self, tenant: str, user: str) -> None:
        """Takes an erased user's records out of the file."""
        if self._path is None or not self._path.exists():
            return
        kept = [packed(r) for r in self.load() if (r.owner.scope.tenant, r.owner.scope.user) != (tenant, user)]
        self._path.unlink()
        for data in kept:
            self._append(data)

    def clear(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


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
