"""The objects of files in the management API."""

from __future__ import annotations

import msgspec

from memory import FileHit, FileText, FileVersion, StoredFile, iso


class UserFile(msgspec.Struct):
    """status: received, reading, ready or failed; reason: why it failed, else empty.

    pages: null where the file has none. passages: how many pieces a search looks at.
    """

    id: str
    name: str
    type: str
    bytes: int
    sha256: str
    status: str
    reason: str
    pages: int | None
    lines: int
    characters: int
    passages: int
    version: int
    created_at: str
    updated_at: str
    object: str = "file"


class UserFileVersion(msgspec.Struct):
    """is_kept: its bytes are still there."""

    version: int
    bytes: int
    sha256: str
    actor: str
    is_kept: bool
    created_at: str
    object: str = "file.version"


class UserFileHit(msgspec.Struct):
    """page is null where the file has none. symbol, kind: of a definition, else empty."""

    file: str
    name: str
    page: int | None
    line_start: int
    line_end: int
    content: str
    score: float
    symbol: str = ""
    kind: str = ""
    object: str = "file.hit"


class UserFileText(msgspec.Struct):
    """Lines of a file. page: of the first one. lines: how many the file has."""

    id: str
    name: str
    page: int | None
    pages: int | None
    line_start: int
    line_end: int
    lines: int
    text: str
    object: str = "file.text"


def describe_file(stored_file: StoredFile) -> UserFile:
    return UserFile(
        stored_file.id,
        stored_file.name,
        stored_file.type,
        stored_file.bytes,
        stored_file.sha256,
        stored_file.status,
        stored_file.reason,
        stored_file.pages,
        stored_file.lines,
        stored_file.characters,
        stored_file.passages,
        stored_file.version,
        iso(stored_file.created_at),
        iso(stored_file.updated_at),
    )


def describe_version(version: FileVersion) -> UserFileVersion:
    return UserFileVersion(
        version.version,
        version.bytes,
        version.sha256,
        version.actor,
        version.is_kept,
        iso(version.created_at),
    )


def describe_hit(hit: FileHit) -> UserFileHit:
    return UserFileHit(
        hit.file,
        hit.name,
        hit.page,
        hit.line_start,
        hit.line_end,
        hit.content,
        hit.score,
        hit.symbol,
        hit.kind,
    )


def describe_text(text: FileText) -> UserFileText:
    numbers = [number for number, _ in text.lines]
    return UserFileText(
        text.row.public_id,
        text.row.name,
        text.page,
        text.row.pages,
        numbers[0],
        numbers[-1],
        text.row.lines,
        "\n".join(line for _, line in text.lines),
    )
