"""The recovery log: records of turns that the store refused after the answer was sent.

They are kept in a file with fsync, and replayed as soon as the store is back, or at the next start.
What the file does not take either (a full disk, a folder that became read-only) stays in memory, in
order, until the store or the file takes it. Each worker of a data folder has a file of its own,
which it locks, and takes over those of workers that have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from memory.context.epoch import Epoch
from memory.conversation.matching import TurnNode
from memory.conversation.messages import Json
from memory.conversation.thoughts import spoken_text
from memory.scope import Scope
from memory.stores.sql.jobs import QueuedJob
from memory.stores.sql.message_pieces import contents_of
from memory.stores.sql.scopes import ScopeOwner
from memory.stores.sql.turn_rows import TurnRecord

log = logging.getLogger("mnemogate")
# Of records in memory alone. From the first on no turn is begun; turns that had begun, whose
# clients were told `ok`, are kept up to the second.
HELD_BYTES, HELD_BYTES_AT_MOST = 64 << 20, 128 << 20
MEMBERS = {
    "scope",
    "generation",
    "conversation",
    "nodes",
    "answers",
    "resent",
    "epoch",
    "explain",
    "evicted",
    "prove",
    "again",
    "jobs",
    "beside",
    "holder",
    "kept",
    "seen_head",
    "unread",
    "texts",
}


class RecoveryLog:
    """A file of JSON lines beside the database, and `spill.bad` for unreadable ones.

    path: None for no file (in-memory databases of tests).
    """

    def __init__(self, path: Path | None, secret: bytes) -> None:
        self._path, self._secret = path, secret
        self._bad = path.with_name("spill.bad") if path is not None else None
        self._writing = threading.Lock()
        self._loaded: set[bytes] = set()  # what `clear` removes
        # Lines that the file could not be rid of once they were stored: digests, and its size then.
        self._stored: set[bytes] = set()
        self._stored_size = 0
        self._held: list[bytes] = []  # lines that the file did not take, oldest first
        self.held_bytes = 0
        self.lost = 0  # records that found no place
        self._lock: int | None = None

    def claim(self) -> None:
        """Take a file that no other worker of this folder has, and what dead ones left."""
        if self._path is None or self._lock is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in itertools.count():
            path = self._path.with_name(f"spill.{number}.ndjson" if number else "spill.ndjson")
            if (lock := _try_lock(path)) is not None:
                self._path, self._lock = path, lock
                break
        for other in sorted(path.parent.glob("spill*.ndjson")):
            if other != path and (orphan := _try_lock(other)) is not None:
                if lines := _lines(other):
                    with self._writing:
                        _append(path, lines)
                other.unlink(missing_ok=True)
                os.close(orphan)

    def release(self) -> None:
        """Let another worker have the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def folder(self) -> Path | None:
        """The data folder; None if there is none."""
        return self._path.parent if self._path is not None else None

    @property
    def held_records(self) -> int:
        """How many records are in memory alone."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether no more turns should begin, since theirs might find no place."""
        return self.held_bytes >= HELD_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether no turn waits to be stored."""
        if self._held or self._path is None:
            return not self._held
        return _size(self._path) == self._stored_size

    async def keep(self, record: TurnRecord) -> bool:
        """Append a record with fsync; tell whether memory alone has it, since that failed.

        Raises OSError if there is no room in memory either.
        """
        if self._path is None:
            return False
        return await asyncio.to_thread(self._keep, record)

    def _keep(self, record: TurnRecord) -> bool:
        line = msgspec.json.encode(pack_record(record))
        with self._writing:
            try:
                self._append_held(line)
            except OSError as e:
                self._hold(line, e)
                return True
        return False

    def _append_held(self, *lines: bytes) -> None:
        """Append what is held, and then these lines. Raises OSError."""
        assert self._path is not None  # noqa: S101 - checked by the callers
        _append(self._path, [*self._held, *lines])
        self._held, self.held_bytes = [], 0

    def _hold(self, line: bytes, error: OSError) -> None:
        """Keep a line in memory. Raises the error if there is no room."""
        if self.held_bytes + len(line) > HELD_BYTES_AT_MOST:
            self.lost += 1
            raise error
        if not self._held:
            log.error(
                "%s cannot be written (%s): turns that the store does not take stay in memory, at "
                "most %d MiB, until it does. Make room, or make the folder writable",
                self._path,
                error.strerror,
                HELD_BYTES >> 20,
            )
        self._held.append(line)
        self.held_bytes += len(line)

    def flush(self) -> None:
        """Write what is held to the file, before the process ends. Raises OSError."""
        with self._writing:
            if self._held:
                self._append_held()

    def load(self) -> list[TurnRecord]:
        """Return the records, oldest first.

        An unreadable line, torn or of another version, is set aside and logged.
        """
        if self._path is None or self._bad is None:
            return []
        with self._writing:
            found: list[TurnRecord] = []
            good, bad = [], []
            for line in self._unstored():
                try:
                    found.append(
                        unpack_record(msgspec.json.decode(line, type=dict[str, Any]), self._secret)
                    )
                    good.append(line)
                except (
                    msgspec.MsgspecError,
                    UnicodeError,
                    LookupError,
                    TypeError,
                    ValueError,
                    AttributeError,
                ) as e:
                    log.error(  # noqa: TRY400 - without its content, which is a user's
                        "a line of %s cannot be replayed (%s): it is set aside in %s",
                        self._path,
                        type(e).__name__,
                        self._bad,
                    )
                    bad.append(line)
            self._loaded = set(good)
            if bad:
                self._set_lines_aside(bad, good)
        return found

    def _unstored(self) -> list[bytes]:
        """Return all lines but those that are stored, those of the file first."""
        assert self._path is not None  # noqa: S101 - checked by the callers
        lines = _lines(self._path)
        if self._stored:
            lines = [line for line in lines if _digest(line) not in self._stored]
        return [*lines, *self._held]

    def _set_lines_aside(self, bad: list[bytes], good: list[bytes]) -> None:
        """Move lines to `spill.bad`; they stay where there is no place for it."""
        assert self._path is not None  # noqa: S101 - checked by the caller
        assert self._bad is not None  # noqa: S101 - checked by the caller
        try:
            _append(self._bad, bad)
            _rewrite(self._path, [line for line in good if line not in self._held])
        except OSError as e:
            log.warning("%s cannot be written (%s)", self._bad, e.strerror)

    def set_aside(self, record: TurnRecord) -> None:
        """Move a record that the store will never accept to `spill.bad`."""
        if self._bad is not None:
            with self._writing:
                _append(self._bad, [msgspec.json.encode(pack_record(record))])

    def forget(self, tenant: str, user: str) -> None:
        """Remove an erased user's records from the files, and those that may be theirs."""
        name = msgspec.json.encode(user)

        def theirs(line: bytes, data: dict[str, Any] | None) -> bool:
            scope = data.get("scope") if data is not None else None
            return scope[:2] == [tenant, user] if isinstance(scope, list) else name in line

        self._drop(theirs)

    def forget_conversation(self, key: int) -> None:
        """Remove a deleted conversation's records from the files. key: of its row."""
        self._drop(lambda line, data: data is not None and data.get("conversation") == key)

    def _drop(self, which: Callable[[bytes, dict[str, Any] | None], bool]) -> None:
        """Remove records; the others survive an interruption at any point."""
        with self._writing:
            self._let_go({line for line in self._held if which(line, _decode(line))})
            for path in (self._path, self._bad):
                if path is not None and path.exists():
                    _rewrite(
                        path, [line for line in _lines(path) if not which(line, _decode(line))]
                    )

    def clear(self) -> None:
        """Remove the records that were loaded; others may have come meanwhile."""
        if self._path is None:
            return
        with self._writing:
            self._let_go(self._loaded)
            left = [line for line in self._unstored() if line not in self._loaded]
            try:
                _rewrite(self._path, [line for line in left if line not in self._held])
                self._stored.clear()
                self._stored_size = 0
            except OSError:  # they stay in the file, and would be stored again and again
                self._stored |= {_digest(line) for line in self._loaded}
                self._stored_size = _size(self._path)
            self._loaded = set()

    def _let_go(self, lines: set[bytes]) -> None:
        """Remove lines from those that are held."""
        if lines and self._held:
            self._held = [line for line in self._held if line not in lines]
            self.held_bytes = sum(map(len, self._held))
            if not self._held:
                log.warning("the turns that waited in memory are stored")


def _try_lock(path: Path) -> int | None:
    """Lock a worker's file by one beside it; None if a living worker has it."""
    fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # a system without such locks
        return fd
    except OSError:
        os.close(fd)
        return None
    return fd


def _lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line] if path.exists() else []


def _append(path: Path, lines: Sequence[bytes]) -> None:
    """Append lines with fsync: all of them, or none if that fails."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        try:
            _write(fd, [b"\n"] * torn + [part for line in lines for part in (line, b"\n")])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)  # half a line would damage the next one too
            raise
    finally:
        os.close(fd)


def _rewrite(path: Path, lines: Sequence[bytes]) -> None:
    """Replace the file's content by these lines; without lines, remove the file."""
    part = path.with_name(f".{path.name}.part")
    if lines:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(fd, [part for line in lines for part in (line, b"\n")])
        finally:
            os.close(fd)
        part.replace(path)
        return
    path.unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _write(fd: int, parts: Sequence[bytes]) -> None:
    """Write all of it, a large line uncopied, and fsyncs. Raises OSError."""
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(fd, left) :]
    os.fsync(fd)


def _size(path: Path) -> int:
    """Return a file's size; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


def _decode(line: bytes) -> dict[str, Any] | None:
    """Decode a record of the file; None for a torn one."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        return None


def pack_record(r: TurnRecord) -> dict[str, Any]:
    """Return the record as JSON data, without the server's secret."""
    scope = r.owner.scope
    epoch = None
    if r.epoch:
        epoch = {n: getattr(r.epoch, n) for n in Epoch.__slots__} | {"blocks": dict(r.epoch.blocks)}
    return {
        "scope": [scope.tenant, scope.user, scope.agent],
        "generation": r.owner.generation,
        "conversation": r.conversation,
        "nodes": [msgspec.structs.asdict(n) for n in r.nodes],
        "answers": r.answers,
        "resent": r.resent,
        "epoch": epoch,
        "explain": r.explain,
        "evicted": r.evicted,
        "prove": r.prove,
        "again": True,
        "jobs": [asdict(j) for j in r.jobs],
        "beside": dict(r.beside),
        "holder": r.holder,
        "kept": r.kept,
        "seen_head": r.seen_head,
        "unread": r.unread,
        **({"texts": texts} if (texts := _masked_texts(r)) else {}),
    }


def _masked_texts(r: TurnRecord) -> list[str | None]:
    """Return what is indexed of each answer, where that is less than it says; else None.

    A history that is kept here needs the answer with its secrets; nothing else may have them.
    """
    if not (r.kept and r.contents):
        return []
    texts: list[str | None] = []
    for answer, contents in zip(r.answers, r.contents, strict=True):
        text = contents[0]["content"] if contents else None
        texts.append(None if text == spoken_text(answer) else text)
    return texts if any(text is not None for text in texts) else []


def _contents_of(
    nodes: Sequence[TurnNode], answers: Sequence[Json], texts: Sequence[str | None]
) -> list[list[Json]] | None:
    """Return what the rows of answers say, with these texts; None where all say what they said."""
    if not texts:
        return None
    contents = [
        list(contents_of([(answer, node.digest)]))
        for answer, node in zip(answers, nodes, strict=True)
    ]
    for answer, rows, text in zip(answers, contents, texts, strict=True):
        for row in rows if text is not None else ():
            row["content"], row["body"] = text, msgspec.json.encode(answer).decode()
    return contents


def unpack_record(data: dict[str, Any], secret: bytes) -> TurnRecord:
    """Return a record from `pack_record`'s data. Raises various errors for other data."""

    def raw(value: str | None) -> bytes | None:
        return None if value is None else msgspec.convert(value, bytes)

    if unknown := data.keys() - MEMBERS:
        raise ValueError(f"members that this version does not know: {', '.join(sorted(unknown))}")
    tenant, user, agent = data["scope"]
    nodes = [
        TurnNode(**{**n, **{k: raw(n[k]) for k in ("digest", "chain", "asked", "trail")}})
        for n in data["nodes"]
    ]
    epoch = data["epoch"] and replace(
        Epoch(**data["epoch"]), cut=raw(data["epoch"]["cut"]), elide=raw(data["epoch"]["elide"])
    )
    scope = Scope(tenant, user, agent, secret)
    return TurnRecord(
        owner=ScopeOwner(scope, data["generation"]),
        conversation=data["conversation"],
        nodes=nodes,
        answers=data["answers"],
        resent=data["resent"],
        epoch=epoch,
        explain=tuple(data["explain"]) if data["explain"] else None,
        evicted=[(m, raw(c) or b"") for m, c in data["evicted"]],
        prove=data["prove"],
        again=data["again"],
        jobs=[QueuedJob(**{**j, "held": (0, 0)}) for j in data.get("jobs", ())],
        beside=data.get("beside", {}),
        holder=data.get("holder"),
        key=scope.key,
        kept=data.get("kept", False),
        seen_head=data.get("seen_head"),
        unread=data.get("unread", False),
        contents=_contents_of(nodes, data["answers"], data.get("texts", ())),
    )
