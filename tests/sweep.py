"""After the suite: no key that a test used lies in a database, a log, an exported file or a log
record of this process.

What a test left in its folder is read once, when the test ends, and removed if the test passed: a
whole run would leave some 800 MB. What is left, such as the folders of gateways that several tests
share, is read when the session ends. Files that a test wrote its keys into itself (configurations)
are left out.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KEYS = re.compile(rb"sk-sentinel-[0-9a-f]{4}|mg-sentinel-77|sk-provider-9e|\bmnemogate-[\w-]{43}\b")
# And what Python compiles of them.
WRITTEN_BY_TESTS = {".toml", ".py", ".pyc", ".sh"}
PIECE = 1 << 24
OVERHEARD: pytest.StashKey[Overheard] = pytest.StashKey()
LEAKS: pytest.StashKey[list[str]] = pytest.StashKey()
PASSED: pytest.StashKey[bool] = pytest.StashKey()


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Iterator[pytest.TestReport]:
    report = yield
    item.stash[PASSED] = report.passed and item.stash.get(PASSED, True)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is not None and item.stash.get(PASSED, False):
        stash = item.config.stash
        stash[LEAKS] = [*stash.get(LEAKS, []), *leaks(folder)]
        shutil.rmtree(folder, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    found = [
        *config.stash.get(LEAKS, []),
        *config.stash[OVERHEARD].found,
        *leaks(config._tmp_path_factory.getbasetemp()),
    ]
    if (told := getattr(config, "workeroutput", None)) is not None:
        told["leaks"] = found
        return
    config.stash[LEAKS] = found
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
