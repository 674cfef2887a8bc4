"""`make screenshots`: the README's terminal recording, of `mnemogate chat` in a real terminal.

Two chats are typed into a pseudo-terminal. What it shows, and when, becomes an SVG that plays by
CSS alone: each piece of text appears at its time, and stays.
"""

from __future__ import annotations

import html
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TARGET = Path(__file__).parents[1] / "docs/images/terminal.svg"
COLUMNS, LINE_PIXELS, CHARACTER_PIXELS, MARGIN = 100, 20, 8.4, 16
COMMAND = ("mnemogate", "chat", "--bundled", "--user", "ada")
CHATS = (
    ("My name is Ada and I like green tea.", "Remember that my sister Grace arrives on Friday."),
    ("What is my name?", "When does my sister arrive?", "/memory"),
)
TITLE = "Two terminal chats with a memory"
TOLD = (
    "In the first chat Ada says her name, what she likes and when her sister arrives; the model "
    "saves it. The second chat starts without history, and its answers know it."
)
ESCAPE = re.compile(
    r"\x1b\[([0-9;?<>=]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[78=>]"
)
INVISIBLE = re.compile(r"[\x00-\x06\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")
STYLES = {"1": "bold", "2": "dim", "36": "call"}
KEY_SECONDS, PAUSE_SECONDS, QUIET_SECONDS = 0.035, 0.9, 0.8
# That a viewer waits for nothing; longer waits are cut.
LONGEST_SECONDS = 1.2
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ShownText:
    """A piece of text at its place. at: seconds since the start."""

    row: int
    column: int
    text: str
    style: str
    at: float


@dataclass(slots=True)
class Screen:
    """What a terminal has shown. It knows new lines and styles, which is all that a chat uses."""

    pieces: list[ShownText] = field(default_factory=list)
    row: int = 0
    column: int = 0
    style: str = ""

    def show(self, text: str, at: float) -> None:
        """Show what a program wrote."""
        text, place = INVISIBLE.sub("", text), 0
        for found in ESCAPE.finditer(text):
            self._write(text[place : found.start()], at)
            place = found.end()
            if found[2] == "m":
                self.style = STYLES.get(found[1], "")
        self._write(text[place:], at)

    def _write(self, text: str, at: float) -> None:
        for part in re.split(r"(\r?\n|\r|\x07)", text):
            if part.endswith("\n"):
                self.row, self.column = self.row + 1, 0
            elif part == "\r":
                self.column = 0
            elif part and part != "\x07":
                self._write_line(part, at)

    def _write_line(self, text: str, at: float) -> None:
        while text:
            if self.column >= COLUMNS:
                self.row, self.column = self.row + 1, 4
            piece, text = text[: COLUMNS - self.column], text[COLUMNS - self.column :]
            self.pieces.append(ShownText(self.row, self.column, piece, self.style, at))
            self.column += len(piece)


class Terminal:
    """A pseudo-terminal with one command in it. Its clock leaves out long waits."""

    def __init__(self, screen: Screen, at: float) -> None:
        self._screen, self.at = screen, at
        self._seen = time.monotonic()

    def run(self, data: Path, lines: tuple[str, ...]) -> None:
        """Run the command, and type the lines into it."""
        ours, theirs = pty.openpty()
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        environment = {**kept, "MNEMOGATE_DATA": str(data), "TERM": "dumb"}
        child = subprocess.Popen(
            [sys.executable, "-m", "gateway", *COMMAND[1:]],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        try:
            self._read(ours, START_SECONDS, b"You: ")
            for line in lines:
                for key in line:
                    os.write(ours, key.encode())
                    self._read(ours, KEY_SECONDS)
                os.write(ours, b"\n")
                self._read(ours, START_SECONDS, b"You: ")
                self.at += PAUSE_SECONDS
            os.write(ours, b"\x04")
            self._read(ours, QUIET_SECONDS)
            child.wait(START_SECONDS)
        finally:
            child.kill()
            child.wait()
            os.close(ours)

    def _read(self, terminal: int, seconds: float, until: bytes = b"") -> None:
        """Show what comes for so long, or until a text has come."""
        end, got = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0 and not (until and got.endswith(until)):
            if not select.select([terminal], [], [], left)[0]:
                break
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the command has ended
                break
            got += data
            self._show(data)
        if until and not got.endswith(until):
            raise SystemExit(f"`mnemogate chat` did not ask for a line: {got!r}")

    def _show(self, data: bytes) -> None:
        now = time.monotonic()
        self.at += min(now - self._seen, LONGEST_SECONDS)
        self._seen = now
        self._screen.show(data.decode(errors="replace"), self.at)


def record(data: Path) -> Screen:
    """Play the chats; return what the terminal showed."""
    screen, at = Screen(), 0.5
    for chat in CHATS:
        screen.show("$ ", at)
        for key in " ".join(COMMAND):
            at += KEY_SECONDS
            screen.show(key, at)
        screen.show("\n", at)
        terminal = Terminal(screen, at + 0.3)
        terminal.run(data, chat)
        at = terminal.at + PAUSE_SECONDS
        screen.show("\n" if screen.column else "", at)
    return screen


def render(screen: Screen, title: str = TITLE, told: str = TOLD) -> str:
    """Return the recording as an SVG. told: what it shows, for those who do not see it."""
    width = round(2 * MARGIN + COLUMNS * CHARACTER_PIXELS)
    height = 2 * MARGIN + (max(p.row for p in screen.pieces) + 1) * LINE_PIXELS
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="t d">\n<title id="t">{html.escape(title)}</title>\n'
        f'<desc id="d">{html.escape(told)}</desc>\n'
    )
    style = (
        "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
        "fill:#e6e4de;white-space:pre;animation:show 1ms both}.bold{font-weight:700}"
        ".dim{fill:#a5abb5}.call{fill:#7fc7c7}@keyframes show{from{opacity:0}to{opacity:1}}"
        "@media (prefers-reduced-motion:reduce){text{animation:none}}</style>\n"
    )
    ground = f'<rect width="{width}" height="{height}" rx="10" fill="#17191d"/>\n'
    return head + style + ground + "".join(_render_pieces(screen.pieces)) + "</svg>\n"


def _render_pieces(pieces: list[ShownText]) -> Iterator[str]:
    for p in pieces:
        if not p.text.strip():
            continue
        x = MARGIN + p.column * CHARACTER_PIXELS
        y = MARGIN + p.row * LINE_PIXELS + 15
        kind = f' class="{p.style}"' if p.style else ""
        length = f' textLength="{len(p.text) * CHARACTER_PIXELS:.1f}"'
        yield (
            f'<text x="{x:.1f}" y="{y}"{length}{kind} style="animation-delay:{p.at:.2f}s">'
            f"{html.escape(p.text)}</text>\n"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        TARGET.write_text(render(record(Path(folder))), encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
