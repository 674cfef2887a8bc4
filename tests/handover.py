"""`make screenshots`: the README's first picture, of two agents that share what one was told.

The real Claude Code and the real Codex are started by `mnemogate run` in a real terminal, in front
of `mnemogate demo`. What the terminal shows, and when, becomes an SVG, see `tests.recording`.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.recording import KEY_SECONDS, LONGEST_SECONDS, PAUSE_SECONDS, Screen, render

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/images/handover.svg"
PROGRAMS = ROOT / "tests/clients/node_modules/.bin"
LINES = (
    'mnemogate run -- claude -p "My name is Ada, and I like green tea."',
    'mnemogate run -- codex exec -m mnemogate-demo "What is my name? What do I like?" 2>log',
)
SECONDS = 120.0
TITLE = "What Claude Code was told, Codex knows"
TOLD = (
    "Claude Code is told a name and a preference. Then Codex, started in the same way, is asked "
    "for both, and knows them."
)
# Claude Code and Codex need a key to start, and nothing of the kind reaches the demo's model.
KEYS = {"ANTHROPIC_API_KEY": "sk-demo", "OPENAI_API_KEY": "sk-demo"}
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


class Desk:
    """A folder with a running demo. programs: where the agents are installed."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        subprocess.run(["git", "init", "--quiet", str(self.project)], check=True)
        data = folder / "data"
        self.environment = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "MNEMOGATE_DATA": str(data),
            "XDG_CACHE_HOME": str(folder / "cache"),
            **KEYS,
            **QUIET,
        }
        self.demo = subprocess.Popen(
            [sys.executable, "-m", "gateway", "demo", "--port", "0"],
            cwd=ROOT,
            env={k: v for k, v in self.environment.items() if k not in KEYS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self) -> str:
        """Wait until the demo serves; return its URL."""
        assert self.demo.stdout is not None
        url = ""
        for line in self.demo.stdout:
            found = re.search(r'base_url = "(\S+)/v1"', line)
            url = found[1] if found else url
            if "until Ctrl-C" in line:
                return url
        raise SystemExit("the demo did not start")

    def close(self) -> None:
        self.demo.terminate()
        self.demo.wait(30)


def play(desk: Desk, screen: Screen, line: str, at: float) -> float:
    """Type a command, and show what it prints; return when it has ended."""
    screen.show("$ ", at)
    for key in line:
        at += KEY_SECONDS
        screen.show(key, at)
    screen.show("\n", at)
    ours, theirs = pty.openpty()
    # Without an end of its input Codex waits for more.
    child = subprocess.Popen(
        ["sh", "-c", f"{line} </dev/null"],
        cwd=desk.project,
        env=desk.environment,
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    began, seen = time.monotonic(), time.monotonic()
    while time.monotonic() - began < SECONDS:
        if not select.select([ours], [], [], 0.2)[0]:
            if child.poll() is not None:
                break
            continue
        try:
            data = os.read(ours, 65536)
        except OSError:  # the command has ended
            break
        now = time.monotonic()
        at, seen = at + min(now - seen, LONGEST_SECONDS), now
        screen.show(data.decode(errors="replace"), at)
    if child.wait(10):
        raise SystemExit(f"{line} ended with {child.returncode}: {screen.pieces[-5:]}")
    os.close(ours)
    screen.show("\n" if screen.column else "", at)
    return at + PAUSE_SECONDS


def record(folder: Path, programs: Path) -> Screen:
    """Play both lines; return what the terminal showed."""
    desk, screen, at = Desk(folder, programs), Screen(), 0.5
    try:
        url = desk.wait()
        desk.environment["MNEMOGATE_URL"] = url
        for line in LINES:
            at = play(desk, screen, line, at)
    finally:
        desk.close()
    return screen


def main() -> None:
    programs = Path(sys.argv[1]) if len(sys.argv) > 1 else PROGRAMS
    if not (programs / "codex").exists():
        raise SystemExit(f"Claude Code and Codex are not in {programs}: run make clients first")
    # Codex works in no folder for temporary files.
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        screen = record(Path(folder), programs.resolve())
    TARGET.write_text(render(screen, TITLE, TOLD), encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
