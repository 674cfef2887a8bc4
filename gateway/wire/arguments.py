"""The arguments of a streamed call, which come in pieces and from some servers twice. Pure."""

from __future__ import annotations

import re

OUTSIDE = re.compile(r'["{}\[\]]')
INSIDE = re.compile(r'["\\]')
# How arguments may end that have closed.
ENDS = "}] \n\r\t"
# Of one call; what is longer is judged by its last character.
SCANNED_CHARACTERS = 1 << 17


class ArgumentsProgress:
    """Tells whether the JSON of a call's arguments has closed.

    A piece is looked at once, and only when somebody asks.
    """

    __slots__ = (
        "_depth",
        "_in_string",
        "_is_escaped",
        "_scanned",
        "_unscanned_texts",
        "has_closed",
        "has_text",
    )

    def __init__(self) -> None:
        # Anything but white space.
        self.has_text = False
        self.has_closed = False
        # Not looked at yet.
        self._unscanned_texts: list[str] = []
        self._scanned = 0
        self._depth = 0
        self._in_string = self._is_escaped = False

    def add(self, text: str) -> None:
        """Take the next piece."""
        if not text or self.has_closed or text.isspace():
            return
        self.has_text = True
        self._unscanned_texts.append(text)

    @property
    def is_complete(self) -> bool:
        """Whether an object or a list has begun and closed."""
        if self.has_closed or not self._unscanned_texts:
            return self.has_closed
        last_text = self._unscanned_texts[-1]
        if last_text[-1] not in ENDS or not last_text.rstrip().endswith(("}", "]")):
            return False
        text = "".join(self._unscanned_texts)
        self._unscanned_texts = []
        if self._scanned + len(text) > SCANNED_CHARACTERS:
            self._scanned = SCANNED_CHARACTERS
            self._unscanned_texts = [text[-1]]
            return True
        self._scanned += len(text)
        self._scan(text)
        return self.has_closed

    def copy(self) -> ArgumentsProgress:
        """Return one that grows by itself from here on."""
        out = ArgumentsProgress()
        for name in self.__slots__:
            setattr(out, name, getattr(self, name))
        out._unscanned_texts = list(self._unscanned_texts)
        return out

    def _scan(self, text: str) -> None:
        at = int(self._is_escaped)
        self._is_escaped = False
        while match := (INSIDE if self._in_string else OUTSIDE).search(text, at):
            at = match.end()
            self._take_mark(match[0])
            if self.has_closed:
                return
            if match[0] == "\\":
                self._is_escaped = at == len(text)
                at += 1

    def _take_mark(self, character: str) -> None:
        if character == '"':
            self._in_string = not self._in_string
        elif character in ("{", "["):
            self._depth += 1
        elif character != "\\":
            self._depth -= 1
            self.has_closed = self._depth <= 0


class RepeatedArguments:
    """The arguments that a call began with, where its pieces may tell them again.

    Nothing of `begun` is passed on before it is clear whether the pieces repeat it or follow it.
    """

    __slots__ = ("_first_text", "_is_open", "_repeated_size")

    def __init__(self, first_text: str = "") -> None:
        self._first_text = first_text
        # Characters of it that the pieces have repeated.
        self._repeated_size = 0
        self._is_open = bool(first_text)

    def add(self, delta_text: str) -> str:
        """Take the next piece; return what is new of the arguments."""
        if not self._is_open or not delta_text:
            return delta_text
        first_text = self._first_text
        at = self._repeated_size
        if first_text.startswith(delta_text, at):
            self._repeated_size += len(delta_text)
            if self._repeated_size < len(first_text):
                return ""
            self._is_open = False
            return first_text
        self._is_open = False
        if delta_text.startswith(first_text[at:]):
            return first_text[:at] + delta_text
        progress = ArgumentsProgress()
        progress.add(first_text)
        longer_text = first_text[:at] + delta_text
        # Arguments that are whole cannot go on, so the pieces are another spelling of them.
        if progress.is_complete:
            return longer_text
        return first_text + longer_text

    def end(self) -> str:
        """Return what was not passed on, once no piece follows."""
        first_text = self._first_text if self._is_open else ""
        self._first_text = ""
        if not first_text or not self._repeated_size:
            return first_text
        progress = ArgumentsProgress()
        progress.add(first_text)
        if progress.is_complete:
            return first_text
        return first_text + first_text[: self._repeated_size]
