"""The texts that every match of a regular expression holds, as far as that is plain. Pure."""

from __future__ import annotations

import re

QUANTIFIERS = "*+?{"
# An escape that stands for one character, or ends what can be read here.
CLASS_ESCAPES = frozenset("dDwWsSbBAz")
COUNT = re.compile(r"\{\d{0,6}(?:,\d{0,6})?\}")


def required_texts(pattern: str) -> list[str]:
    """Return texts that each match holds; none where it cannot be told."""
    try:
        return _Reader(pattern).read()
    except _Unclear:
        return []


class _Unclear(Exception):
    """What the pattern requires cannot be told."""


class _Reader:
    """Reads a pattern once, from left to right, outside of groups and classes."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._texts: list[str] = []
        self._text = ""

    def read(self) -> list[str]:
        while self._at < len(self._pattern):
            self._read_next()
        self._end_text()
        return self._texts

    def _read_next(self) -> None:
        sign = self._pattern[self._at]
        if sign == "|":
            raise _Unclear
        if sign == "(":
            self._pass_group()
            self._end_text()
        elif sign == "[":
            self._pass_class()
            self._end_text()
        elif sign == "\\":
            self._read_escape()
        elif sign in QUANTIFIERS:
            self._read_quantifier()
        else:
            self._at += 1
            if sign in ".^$":
                self._end_text()
            else:
                self._text += sign

    def _read_quantifier(self) -> None:
        """A character that may be missing or repeated ends a text, without or with it."""
        count = COUNT.match(self._pattern, self._at)
        sign = self._pattern[self._at]
        if sign == "{" and count is None:
            self._text += sign
            self._at += 1
            return
        if sign != "+":
            self._text = self._text[:-1]
        if count is not None:
            self._at = count.end()
        else:
            self._at += 1
        self._end_text()

    def _read_escape(self) -> None:
        sign = self._pattern[self._at + 1 : self._at + 2]
        self._at += 2
        if sign in CLASS_ESCAPES and sign:
            self._end_text()
        elif sign and not sign.isalnum():
            self._text += sign
        else:
            raise _Unclear

    def _pass_group(self) -> None:
        depth = 0
        while self._at < len(self._pattern):
            sign = self._pattern[self._at]
            if sign == "\\":
                if self._pattern[self._at + 1 : self._at + 2] == "Q":
                    raise _Unclear
                self._at += 1
            elif sign == "[":
                self._pass_class()
                continue
            depth += (sign == "(") - (sign == ")")
            self._at += 1
            if depth == 0:
                return
        raise _Unclear

    def _pass_class(self) -> None:
        self._at += 1
        if self._pattern[self._at : self._at + 1] == "^":
            self._at += 1
        if self._pattern[self._at : self._at + 1] == "]":
            self._at += 1
        while self._at < len(self._pattern):
            if self._pattern.startswith("[:", self._at):
                end = self._pattern.find(":]", self._at)
                if end < 0:
                    raise _Unclear
                self._at = end + 2
                continue
            sign = self._pattern[self._at]
            self._at += 2 if sign == "\\" else 1
            if sign == "]":
                return
        raise _Unclear

    def _end_text(self) -> None:
        if self._text:
            self._texts.append(self._text)
            self._text = ""
