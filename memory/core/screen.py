"""Secrets that are not kept: found by patterns, and left out of what is stored. Pure.

Every door of the memory uses it: the tools, extraction, the API and imports. Patterns begin where a
word begins and their repetitions are bounded, so that a text costs a fixed number of steps a
character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from memory.conversation.steps import end_step
from memory.errors import BadArguments

_KEYS = (
    r"sk-[A-Za-z0-9_-]{16,200}|[rsp]k_(?:live|test)_[A-Za-z0-9]{10,200}|gh[opsur]_[A-Za-z0-9]{20,255}|"
    r"github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{16,100}|xox[a-z]-[A-Za-z0-9-]{10,200}|"
    r"A[KS]IA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,50}|hf_[A-Za-z0-9]{20,100}|npm_[A-Za-z0-9]{30,60}|"
    r"pypi-[A-Za-z0-9_-]{30,250}|SG\.[\w-]{16,40}\.[\w-]{16,60}|"
    r"xai-[A-Za-z0-9]{20,200}|gsk_[A-Za-z0-9]{20,200}|pplx-[A-Za-z0-9]{20,100}|"
    r"whsec_[A-Za-z0-9+/=]{20,100}|dop_v1_[a-f0-9]{40,80}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,60}|"
    r"ya29\.[A-Za-z0-9_-]{20,500}|"
    r"eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"
)
# What stands between a word for a secret and the secret: a mark, or "is", in some languages.
_IS = (
    r"(?:\s{0,3}(?:[:=：]|->|\b(?:is|was|ist|lautet|est|es|é|era|è|hier|it's)\b|是|为|為|は|है|هي|هو|это"
    r"|[-–—]\s)){1,2}\s{0,3}[\"'`«“「]?"
)
_FOR = (
    r"(?:\s{1,2}(?:for|of|to|für|vom|zum|pour|du|de|del|do|da|para|от|для)"
    r"\s[^\s:=][^\n:=]{0,40}?)?"
)
_SAID = (
    r"(?:password|passwort|passphrase|passcode|pass word|kennwort|kenn?wort|\bpwd\b|\bpasswd\b"
    r"|contraseña|palabra clave|mot de passe|\bmdp\b|senha|palavra-passe|parola d'ordine"
    r"|wachtwoord|пароль|पासवर्ड|كلمة المرور|كلمة السر|كلمه السر|الرقم السري|密码|密碼|口令"
    r"|パスワード|暗証番号|비밀번호|hasło|şifre)"
)
_NAMED = (
    r"(?:(?:api|access|auth|secret|client|refresh|bearer|session|webhook)[ _-]?"
    r"(?:key|token|secret)"
    r"|api[ -]?schlüssel|zugangstoken|cl[ée] (?:d'|de l')?api|clave (?:de )?(?:la )?api"
    r"|chave (?:de |da )?api|api[ -]ключ|ключ api|एपीआई कुंजी|api कुंजी|مفتاح api|مفتاح الواجهة"
    r"|apiキー|api密钥|api密鑰|api 密钥|アクセストークン|访问令牌|token d'accès|token de acceso|"
    r"token de acesso|токен(?: доступа)?)"
)
PATTERNS: Mapping[str, str] = {
    "private key": r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)"
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
    "API key": rf"(?<![\w-])(?:{_KEYS})(?![\w-])",
    "URL password": r"(?i)(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{1,30}://[^\s:/@?#]{0,100}:"
    r"(?P<part>[^\s/@]{1,200})(?=@[^\s])",
    "AWS secret": r"(?i)(?:aws|secret[ _-]?access[ _-]?key)[^\n]{0,60}?[:=\s\"'`]"
    r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    "bearer token": r"(?i)\b(?:bearer|authorization\s{0,3}[:=]\s{0,3}[\"'`]?(?:basic|token))"
    r"\s{1,3}(?P<secret>[A-Za-z0-9._~+/=-]{12,4000})",
    "access token": rf"(?i)(?<!\w){_NAMED}{_FOR}{_IS}(?P<secret>[^\s\"'`»”」]{{12,200}})",
    # It begins with its first digit, which is looked for fast; that enough of them may follow is
    # asked first, since most digits are of short numbers.
    "card number": (
        r"(?P<card>[0-9](?=[0-9 -]{11})(?<![0-9.-][0-9])(?:[ -]?[0-9]){11,18})(?![0-9-])"
    ),
    "password": rf"(?i){_SAID}{_FOR}{_IS}(?P<secret>[^\s\"'`»”」。，、]{{4,128}})",
    # Without a word between them, only what has letters and digits or signs.
    "passphrase": rf"(?i){_SAID}[\s\"'`«“「]{{1,3}}(?P<mixed>[^\s\"'`»”」。，、]{{6,128}})",
}
# One of these stands in each text that a pattern takes, in lower case: to look for them costs a
# tenth of a search. A pattern of the operator's is always searched.
_HINTS: Mapping[str, tuple[str, ...]] = {
    "API key": ("akia", "asia", "aiza", "sg.", "eyj"),
    "URL password": ("://",),
    "AWS secret": ("aws", "access"),
    "bearer token": ("bearer", "authorization"),
    "access token": ("key", "token", "secret", "cle ", "clave", "chave"),
    "password": ("pass", "kenn", "pwd", "mdp", "senha", "parola", "wacht", "palabra"),
}
# Those with a hyphen, those with an underscore, and those beyond ASCII.
_HINTS_HYPHENED: Mapping[str, tuple[str, ...]] = {
    "private key": ("-----begin",),
    "API key": ("sk-", "glpat-", "xox", "pypi-", "xai-", "pplx-"),
}
_HINTS_LINED: Mapping[str, tuple[str, ...]] = {
    "API key": (
        *("k_live_", "k_test_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "hf_"),
        *("npm_", "gsk_", "whsec_", "dop_v1_", "shpat_", "shpca_", "shppa_", "shpss_"),
    )
}
_HINTS_WIDE: Mapping[str, tuple[str, ...]] = {
    "access token": (
        *("schlüssel", "clé", "कुंजी", "مفتاح", "キー", "密钥", "密鑰", "токен", "ключ", "トークン"),
        "令牌",
    ),
    "password": (
        *("contraseña", "пароль", "पासवर्ड", "كلم", "الرقم", "密码", "密碼", "口令", "パスワード"),
        *("暗証番号", "비밀번호", "hasło", "şifre"),
    ),
}
# Of digits as bytes: what each is worth, and what it is worth doubled.
_VALUES = bytes(c - 48 if 48 <= c <= 57 else 0 for c in range(256))
_DOUBLED = bytes(sum(divmod(2 * value, 10)) for value in _VALUES)
# Digits as 0 and all else as x, without what may stand between the digits of a number.
_DIGITS = bytes(ord("0") if 48 <= c <= 57 else ord("x") for c in range(256))
_CARD_RUN = b"0" * 12
# Issuers' prefixes with the lengths of their numbers: Visa, Mastercard, Mir, Amex, Discover, JCB,
# UnionPay. Other lengths and issuers are taken for cards beside a word for one.
_ISSUED = re.compile(
    r"(?:4\d{15}|5[1-5]\d{14}|2(?:2(?:2[1-9]|[3-9]\d)|[3-6]\d\d|7(?:[01]\d|20))\d{12}|220[0-4]\d{12}"
    r"|3[47]\d{13}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14})"
)
_CARD_WORD = re.compile(
    r"(?i)card|visa|master|amex|american express|maestro|diners|discover|jcb|unionpay|karte|carte"
    r"|tarjeta|cartão|cartao|карт|कार्ड|بطاقة|カード|卡|카드|carta di"
)
# Before a number, in which such a word is looked for.
CARD_WORD_CHARACTERS = 60
# That are copied at once.
SLICE_CHARACTERS = 1 << 17
# Of a long text, searched at once.
WINDOW_CHARACTERS = 1 << 15
# More than from a hint to what confirms it: a URL to its @, digits of a card.
HINT_CHARACTERS = 512
# That the shipped patterns take, but for a private key.
LONGEST_CHARACTERS = 1 << 13
_KINDS = {"passphrase": "password"}
CARD = "card number"
URL = "URL password"
_PARTS = ("secret", "part", "mixed")
_ENDS = ".,;:!?)'\"»”"
MASK_BEGINNING = "[removed: "
MASK = MASK_BEGINNING + "{}]"
_MASKS = re.compile(r"\[removed: [^\]]{1,100}\]")
# Characters of one text that a person or an app writes, some 30 ms.
MAX_CHECKED = 1_000_000


class Screen:
    """Finds secrets.

    patterns: regular expressions by what they find. Of a group `secret` only that part is removed,
    and only if it holds a digit or a sign: a word after "password is" is no password. Of a group
    `mixed` too, if it holds letters and others; of a group `part` always. A group `card` must pass
    the check of Luhn, and have an issuer's prefix and length or a word for a card before it.
    """

    def __init__(self, patterns: Mapping[str, str] = PATTERNS) -> None:
        self._patterns = {name: _compile(text) for name, text in patterns.items() if text}
        self._shipped = {n for n in self._patterns if PATTERNS.get(n) == patterns[n]}
        self._own = self._patterns.keys() - self._shipped
        self._hints = _flatten(_HINTS, self._shipped)
        self._hints_hyphened = _flatten(_HINTS_HYPHENED, self._shipped)
        self._hints_lined = _flatten(_HINTS_LINED, self._shipped)
        self._hints_wide = [
            (max(hint), hint, names) for hint, names in _flatten(_HINTS_WIDE, self._shipped)
        ]

    def _hinted_windows(self, text: str) -> list[set[str]]:
        """Return for each window of a text the patterns that may match there.

        Each turn asks this of each new message. A long text is looked at in windows, so that no
        copy of all of it is made, and others run between two searches.
        """
        if len(text) <= WINDOW_CHARACTERS:
            return [self._names_hinted(text)]
        windows = []
        for start in range(0, len(text), WINDOW_CHARACTERS):
            window = text[start : start + WINDOW_CHARACTERS + HINT_CHARACTERS]
            windows.append(self._names_hinted(window))
            end_step()
        return windows

    def _names_hinted(self, text: str) -> set[str]:
        lower = text.lower()
        hints = self._hints
        if "-" in text:
            hints = [*hints, *self._hints_hyphened]
        if "_" in text:
            hints = [*hints, *self._hints_lined]
        names: set[str] = set()
        for hint, hinted in hints:
            if hint in lower:
                names |= hinted
        if not text.isascii():
            # One character is looked for much faster than several.
            for character, hint, hinted in self._hints_wide:
                if character in lower and hint in lower:
                    names |= hinted
        if URL in names and "@" not in text:
            names.remove(URL)
        # Digits as 0 and all else as x, without what may stand between them.
        if CARD in self._shipped and _CARD_RUN in text.encode("utf-8", "replace").translate(
            _DIGITS, b" -"
        ):
            names.add(CARD)
        return names | self._own

    def mask(self, text: str) -> tuple[str, list[str]]:
        """Return the text without its secrets, and what they were."""
        secrets: list[str] = []
        if len(text) <= WINDOW_CHARACTERS:
            windows = [self._names_hinted(text)]
            if not windows[0]:
                return text, secrets
        else:
            windows = self._hinted_windows(text)
        hinted = set().union(*windows)
        for name in self._patterns if hinted else ():
            if name not in hinted:
                continue
            kind = _KINDS.get(name, name)

            def replace(match: re.Match[str], kind: str = kind) -> str:
                if not _is_secret(match):
                    return match[0]
                secrets.append(kind)
                part = next((g for g in _PARTS if g in match.re.groupindex), 0)
                prefix = match[0][: match.start(part) - match.start()]
                return prefix + MASK.format(kind) + match[0][match.end(part) - match.start() :]

            is_hinted = [name in names for names in windows]
            secret_count = len(secrets)
            masked = _substitute(self._patterns[name], replace, text, is_hinted)
            # Most numbers that a card's pattern takes are none.
            if len(secrets) > secret_count:
                text = masked
                windows = self._hinted_windows(masked)
                hinted = set().union(*windows)
        return text, secrets

    def mask_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a chat message without the secrets in its text, parts of text and calls."""
        if isinstance(calls := message.get("tool_calls"), list):
            message = {**message, "tool_calls": [self._mask_call(call) for call in calls]}
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": self.mask(content)[0]}
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._mask_part(part) for part in content]}

    def _mask_call(self, call: Any) -> Any:
        """Return a call without the secrets in its arguments."""
        function = None
        if isinstance(call, dict):
            function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
            return call
        arguments, secrets = self.mask(function["arguments"])
        if secrets:
            return {**call, "function": {**function, "arguments": arguments}}
        return call

    def _mask_part(self, part: Any) -> Any:
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            return {**part, "text": self.mask(text)[0]}
        return part

    def check(self, name: str, text: str | None) -> None:
        """Raise BadArguments if the text of this member holds a secret, or is too long to tell."""
        if text and len(text) > MAX_CHECKED:
            raise BadArguments(
                f"`{name}` is {len(text)} characters; at most {MAX_CHECKED} are allowed."
            )
        if text and (secrets := self.mask(text)[1]):
            raise BadArguments(
                f"`{name}` holds what looks like a secret ({', '.join(sorted(set(secrets)))}). "
                "Secrets are not kept: leave it out. The operator can change this with "
                "memory.screen."
            )

    def mask_arguments(self, arguments: dict[str, Any]) -> list[str]:
        """Mask the texts of a tool's call in place, and return what was found.

        Raises BadArguments where nothing else is left of a text.
        """
        secrets: list[str] = []
        for name in ("content", "new_content", "new_memory"):
            if not isinstance(text := arguments.get(name), str):
                continue
            arguments[name], kinds = self.mask(text)
            if kinds and not re.search(r"\w", _MASKS.sub("", arguments[name])):
                raise BadArguments(
                    f"Nothing was saved: `{name}` is a secret ({', '.join(sorted(set(kinds)))}), "
                    "and secrets are not kept."
                )
            secrets += kinds
        return secrets


def _flatten(
    hints: Mapping[str, tuple[str, ...]], names: set[str]
) -> list[tuple[str, frozenset[str]]]:
    """Return each hint with those of these patterns that it is one of."""
    hinted: dict[str, set[str]] = {}
    for name in names:
        for hint in hints.get(_KINDS.get(name, name), ()):
            hinted.setdefault(hint, set()).add(name)
    return [(hint, frozenset(names)) for hint, names in hinted.items()]


def _substitute(
    pattern: re.Pattern[str],
    replace: Callable[[re.Match[str]], str],
    text: str,
    is_hinted: list[bool],
) -> str:
    """Replace what a pattern finds; a long text is searched in windows, where there is a hint.

    A search holds the interpreter, so that in a thread others run between two windows. Some
    patterns take .2 s for a million characters. is_hinted: for each window. Returns the text
    itself where nothing is replaced.
    """
    if len(text) <= WINDOW_CHARACTERS:
        return pattern.sub(replace, text)
    result = ""
    copied_end = 0
    for match in _matches(pattern, text, is_hinted):
        if (replacement := replace(match)) != match[0]:
            # A text that grows at its end is not copied.
            for text_slice in _slices(text, copied_end, match.start()):
                result += text_slice
            result += replacement
            copied_end = match.end()
    if not copied_end:
        return text
    for text_slice in _slices(text, copied_end, len(text)):
        result += text_slice
    return result


def _matches(pattern: re.Pattern[str], text: str, is_hinted: list[bool]) -> Iterator[re.Match[str]]:
    """Yield what a pattern finds in a long text, window by window."""
    window_start = 0
    while window_start < len(text):
        border = window_start + WINDOW_CHARACTERS
        end = border + LONGEST_CHARACTERS
        if not any(is_hinted[window_start // WINDOW_CHARACTERS : end // WINDOW_CHARACTERS + 1]):
            window_start = border
            continue
        end_step()
        match = pattern.search(text, window_start, end)
        if match is not None and match.end() >= end:
            # It ends with the window, which may have cut it.
            start = match.start()
            match = pattern.match(text, start)
            if match is None:
                window_start = start + 1
                continue
        if match is None or match.start() >= border:
            window_start = border
            continue
        yield match
        window_start = max(match.end(), match.start() + 1)


def _slices(text: str, begin: int, end: int) -> Iterator[str]:
    for slice_start in range(begin, end, SLICE_CHARACTERS):
        yield text[slice_start : min(slice_start + SLICE_CHARACTERS, end)]


def without_masks(text: str) -> str:
    """Return a text without what stands in it for secrets."""
    return _MASKS.sub("", text)


def receipt(secrets: list[str]) -> str:
    """Tell a model what was left out, "" for nothing."""
    if not secrets:
        return ""
    return f" Left out: {', '.join(sorted(set(secrets)))}; secrets are not kept."


@lru_cache(64)
def _compile(text: str) -> re.Pattern[str]:
    """Compile a pattern, once for all screens."""
    return re.compile(text)


def _is_secret(match: re.Match[str]) -> bool:
    groups = match.re.groupindex
    if "card" in groups:
        return _is_card(match)
    if any(
        match[part].startswith(MASK_BEGINNING.rstrip(": ")) for part in _PARTS if part in groups
    ):
        # It was removed before.
        return False
    if "part" in groups:
        return True
    if "mixed" in groups:
        mixed = match["mixed"].rstrip(_ENDS)
        return any(map(str.isalpha, mixed)) and any(
            not c.isalpha() and c not in "-_" for c in mixed
        )
    if "secret" not in groups:
        return True
    secret = match["secret"].rstrip(_ENDS)
    return any(not c.isalpha() for c in secret)


def _is_card(match: re.Match[str]) -> bool:
    digits = match["card"].replace(" ", "").replace("-", "")
    if not _passes_luhn(digits.encode()):
        return False
    text_before = match.string[max(0, match.start() - CARD_WORD_CHARACTERS) : match.start()]
    return bool(_ISSUED.fullmatch(digits) or _CARD_WORD.search(text_before))


def _passes_luhn(digits: bytes) -> bool:
    """Check the digits of a card number (ISO/IEC 7812-1, annex B)."""
    total = sum(digits[-1::-2].translate(_VALUES)) + sum(digits[-2::-2].translate(_DOUBLED))
    return total % 10 == 0 and len(set(digits)) > 1
