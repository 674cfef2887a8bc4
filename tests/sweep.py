"""After the suite: no key that a test used lies in a database, a log, an exported file or a log
record of this process.

Every gateway's data folder and every child's output is still there when the session ends; all of it
is read once. Files that a test wrote its keys into itself (configurations) are left out.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

KEYS = re.compile(rb"sk-sentinel-[0-9a-f]{4}|mg-sentinel-77|sk-provider-9e|\bmnemogate-[\w-]{43}\b")
WRITTEN_BY_TESTS = {".toml", ".py", ".sh"}
PIECE = 1 << 24
OVERHEARD: pytest.StashKey[Overheard] = pytest.StashKey()
LEAKS: pytest.StashKey[list[str]] = pytest.StashKey()


class Overheard(logging.Handler):
    """Log records that quote a key."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if KEYS.search((text := self.format(record)).encode(errors="replace")):
            self.found.append(f"log {record.name}: {text[:100]}")


def leaks(folder: Path) -> list[str]:
    """The files below that hold a key."""
    out = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix not in WRITTEN_BY_TESTS:
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    if found := KEYS.search(piece):
                        out.append(f"{path.relative_to(folder)}: {found[0].decode()}")
                        break
    return out


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[OVERHEARD] = overheard = Overheard()
    logging.getLogger().addHandler(overheard)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    found = [*config.stash[OVERHEARD].found, *leaks(config._tmp_path_factory.getbasetemp())]
    if (told := getattr(config, "workeroutput", None)) is not None:
        told["leaks"] = found
        return
    config.stash[LEAKS] = found = [*config.stash.get(LEAKS, []), *found]
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEAKS] = [
        *node.config.stash.get(LEAKS, []),
        *getattr(node, "workeroutput", {}).get("leaks", []),
    ]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.section("keys left behind")
    terminalreporter.write_line("\n".join(config.stash.get(LEAKS, [])) or "none")
