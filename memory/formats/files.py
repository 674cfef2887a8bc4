"""Opens the files that users import: a file, a vendor's archive, or a folder of those.

Reading is bounded: one item at a time, of at most 64 MiB and 2 million values. An archive that
unpacks to far more than its own size is refused.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from memory.export_format import has_many_values
from memory.formats import chatgpt, claude, letta, mem0, open_webui
from memory.formats.json_items import ITEM_BYTES, JsonItem, NotJson, split_items
from memory.formats.records import BrokenItem, Bundle, Reader

# Of one item.
VALUES = 2_000_000
# Bytes of an archive's files.
UNPACKED = 16 << 30
# Times its own size that a large file may unpack to; text makes some 20.
DENSE = 250
PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class BadSource(ValueError):
    """Nothing can be read from the file; the message names it, the reason and the next step."""


def _alone(value: Any) -> list[Any]:
    return [value]


@dataclass(frozen=True, slots=True)
class Format:
    """How a program's files are read.

    members: the files of an archive or folder that count. parts: the items within a decoded value.
    """

    read: Reader
    members: re.Pattern[str]
    hint: str
    parts: Callable[[Any], list[Any]] = _alone


FORMATS = {
    "chatgpt": Format(
        chatgpt.read,
        re.compile(r"conversations(?:-\d{1,6})?\.json"),
        "the archive that OpenAI mails, or the conversations.json in it",
    ),
    "claude": Format(
        claude.read,
        re.compile(r"(?:conversations(?:-\d{1,6})?|memories)\.json"),
        "the archive that Anthropic mails, or the conversations.json in it",
    ),
    "openwebui": Format(
        open_webui.read, re.compile(r".{1,200}\.json"), "Settings, Chats, Export chats (.json)"
    ),
    "letta": Format(letta.read, re.compile(r".{1,200}\.af"), "an agent file (.af)"),
    "mem0": Format(
        mem0.read,
        re.compile(r".{1,200}\.jsonl?"),
        "what get_all returns, as .json or .jsonl",
        mem0.parts,
    ),
}


@dataclass(frozen=True, slots=True)
class Broken:
    """An item that is left out. place: file, number and byte."""

    place: str
    reason: str


def read_source(path: Path, program: str) -> Iterator[Bundle | Broken]:
    """Yield the contents of a program's file, item by item.

    Args:
        path: a file, an archive or a folder.
        program: a key of FORMATS.

    Raises:
        BadSource: it cannot be read, or not to its end.
    """
    file_format = FORMATS[program]
    try:
        for name, open_member in _members(path, file_format):
            with open_member() as stream:
                for item in split_items(stream):
                    yield from _read_item(file_format, name, item)
    except NotJson as e:
        raise BadSource(f"{path}: {e}. Needed is {file_format.hint}.") from e
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as e:
        raise BadSource(f"{path} cannot be unpacked: {e}. Get the archive again.") from e
    except OSError as e:
        raise BadSource(f"{path} cannot be read: {e.strerror or e}.") from e


def _read_item(file_format: Format, name: str, item: JsonItem) -> Iterator[Bundle | Broken]:
    place = f"{name}, item {item.number} (byte {item.at})"
    try:
        parts = file_format.parts(_decode(item))
    except BrokenItem as e:
        yield Broken(place, str(e))
        return
    for part in parts:
        try:
            for content in file_format.read(part):
                yield Broken(place, str(content)) if isinstance(content, BrokenItem) else content
        except BrokenItem as e:
            yield Broken(place, str(e))


def _decode(item: JsonItem) -> Any:
    """Return the value of an item. Raises BrokenItem."""
    if not item.whole:
        raise BrokenItem("the file ends within it: it was cut short. Get it again and repeat this")
    if item.raw is None:
        raise BrokenItem(f"it is larger than {ITEM_BYTES >> 20} MiB")
    if has_many_values(item.raw):
        raise BrokenItem(f"it has more than {VALUES} values")
    try:
        return msgspec.json.decode(item.raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise BrokenItem(f"it is no valid JSON: {e}") from e


Opened = Callable[[], Any]


def _members(path: Path, file_format: Format) -> Iterator[tuple[str, Opened]]:
    """Yield the name of each file to read, and a function that opens it. Raises BadSource."""
    if path.is_dir():
        member_paths = sorted(p for p in path.iterdir() if file_format.members.fullmatch(p.name))
        _require(path, file_format, member_paths)
        for file in member_paths:
            yield file.name, partial(file.open, "rb")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            member_infos = _find_members(path, archive, file_format)
            _require(path, file_format, member_infos)
            for info in member_infos:
                yield info.filename, partial(archive.open, info)
    else:
        yield path.name, partial(path.open, "rb")


def _require(path: Path, file_format: Format, file_members: Sequence[object]) -> None:
    if not file_members:
        raise BadSource(f"{path} holds no file of this kind. Needed is {file_format.hint}.")


def _find_members(
    path: Path, archive: zipfile.ZipFile, file_format: Format
) -> list[zipfile.ZipInfo]:
    """Return the relevant files of an archive. Raises BadSource for an archive bomb."""
    file_members = [
        info
        for info in archive.infolist()
        if file_format.members.fullmatch(info.filename.rpartition("/")[2])
        and not info.filename.startswith("__MACOSX/")
    ]
    file_members.sort(key=lambda info: info.filename)
    for info in file_members:
        dense = info.file_size > ITEM_BYTES and info.file_size > DENSE * max(info.compress_size, 1)
        if dense or info.compress_type not in PLAIN:
            raise BadSource(
                f"{path}: {info.filename} unpacks to {info.file_size} bytes from "
                f"{info.compress_size}, which no export does. Unpack it yourself and give the file."
            )
    if (total := sum(info.file_size for info in file_members)) > UNPACKED:
        raise BadSource(
            f"{path} unpacks to {total} bytes; at most {UNPACKED} are read. Unpack it and give its "
            "files one by one."
        )
    return file_members
