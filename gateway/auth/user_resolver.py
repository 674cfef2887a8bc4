"""The user a request is about, as the key allows. Anything unclear is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
            if source == "header" and b"x-memory-user" not in headers:
                continue
            for value in self._values(source, headers, path, body):
                if value is None:
                    continue
                if (name := self._check_value(value, source)) is not None:
                    return name
        return None

    def _values(
        self, source: str, headers: Headers, path: str | None, body: Mapping[str, Any]
    ) -> list[Any]:
        if source == "header":
            return [header_text(headers, b"x-memory-user")]
        if source == "path":
            return [path]
        if source == "alias":
            return [header_text(headers, h) for h in self._alias]
        return [body.get(source)]

    def _check_value(self, value: Any, source: str) -> str | None:
        if type(value) is int:
            value = str(value)
        if not isinstance(value, str) or not (value := value.strip()):
            return None
        if value.casefold() in self._placeholders:
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


def header_text(headers: Headers, name: bytes) -> str | None:
    """Return a header's value, percent-encoded UTF-8, decoded.

    Raises BadRequest for a malformed one.
    """
    header = headers.get(name)
    if header is None:
        return None
    label = name.decode()
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
