"""The user a request is about, as the key allows. Anything unclear is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from gateway.auth.authenticator import Headers, Principal
from gateway.config.settings import Settings
from gateway.errors import BadRequest, Forbidden
from memory import AGENT_PREFIX, home_of

# Of a name to look for: earlier versions took longer ones.
USER_CHARACTERS = 1024
# Of a new one: Postgres indexes no row above 2.7 kB.
USER_BYTES = 1024
# Of a header that is read once.
MAX_KEPT_BYTES = 256
# Not every store can hold it, and two names must never become one.
NUL = "\x00"
HAS_NUL = "has the character NUL, which no name may have. Leave it out."
# Before the name of a user that looks like another kind of owner.
USER_PREFIX = "user:"
KINDS = (AGENT_PREFIX, "team:", "project:", USER_PREFIX)
BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class UserResolver:
    """Finds the user of a request, in the order of sources that the settings give."""

    def __init__(self, settings: Settings) -> None:
        self._order = settings.identity.order
        clients = [name for c in settings.clients.values() for name in c.user_headers]
        header_names = dict.fromkeys(
            h.lower() for h in (*settings.identity.alias_headers, *clients)
        )
        self._alias = [name.encode() for name in header_names]
        self._placeholders = frozenset(p.casefold() for p in settings.identity.placeholders)

    def user(
        self, principal: Principal, headers: Headers, path: str | None, body: Mapping[str, Any]
    ) -> str | None:
        """Return the user whom the request names; None if it names nobody.

        Raises BadRequest, Forbidden.
        """
        user_name = self._find_named(headers, path, body)
        if user_name is None:
            return principal.default_user or None
        return may_act_for(principal, user_name)

    def _find_named(
        self, headers: Headers, path: str | None, body: Mapping[str, Any]
    ) -> str | None:
        for source in self._order:
            if source == "header":
                if (name := self._named_in_header(headers)) is not None:
                    return name
                continue
            for value in self._values(source, headers, path, body):
                if value is None:
                    continue
                if (name := _check_value(value, source, self._placeholders)) is not None:
                    return name
        return None

    def _named_in_header(self, headers: Headers) -> str | None:
        header = headers.get(b"x-memory-user")
        if header is None:
            return None
        # The same for as long as somebody talks.
        read = _named_by if len(header) <= MAX_KEPT_BYTES else _named_by.__wrapped__
        return read(header, self._placeholders)

    def _values(
        self, source: str, headers: Headers, path: str | None, body: Mapping[str, Any]
    ) -> list[Any]:
        if source == "path":
            return [path]
        if source == "alias":
            return [header_text(headers, h) for h in self._alias]
        return [body.get(source)]


def _check_value(value: Any, source: str, placeholders: frozenset[str]) -> str | None:
    """Return the user that a value names; None if it names nobody. Raises BadRequest."""
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str) or not (value := value.strip()):
        return None
    if value.casefold() in placeholders:
        return None
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError as e:
        raise BadRequest(f"The user name ({source}) is not valid Unicode.", param="user") from e
    if size > USER_BYTES:
        raise BadRequest(
            f"The user name ({source}) has {size} bytes in UTF-8; at most {USER_BYTES} are "
            "allowed.",
            param="user",
        )
    if NUL in value:
        raise BadRequest(f"The user name ({source}) {HAS_NUL}", param="user")
    return value


@lru_cache(1024)
def _named_by(header: bytes, placeholders: frozenset[str]) -> str | None:
    """Return the user that a header names; None if it names nobody. Raises BadRequest."""
    return _check_value(_header_text(header, "x-memory-user"), "header", placeholders)


def header_text(headers: Headers, name: bytes) -> str | None:
    """Return a header's value, percent-encoded UTF-8, decoded.

    Raises BadRequest for a malformed one.
    """
    header = headers.get(name)
    if header is None:
        return None
    return _header_text(header, name.decode())


def _header_text(header: bytes, label: str) -> str:
    try:
        text = header.decode("utf-8")
        if "%" not in text:
            return text
        if BAD_PERCENT.search(text):
            raise BadRequest(
                f"The header {label} has a malformed percent-encoding. Encode the value as "
                "UTF-8, percent-encoded.",
                param=label,
            )
        decoded_text = unquote(text, errors="strict")
        if NUL in decoded_text:
            raise BadRequest(f"The header {label} {HAS_NUL}", param=label)
        return decoded_text
    except UnicodeDecodeError as e:
        raise BadRequest(
            f"The header {label} is not UTF-8. Encode the value as UTF-8, percent-encoded.",
            param=label,
        ) from e


def may_act_for(principal: Principal, user: str) -> str:
    """Return the user, for whom a caller may act. Raises Forbidden."""
    if principal.trusted or user == principal.default_user or principal.may_name(user):
        return user
    raise Forbidden(
        f"This key may not act for the user {user[:64]!r}. Use one of its own users, or a trusted "
        "key."
    )


def find_owner(principal: Principal, name: str) -> tuple[str, str]:
    """Return the owner of a memory by their name, and the agent if it is an agent's own.

    `agent:NAME` is that of an agent, and `user:agent:NAME` the user of such a name. Raises
    Forbidden.
    """
    owner, home = _read_owner(name)
    # An agent's own memory holds what others told it.
    is_operator = principal.trusted or principal.admin
    if not (is_operator if home else principal.may_name(owner)):
        raise Forbidden(
            f"This key may not reach the user {name[:64]!r}. Use one of its own users, or a "
            "trusted key.",
            param="user",
        )
    return owner, home


def _read_owner(name: str) -> tuple[str, str]:
    if name.startswith(AGENT_PREFIX):
        agent = name[len(AGENT_PREFIX) :]
        return home_of(agent), agent
    if name.startswith(USER_PREFIX) and name[len(USER_PREFIX) :].startswith(KINDS):
        return name[len(USER_PREFIX) :], ""
    return name, ""
