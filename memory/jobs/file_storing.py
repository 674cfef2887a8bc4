"""Stores what a reading child says of a file, piece by piece; nobody finds it yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from sqlalchemy import Connection

from memory.formats.documents.frames import (
    Frame,
    GramsFrame,
    HeadFrame,
    PassagesFrame,
    ReadPassage,
    SymbolsFrame,
)
from memory.formats.documents.reading import ChildDied
from memory.stores.sql.engine.batches import WriterShare, write_batches
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import file_grams, file_passages, file_removal, file_symbols, files
from memory.stores.sql.rows.file_passages import NewFilePassage, UploadPlace
from memory.stores.sql.rows.file_uploads import read_chunk
from memory.stores.sql.rows.files import ReadResult

# Passages of a piece.
TOGETHER = 20
GRAMS_TOGETHER = 500


class Superseded(Exception):
    """The file has another version by now, or is gone."""


class FileStoring:
    """What is stored of one upload."""

    def __init__(self, db: Database, place: UploadPlace) -> None:
        self._db = db
        self.place = place
        self._count = 0
        self._head: HeadFrame | None = None

    async def begin(self) -> None:
        """Remove what an earlier attempt left."""
        upload = file_removal.Upload(self.place.scope_id, self.place.key)

        def piece(conn: Connection, share: WriterShare) -> bool | None:
            is_done = file_removal.remove_read_rows(conn, share, upload, lambda _: None)
            if is_done:
                return None
            return True

        await write_batches(self._db, piece, self.place.scope_id)
        self._count = 0
        self._head = None

    async def size(self) -> int:
        row = await self._db.read(partial(files.find_upload, upload=self.place.key))
        if row is None:
            raise Superseded
        return int(row.bytes)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file."""
        position = 0
        while True:
            read_position = partial(read_chunk, upload=self.place.key, position=position)
            chunk = await self._db.read(read_position)
            if chunk is None:
                return
            yield chunk
            position += 1

    async def store(self, frames: AsyncIterator[Frame]) -> ReadResult:
        """Store what the child says. Raises Unreadable, ChildDied, Superseded."""
        async for frame in frames:
            if isinstance(frame, HeadFrame):
                self._head = frame
            elif isinstance(frame, PassagesFrame):
                await self._store_passages(frame.passages)
            elif isinstance(frame, SymbolsFrame):
                await self._write(partial(_add_symbols, place=self.place, frame=frame))
            elif isinstance(frame, GramsFrame):
                for i in range(0, len(frame.grams), GRAMS_TOGETHER):
                    some_grams = frame.grams[i : i + GRAMS_TOGETHER]
                    await self._write(partial(_add_grams, place=self.place, grams=some_grams))
        head = self._head
        if head is None:
            raise ChildDied("the reading ended early")
        return ReadResult(
            head.media_type,
            len(head.page_lines) or None,
            head.lines,
            head.characters,
            self._count,
            head.page_lines,
        )

    async def _store_passages(self, passages: list[ReadPassage]) -> None:
        for i in range(0, len(passages), TOGETHER):
            new_passages = [
                NewFilePassage(
                    self._count + j,
                    passage.page,
                    passage.line_start,
                    passage.line_end,
                    passage.content,
                    passage.named,
                    passage.words,
                )
                for j, passage in enumerate(passages[i : i + TOGETHER])
            ]
            await self._write(
                partial(file_passages.add_passages, place=self.place, new_passages=new_passages)
            )
            self._count += len(new_passages)

    async def _write(self, add: Callable[[Connection], None]) -> None:
        """Write a piece, while the file is still there. Raises Superseded."""

        def work(conn: Connection) -> bool:
            if files.find_upload(conn, self.place.key) is None:
                return False
            add(conn)
            return True

        filed_work = self._db.apart_from_turns(work)
        if not await self._db.write(filed_work, piece=True, lock=self.place.scope_id):
            raise Superseded


def _add_symbols(conn: Connection, place: UploadPlace, frame: SymbolsFrame) -> None:
    symbols = [
        {
            "name": symbol.name,
            "kind": symbol.kind[:32],
            "page": symbol.page,
            "line_start": symbol.line_start,
            "line_end": symbol.line_end,
            "content": symbol.content,
        }
        for symbol in frame.symbols
    ]
    file_symbols.add_symbols(conn, place.scope_id, place.key, symbols)


def _add_grams(conn: Connection, place: UploadPlace, grams: list[tuple[int, bytes]]) -> None:
    file_grams.add_grams(conn, place.scope_id, place.key, grams)
