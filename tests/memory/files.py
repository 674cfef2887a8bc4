"""What tests of files share: a PDF made by hand, and a memory whose files are read at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.formats.documents.reading import FileReader
from memory.jobs.file_cleaning import register_cleaning
from memory.jobs.file_reading import FileReading
from memory.jobs.worker import Worker
from memory.management.files import IncomingFile, StoredFile, receive_file
from memory.scope import Scope
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.file_uploads import FileLimits
from memory.stores.sql.rows.management_context import ManagementActor

SECRET = b"\x51" * 32


def make_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF with these lines on its pages."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, lines in enumerate(pages):
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 "
            f"R >> >> /Contents {5 + 2 * i} 0 R >>"
        )
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        stream = f"BT /F1 12 Tf 72 720 Td 14 TL {shown} ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    for place in places:
        out += f"{place:010d} 00000 n \n".encode()
    out += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{table}\n".encode()
    return bytes(out + b"%%EOF")


async def pieces_of(data: bytes, size: int = 70_000) -> Any:
    for i in range(0, len(data), size):
        yield data[i : i + size]


class Library:
    """The files of one tenant."""

    def __init__(self, memory: Memory, reader: FileReader | None = None) -> None:
        self.memory = memory
        self.worker = Worker(memory.db)
        self.limits = FileLimits()
        reading = FileReading(memory.db, lambda: memory.policy.blocks, reader)
        self.worker.register_long(reading.kind, reading.run)
        register_cleaning(self.worker, memory.db)

    def scope(self, user: str = "ada") -> Scope:
        return self.memory.scope("default", user, "default")

    def actor(self, user: str = "ada") -> ManagementActor:
        return ManagementActor(self.scope(user), self.memory.policy.blocks, EditSource("api"))

    async def put(self, name: str, data: bytes, user: str = "ada") -> tuple[StoredFile, bool]:
        incoming = IncomingFile(name, len(data), pieces_of(data))
        return await receive_file(self.memory, self.actor(user), incoming, self.limits)

    async def add(
        self, name: str, data: bytes, user: str = "ada", scope: Scope | None = None
    ) -> StoredFile:
        """Upload a file of a user, or of any other memory, and read it."""
        actor = self.actor(user)
        if scope is not None:
            actor = ManagementActor(scope, self.memory.policy.blocks, EditSource("api"))
        incoming = IncomingFile(name, len(data), pieces_of(data))
        stored, _ = await receive_file(self.memory, actor, incoming, self.limits)
        await self.worker.drain()
        return stored


def open_memory(db: Database) -> Memory:
    return Memory(db, Policy(), SECRET)
