"""Exact tokenizers from verified vocabulary files on disk.

Nothing here downloads; `mnemogate fetch tokenizers` does. Files have tiktoken's cache names (the
SHA-1 of their URL), so that one folder serves both. URL, digest and pattern of a family come from
tiktoken.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import TokenCounter

FAMILIES = ("o200k_base", "cl100k_base")
Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Published:
    """Where a vocabulary is published, and the SHA-256 of its bytes."""

    family: str
    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name in tiktoken's cache."""
        return hashlib.sha1(self.url.encode(), usedforsecurity=False).hexdigest()

    def fits(self, data: bytes) -> bool:
        return hashlib.sha256(data).hexdigest() == self.sha256


def folder(data: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the files: tiktoken's cache, if set, else `tokenizers` in `data`."""
    if cache_folder := env.get("TIKTOKEN_CACHE_DIR"):
        return Path(cache_folder)
    return data / "tokenizers"


def published_file(family: str) -> Published:
    """Return where a family is published. Raises KeyError for an unknown family."""
    files: list[Published] = []

    def note(url: str, expected_hash: str) -> dict[bytes, int]:
        files.append(Published(family, url, expected_hash))
        return {}

    _build_encoding(family, note)
    return files[0]


def read_verified(family: str, folder: Path) -> bytes | None:
    """Return the vocabulary's bytes if the file exists and has the published digest."""
    published = published_file(family)
    try:
        data = (folder / published.file_name).read_bytes()
    except OSError:
        return None
    if published.fits(data):
        return data
    return None


def load(family: str, folder: Path) -> Encode | None:
    """Return the tokenizer of a family; None without a verified file.

    Special tokens are encoded as ordinary text. Takes about a second.
    """
    if family not in FAMILIES or (data := read_verified(family, folder)) is None:
        return None
    import tiktoken

    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in data.splitlines() if line)
    }
    encoding = tiktoken.Encoding(**_build_encoding(family, lambda url, expected_hash: ranks))
    return encoding.encode_ordinary


class Vocabularies:
    """Loads vocabularies in the background when a request first needs them.

    Until then, and without a file, counts are estimates. counters: where exact counters are stored.
    """

    def __init__(self, folder: Path, counters: dict[str, TokenCounter]) -> None:
        self._folder = folder
        self._counters = counters
        self._loads: dict[str, asyncio.Task[None] | None] = {}

    def start_loading(self, family: str) -> str:
        """Start loading if there may be a file; return the family."""
        if family not in self._loads:
            available = False
            if self._folder.is_dir():
                available = family in FAMILIES and any(self._folder.glob("*"))
            self._loads[family] = asyncio.ensure_future(self._load(family)) if available else None
        return family

    async def _load(self, family: str) -> None:
        if (encode := await asyncio.to_thread(load, family, self._folder)) is not None:
            self._counters[family] = TokenCounter(encode)


def _build_encoding(family: str, loader: Callable[[str, str], dict[bytes, int]]) -> dict[str, Any]:
    """Call tiktoken's constructor of a family with `loader` instead of its downloader."""
    if family not in FAMILIES:
        raise KeyError(family)
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    constructor = getattr(openai_public, family)
    described: dict[str, Any] = types.FunctionType(
        constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": loader}
    )()
    return described
