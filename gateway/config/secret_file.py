"""Secret files in the data folder: created once, atomically, readable by their owner only."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path

from gateway.config.settings import ConfigError, Settings

log = logging.getLogger("mnemogate")
OTHERS = 0o077


def load_or_create_secret(path: Path, size: int) -> bytes:
    """Return the random secret kept as hex in a file; create it if it is missing.

    size: in bytes. Processes that start at once get the same secret. Raises ConfigError for a file
    with other content.
    """
    if not path.exists():
        _make(path, secrets.token_bytes(size))
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except ValueError:
        secret = b""
    if len(secret) != size:
        raise ConfigError(
            f"{path} must hold a secret of {size} bytes in hex; it "
            f"has {path.stat().st_size} characters. Restore it from a backup: without it no "
            "stored memory can be recognised. If nothing is stored yet, delete it."
        )
    if path.stat().st_mode & OTHERS and os.name == "posix":
        path.chmod(0o600)
        log.warning(
            "%s could be read by other users of this machine; it is its owner's alone now. "
            "Where one may have read it, delete it and start again (with another `secret`, "
            "stored memory is not recognised).",
            path,
        )
    return secret


def server_secret(settings: Settings) -> bytes:
    """Return the secret that keys the memory: the one given, else the data folder's.

    Raises ConfigError.
    """
    if digits := settings.storage.secret.get_secret_value():
        return bytes.fromhex(digits)
    return load_or_create_secret(settings.data / "secret", 32)


def _make(path: Path, secret: bytes) -> None:
    """Write the file and move it into place, unless another process was faster."""
    temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(
            os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write(secret.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            with contextlib.suppress(FileExistsError):
                os.link(temporary_path, path)
        except OSError:
            # A file system without links.
            temporary_path.rename(path)
    finally:
        temporary_path.unlink(missing_ok=True)
