"""Secrets that are not kept: found by patterns, and left out of what is stored. Pure.

Every door of the memory uses it: the tools, extraction, the API and imports. Patterns begin where a
word begins and their repetitions are bounded, so that a text costs a fixed number of steps a
character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from memory.errors import BadArguments

_KEYS = (
    r"sk-[A-Za-z0-9_-]{16,200}|[rsp]k_(?:live|test)_[A-Za-z0-9]{10,200}|gh[opsur]_[A-Za-z0-9]{20,255}|"
    r"github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{16,100}|xox[a-z]-[A-Za-z0-9-]{10,200}|"
    r"A[KS]IA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,50}|hf_[A-Za-z0-9]{20,100}|npm_[A-Za-z0-9]{30,60}|"
    r"pypi-[A-Za-z0-9_-]{30,250}|SG\.[\w-]{16,40}\.[\w-]{16,60}|"
    r"eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"
)
_IS = r"\s{0,3}(?:[:=：]|\b(?:is|ist|es|est|lautet)\b|是)\s{0,3}[\"'`]?"
PATTERNS: Mapping[str, str] = {
    "private key": r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)"
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
    "API key": rf"(?<![\w-])(?:{_KEYS})(?![\w-])",
    "access token": r"(?i)\b(?:api[ _-]?key|access[ _-]?token|client[ _-]?secret)"
    rf"{_IS}(?P<secret>[^\s\"'`]{{12,200}})",
    "card number": r"(?<![\d.-])(?P<card>\d(?:[ -]?\d){12,18})(?![\d-])",
    "password": r"(?i)(?:password|passwort|passphrase|passcode|kennwort|contraseña|mot de passe|"
    rf"senha|пароль|密码|密碼|パスワード){_IS}(?P<secret>[^\s\"'`]{{4,128}})",
}
WINDOW_CHARACTERS = 1 << 15  # of a long text, searched at once
LONGEST_CHARACTERS = 1 << 13  # that the shipped patterns take, but for a private key
MASK = "[removed: {}]"
_MASKS = re.compile(r"\[removed: [^\]]{1,100}\]")


class Screen:
    """Finds secrets.

    patterns: regular expressions by what they find. Of a group `secret` only that part is removed,
    and only if it holds a digit or a sign: a word after "password is" is no password. A group
    `card` must pass the check of Luhn.
    """

    def __init__(self, patterns: Mapping[str, str] = PATTERNS) -> None:
        self._patterns = {name: re.compile(text) for name, text in patterns.items() if text}

    def mask(self, text: str) -> tuple[str, list[str]]:
        """Return the text without its secrets, and what they were."""
        found: list[str] = []
        for name, pattern in self._patterns.items():

            def replace(m: re.Match[str], name: str = name) -> str:
                if not _is_secret(m):
                    return m[0]
                found.append(name)
                begin = m.start("secret") if "secret" in m.re.groupindex else m.start()
                return m[0][: begin - m.start()] + MASK.format(name)

            text = _substitute(pattern, replace, text)
        return text, found

    def mask_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a chat message without the secrets in its text and its parts of text."""
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": self.mask(content)[0]}
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._mask_part(part) for part in content]}

    def _mask_part(self, part: Any) -> Any:
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            return {**part, "text": self.mask(text)[0]}
        return part

    def check(self, name: str, text: str | None) -> None:
        """Raise BadArguments if the text of this member holds a secret."""
        if text and (found := self.mask(text)[1]):
            raise BadArguments(
                f"`{name}` holds what looks like a secret ({', '.join(sorted(set(found)))}). "
                "Secrets are not kept: leave it out. The operator can change this with "
                "memory.screen."
            )

    def mask_arguments(self, arguments: dict[str, Any]) -> list[str]:
        """Mask the texts of a tool's call in place, and return what was found.

        Raises BadArguments where nothing else is left of a text.
        """
        found: list[str] = []
        for name in ("content", "new_content", "new_memory"):
            if not isinstance(text := arguments.get(name), str):
                continue
            arguments[name], kinds = self.mask(text)
            if kinds and not re.search(r"\w", _MASKS.sub("", arguments[name])):
                raise BadArguments(
                    f"Nothing was saved: `{name}` is a secret ({', '.join(sorted(set(kinds)))}), "
                    "and secrets are not kept."
                )
            found += kinds
        return found


def _substitute(
    pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str
) -> str:
    """Replace what a pattern finds; a long text is searched in windows.

    A search holds the interpreter, so that in a thread others run between two windows.
    """
    if len(text) <= WINDOW_CHARACTERS:
        return pattern.sub(replace, text)
    out, at, passed = [], 0, 0
    while at < len(text):
        border = at + WINDOW_CHARACTERS
        end = border + LONGEST_CHARACTERS
        match = pattern.search(text, at, end)
        if match is not None and match.end() >= end:
            # It ends with the window, which may have cut it.
            start = match.start()
            match = pattern.match(text, start)
            if match is None:
                at = start + 1
                continue
        if match is None or match.start() >= border:
            at = border
            continue
        out += [text[passed : match.start()], replace(match)]
        passed = match.end()
        at = max(passed, match.start() + 1)
    return "".join([*out, text[passed:]])


def receipt(found: list[str]) -> str:
    """Tell a model what was left out, "" for nothing."""
    if not found:
        return ""
    return f" Left out: {', '.join(sorted(set(found)))}; secrets are not kept."


def _is_secret(m: re.Match[str]) -> bool:
    groups = m.re.groupindex
    if "card" in groups:
        return _passes_luhn([int(c) for c in m["card"] if c.isdigit()])
    return "secret" not in groups or any(not c.isalpha() for c in m["secret"].rstrip(".,;!?"))


def _passes_luhn(digits: list[int]) -> bool:
    """Check the digits of a card number (ISO/IEC 7812-1, annex B)."""
    doubled = [sum(divmod(2 * d, 10)) for d in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
