"""The arguments of a streamed call, which come in pieces and from some servers twice. Pure."""

from __future__ import annotations

import re

OUTSIDE = re.compile(r'["{}\[\]]')
INSIDE = re.compile(r'["\\]')
ENDS = "}] \n\r\t"  # how arguments may end that have closed
SCANNED_CHARACTERS = 1 << 17  # of one call; what is longer is judged by its last character


class ArgumentsProgress:
    """Tells whether the JSON of a call's arguments has closed.

    A piece is looked at once, and only when somebody asks.
    """

    __slots__ = (
        "_depth",
        "_escaped",
        "_in_string",
        "_pieces",
        "_scanned",
        "has_closed",
        "has_text",
    )

    def __init__(self) -> None:
        self.has_text = False  # anything but white space
        self.has_closed = False
        self._pieces: list[str] = []  # not looked at yet
        self._scanned = 0
        self._depth = 0
        self._in_string = self._escaped = False

    def add(self, text: str) -> None:
        """Take the next piece."""
        if not text or self.has_closed or text.isspace():
            return
        self.has_text = True
        self._pieces.append(text)

    @property
    def is_complete(self) -> bool:
        """Whether an object or a list has begun and closed."""
        if self.has_closed or not self._pieces:
            return self.has_closed
        last = self._pieces[-1]
        if last[-1] not in ENDS or not last.rstrip().endswith(("}", "]")):
            return False
        text = "".join(self._pieces)
        self._pieces = []
        if self._scanned + len(text) > SCANNED_CHARACTERS:
            self._scanned = SCANNED_CHARACTERS
            self._pieces = [text[-1]]
            return True
        self._scanned += len(text)
        self._scan(text)
        return self.has_closed

    def copy(self) -> ArgumentsProgress:
        """Return one that grows by itself from here on."""
        out = ArgumentsProgress()
        for name in self.__slots__:
            setattr(out, name, getattr(self, name))
        out._pieces = list(self._pieces)
        return out

    def _scan(self, text: str) -> None:
        at = int(self._escaped)
        self._escaped = False
        while mark := (INSIDE if self._in_string else OUTSIDE).search(text, at):
            at = mark.end()
            self._take_mark(mark[0])
            if self.has_closed:
                return
            if mark[0] == "\\":
                self._escaped = at == len(text)
                at += 1

    def _take_mark(self, mark: str) -> None:
        if mark == '"':
            self._in_string = not self._in_string
        elif mark in ("{", "["):
            self._depth += 1
        elif mark != "\\":
            self._depth -= 1
            self.has_closed = self._depth <= 0


class RepeatedArguments:
    """The arguments that a call began with, where its pieces may tell them again.

    Nothing of `begun` is passed on before it is clear whether the pieces repeat it or follow it.
    """

    __slots__ = ("_begun", "_is_open", "_matched")

    def __init__(self, begun: str = "") -> None:
        self._begun = begun
        self._matched = 0  # characters of it that the pieces have repeated
        self._is_open = bool(begun)

    def add(self, piece: str) -> str:
        """Take the next piece; return what is new of the arguments."""
        if not self._is_open or not piece:
            return piece
        begun, at = self._begun, self._matched
        if begun.startswith(piece, at):
            self._matched += len(piece)
            if self._matched < len(begun):
                return ""
            self._is_open = False
            return begun
        self._is_open = False
        if piece.startswith(begun[at:]):
            return begun[:at] + piece
        progress = ArgumentsProgress()
        progress.add(begun)
        repeated = begun[:at] + piece
        # Arguments that are whole cannot go on, so the pieces are another spelling of them.
        return repeated if progress.is_complete else begun + repeated

    def end(self) -> str:
        """Return what was not passed on, once no piece follows."""
        begun, self._begun = (self._begun if self._is_open else ""), ""
        if not begun or not self._matched:
            return begun
        progress = ArgumentsProgress()
        progress.add(begun)
        return begun if progress.is_complete else begun + begun[: self._matched]
