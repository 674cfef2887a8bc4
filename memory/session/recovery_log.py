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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from memory.context.epoch import Epoch
from memory.conversation.matching import TurnNode
from memory.core.screen import Screen
from memory.scope import Scope
from memory.session.line_file import (
    LINE_END,
    FileLine,
    append_lines,
    digest_of,
    ended_lines,
    find_lines,
    join_parts,
    rewrite_lines,
)
from memory.session.record_lines import SEPARATOR, decode_line, encode_line
from memory.stores.sql.rows.jobs import QueuedJob
from memory.stores.sql.rows.message_pieces import contents_of, note_speaker
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns.turn_rows import TurnRecord

log = logging.getLogger("mnemogate")
# Of records in memory alone. From the first on no turn is begun; turns that had begun, whose
# clients were told `ok`, are kept up to the second.
HELD_BYTES = 64 << 20
HELD_BYTES_AT_MOST = 128 << 20
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
    "said_by",
}


class RecoveryLog:
    """A file of lines beside the database, and `spill.bad` for unreadable ones.

    path: None for no file (in-memory databases of tests). screen: tells what is left out of the
    text of messages whose bodies keep their secrets.
    """

    def __init__(
        self, path: Path | None, secret: bytes, screen: Callable[[], Screen] = Screen
    ) -> None:
        self._path = path
        self._secret = secret
        self._screen = screen
        self._bad_path = path.with_name("spill.bad") if path is not None else None
        self._writing = threading.Lock()
        # Digests of the lines that `clear` removes.
        self._loaded_digests: set[bytes] = set()
        # Lines that the file still has although they are stored, or set aside: digests, and the
        # size of the file where it could not be rid of them.
        self._stored_digests: set[bytes] = set()
        self._stored_size = 0
        # Lines that the file did not take, oldest first.
        self._held_lines: list[bytes] = []
        self.held_bytes = 0
        # Records that found no place.
        self.lost_records = 0
        self._lock: int | None = None

    def claim(self) -> None:
        """Take a file that no other worker of this folder has, and what dead ones left."""
        if self._path is None or self._lock is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in itertools.count():
            path = self._path.with_name(f"spill.{number}.ndjson" if number else "spill.ndjson")
            if (lock := _try_lock(path)) is not None:
                self._path = path
                self._lock = lock
                break
        for orphan_path in sorted(path.parent.glob("spill*.ndjson")):
            if orphan_path != path and (orphan := _try_lock(orphan_path)) is not None:
                with self._writing, orphan_path.open("rb", buffering=0) as file:
                    if lines := list(find_lines(file)):
                        append_lines(path, ended_lines(lines))
                orphan_path.unlink(missing_ok=True)
                os.close(orphan)

    def release(self) -> None:
        """Let another worker have the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def folder(self) -> Path | None:
        """The data folder; None if there is none."""
        if self._path is not None:
            return self._path.parent
        return None

    @property
    def held_records(self) -> int:
        """How many records are in memory alone."""
        return len(self._held_lines)

    @property
    def is_full(self) -> bool:
        """Whether no more turns should begin, since theirs might find no place."""
        return self.held_bytes >= HELD_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether no turn waits to be stored."""
        if self._held_lines or self._path is None:
            return not self._held_lines
        return _size(self._path) == self._stored_size

    async def keep(self, record: TurnRecord) -> bool:
        """Append a record with fsync; tell whether memory alone has it, since that failed.

        Raises OSError if there is no room in memory either.
        """
        if self._path is None:
            return False
        return await asyncio.to_thread(self._keep, record)

    def _keep(self, record: TurnRecord) -> bool:
        data = pack_record(record)
        with self._writing:
            try:
                self._append_held(chain(encode_line(data), [LINE_END]))
            except OSError as e:
                self._hold(join_parts(encode_line(data)), e)
                return True
        return False

    def _append_held(self, *parts: Iterable[bytes]) -> None:
        """Append what is held, and then these parts of lines. Raises OSError."""
        assert self._path is not None  # noqa: S101 - checked by the callers
        held_parts = (part for line in self._held_lines for part in (line, LINE_END))
        append_lines(self._path, chain(held_parts, *parts))
        self._held_lines = []
        self.held_bytes = 0

    def _hold(self, line: bytes, error: OSError) -> None:
        """Keep a line in memory. Raises the error if there is no room."""
        if self.held_bytes + len(line) > HELD_BYTES_AT_MOST:
            self.lost_records += 1
            raise error
        if not self._held_lines:
            log.error(
                "%s cannot be written (%s): turns that the store does not take stay in memory, at "
                "most %d MiB, until it does. Make room, or make the folder writable",
                self._path,
                error.strerror,
                HELD_BYTES >> 20,
            )
        self._held_lines.append(line)
        self.held_bytes += len(line)

    def flush(self) -> None:
        """Write what is held to the file, before the process ends. Raises OSError."""
        with self._writing:
            if self._held_lines:
                self._append_held()

    def load(self) -> Iterator[TurnRecord]:
        """Yield the records, oldest first, each read when it is asked for.

        An unreadable line, torn or of another version, is set aside and logged.
        """
        if self._path is None:
            return
        with contextlib.ExitStack() as files:
            with self._writing:
                self._loaded_digests = set()
                lines = self._unstored_lines(files)
            for line in lines:
                if (record := self._read(line)) is not None:
                    self._loaded_digests.add(line.digest)
                    yield record
                    # Before the next one is read: it may be as large.
                    del record

    def _read(self, line: FileLine) -> TurnRecord | None:
        """Return the record of a line; None for an unreadable one, which is set aside."""
        try:
            return unpack_record(decode_line(line.split(SEPARATOR)), self._secret, self._screen())
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
                self._bad_path,
            )
            if self._set_line_aside(ended_lines([line])):
                self._stored_digests.add(line.digest)
            return None

    def _unstored_lines(self, files: contextlib.ExitStack) -> list[FileLine]:
        """Return all lines but those that are stored, those of the file first.

        files: closes what they are read from.
        """
        assert self._path is not None  # noqa: S101 - checked by the caller
        sources: list[BinaryIO] = [BytesIO(line) for line in self._held_lines]
        with contextlib.suppress(FileNotFoundError):
            sources.insert(0, files.enter_context(self._path.open("rb", buffering=0)))
        lines = chain.from_iterable(map(find_lines, sources))
        return [line for line in lines if line.digest not in self._stored_digests]

    def _set_line_aside(self, parts: Iterable[bytes]) -> bool:
        """Append a line, given in parts, to `spill.bad`; tell whether that could be written."""
        assert self._bad_path is not None  # noqa: S101 - of every log that has a file
        try:
            with self._writing:
                append_lines(self._bad_path, parts)
        except OSError as e:
            log.warning("%s cannot be written (%s)", self._bad_path, e.strerror)
            return False
        return True

    def set_aside(self, record: TurnRecord) -> None:
        """Move a record that the store will never accept to `spill.bad`.

        Raises OSError, and then it stays where it is.
        """
        if self._bad_path is not None:
            with self._writing:
                append_lines(self._bad_path, chain(encode_line(pack_record(record)), [LINE_END]))

    def forget(self, tenant: str, user: str) -> None:
        """Remove an erased user's records from the files, and those that may be theirs."""
        name = msgspec.json.encode(user)

        def is_theirs(line: FileLine) -> bool:
            data = _decode_beginning(line)
            scope = None
            if data is not None:
                scope = data.get("scope")
            if data is not None and isinstance(scope, list) and len(scope) > 1:
                return scope[0] == tenant and user in (scope[1], data.get("said_by"))
            return any(name in part for part in line.split(SEPARATOR))

        self._drop(is_theirs)

    def forget_conversation(self, key: int) -> None:
        """Remove a deleted conversation's records from the files. key: of its row."""

        def is_of_it(line: FileLine) -> bool:
            data = _decode_beginning(line)
            return data is not None and data.get("conversation") == key

        self._drop(is_of_it)

    def _drop(self, is_dropped: Callable[[FileLine], bool]) -> None:
        """Remove records; the others survive an interruption at any point."""
        with self._writing:
            held_lines = [line for text in self._held_lines for line in find_lines(BytesIO(text))]
            self._let_go({line.digest for line in held_lines if is_dropped(line)})
            for path in (self._path, self._bad_path):
                if path is not None and path.exists():
                    rewrite_lines(path, lambda line: not is_dropped(line))

    def clear(self) -> None:
        """Remove the records that were loaded; others may have come meanwhile."""
        if self._path is None:
            return
        with self._writing:
            self._let_go(self._loaded_digests)
            removed_digests = self._stored_digests | self._loaded_digests
            try:
                rewrite_lines(self._path, lambda line: line.digest not in removed_digests)
                self._stored_digests = set()
                self._stored_size = 0
            except OSError:
                # They stay in the file, and would be stored again and again.
                self._stored_digests = removed_digests
                self._stored_size = _size(self._path)
            self._loaded_digests = set()

    def _let_go(self, lines: set[bytes]) -> None:
        """Remove lines from those that are held. lines: their digests."""
        if lines and self._held_lines:
            self._held_lines = [line for line in self._held_lines if digest_of(line) not in lines]
            self.held_bytes = sum(map(len, self._held_lines))
            if not self._held_lines:
                log.warning("the turns that waited in memory are stored")


def _try_lock(path: Path) -> int | None:
    """Lock a worker's file by one beside it; None if a living worker has it."""
    fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        # A system without such locks.
        return fd
    except OSError:
        os.close(fd)
        return None
    return fd


def _size(path: Path) -> int:
    """Return a file's size; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _decode_beginning(line: FileLine) -> dict[str, Any] | None:
    """Decode a record without its long strings; None for a torn one."""
    try:
        return msgspec.json.decode(next(line.split(SEPARATOR)), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        return None


def pack_record(record: TurnRecord) -> dict[str, Any]:
    """Return the record as JSON data, without the server's secret."""
    scope = record.owner.scope
    epoch = None
    if record.epoch:
        epoch = {n: getattr(record.epoch, n) for n in Epoch.__slots__} | {
            "blocks": dict(record.epoch.blocks)
        }
    return {
        "scope": [scope.tenant, scope.user, scope.agent],
        "generation": record.owner.generation,
        "conversation": record.conversation,
        "nodes": [msgspec.structs.asdict(n) for n in record.nodes],
        "answers": record.answers,
        "resent": record.resent,
        "epoch": epoch,
        "explain": record.explain,
        "evicted": record.evicted,
        "prove": record.prove,
        "again": True,
        "jobs": [asdict(j) for j in record.jobs],
        "beside": dict(record.beside),
        "holder": record.holder,
        "kept": record.kept,
        "seen_head": record.seen_head,
        "unread": record.unread,
        "said_by": record.said_by,
    }


def unpack_record(data: dict[str, Any], secret: bytes, screen: Screen) -> TurnRecord:
    """Return a record from `pack_record`'s data. Raises various errors for other data."""

    def raw(value: str | None) -> bytes | None:
        return None if value is None else msgspec.convert(value, bytes)

    if unknown_members := data.keys() - MEMBERS:
        raise ValueError(
            f"members that this version does not know: {', '.join(sorted(unknown_members))}"
        )
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
        said_by=data.get("said_by"),
        contents=_contents(data, nodes, screen),
    )


def _contents(
    data: dict[str, Any], nodes: Sequence[TurnNode], screen: Screen
) -> list[list[dict[str, Any]]]:
    """Return what the rows of a record's answers say."""
    answers = zip(data["answers"], nodes, strict=True)
    keeps = data.get("kept", False)
    contents = [
        list(contents_of([(a, n.digest)], sliced=True, screen=screen, keeps_secrets=keeps))
        for a, n in answers
    ]
    if user := data.get("said_by"):
        for rows in contents:
            note_speaker(user, rows)
    return contents
