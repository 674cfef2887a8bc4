"""Who calls: the tenant from the key, and what the key may do.

Anything unclear is refused. The tenant never comes from the body. A key that is not trusted speaks
only for its own users, however the user is named. Keys are compared by hash and never stored.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from gateway.auth.key_store import PREFIX, KeyStore, digest_of
from gateway.config.addresses import nearby
from gateway.config.settings import Budget, KeyGrant, LimitSettings, Settings
from gateway.errors import Forbidden, Unauthenticated, Unavailable
from gateway.http.access_log import current_line
from gateway.storage.key_probe import NONE
from memory import AGENT_KIND

# What a client without a key sends to a server of this machine that needs none.
NO_KEY = b"none"
CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
# The tenant of single-user mode.
LOCAL = "local"
# That of open mode for several users.
OPEN = "open"
Headers = Mapping[bytes, bytes]
UNLIMITED = LimitSettings()
UNBOUNDED = Budget()


class KeyTools(msgspec.Struct, frozen=True):
    """Patterns of the operator's tools: what a key grants, and what its requests have at most.

    digest: of the managed key, "" for none.
    """

    granted: tuple[str, ...] = ()
    most: tuple[str, ...] = ("*",)
    digest: str = ""


NO_TOOLS = KeyTools()


class Principal(msgspec.Struct, frozen=True):
    """The caller behind a key. authorization: the client's own, forwarded in own-key mode only.

    paths: what it may reach on the relay beyond the stateless paths; None: everything. memory: the
    highest mode of its requests. agents: patterns of the agents that it may call.
    tools: of the operator, that it grants and allows.
    approve: whether it decides on calls that wait for a person.

    A Struct, since a frozen dataclass with so many members takes six times as long to create.
    """

    tenant: str
    key: str
    trusted: bool = True
    admin: bool = False
    users: frozenset[str] = frozenset()
    default_user: str = ""
    models: tuple[str, ...] = ("*",)
    authorization: bytes | None = None
    limits: LimitSettings = UNLIMITED
    budget: Budget = UNBOUNDED
    paths: tuple[str, ...] | None = None
    memory: str = "full"
    agents: tuple[str, ...] = ("*",)
    tools: KeyTools = NO_TOOLS
    approve: bool = False

    @property
    def limited(self) -> bool:
        """Whether the model of a request matters: for allowed models, or for a budget."""
        return "*" not in self.models or self.budget.usd > 0

    def may_name(self, user: str) -> bool:
        return (
            self.trusted
            or self.admin
            or user in self.users
            or (bool(self.default_user) and user == self.default_user)
        )

    @property
    def only(self) -> list[str] | None:
        """The users that this key may see in lists; None for all users of its tenant."""
        if self.trusted or self.admin:
            return None
        return sorted(self.users | ({self.default_user} if self.default_user else set()))


class Authenticator:
    """Turns credentials into principals.

    secret: the server's, for the tenants of own-key mode. token: the local token, where clients
    need no key. key_store: the keys created at run time.
    """

    def __init__(self, settings: Settings, secret: bytes, token: str, key_store: KeyStore) -> None:
        self._settings = settings
        self._secret = secret
        self._token = token
        self.key_store = key_store
        # kept: read several times a request
        self._mode = settings.mode
        self._is_single_user = settings.single_user
        # Each client brings its provider's key.
        self.own = self._mode == "own-key"
        self._keyless = settings.is_keyless
        self._needs_no_key = self._is_single_user and all(
            nearby(urlsplit(provider.base_url).hostname or "")
            for provider in settings.providers.values()
        )
        self._tenants = frozenset(key.tenant for key in settings.keys)
        self._keys = {k.digest: k for k in settings.keys}
        # By digest; as many as keys.
        self._principals: dict[str, tuple[KeyGrant, Principal]] = {}

    @property
    def serves_several_tenants(self) -> bool:
        """Whether tenants have to share what this gateway has, such as connections."""
        if self._mode == "managed":
            stored_tenants = self.key_store.tenants
            # The last one only where both have at most one.
            return (
                len(self._tenants) > 1
                or len(stored_tenants) > 1
                or len(self._tenants.union(stored_tenants)) > 1
            )
        return self._mode == "own-key" and not self._is_single_user

    @property
    def admins(self) -> int:
        """How many keys may manage every tenant, including the keys themselves."""
        return sum(key.admin for key in self._settings.keys) + self.key_store.admins

    def caller(self, headers: Headers) -> Principal:
        """Return the principal of a request to `/v1`.

        Raises Unauthenticated; Unavailable if the keys have not been read yet.
        """
        principal = self._caller(headers)
        current_line().key = principal.key
        return principal

    def _caller(self, headers: Headers) -> Principal:
        credential = bearer(headers)
        mode = self._mode
        if mode == "managed":
            if credential is None:
                raise Unauthenticated(
                    "No API key given. Send a Mnemogate key as `Authorization: Bearer ...`."
                )
            return self._principal_of(digest_of(credential))
        user = "me" if self._is_single_user else ""
        if mode == "open":
            return Principal(self._keyless_tenant, "open", default_user=user)
        if self._needs_no_key and not any(headers.get(name, b"").strip() for name in CREDENTIALS):
            credential = NO_KEY
        if credential is None:
            raise Unauthenticated(
                "No API key given. Send your provider's key as `Authorization: Bearer ...`; "
                "Mnemogate passes it on."
            )
        if (
            credential.startswith(PREFIX.encode())
            and self.key_store.get(digest_of(credential)) is not None
        ):
            raise Unauthenticated(
                "Mnemogate keys are not active yet: restart or reload the gateway. Until then, "
                "send your provider's API key."
            )
        if self._is_single_user and hmac.compare_digest(credential, self._token.encode()):
            raise Unauthenticated(
                "This is the local token of Mnemogate's management API, which is never sent "
                "upstream. Send your provider's API key."
            )
        authorization = headers.get(b"authorization") or b"Bearer " + credential
        if self._is_single_user:
            return Principal(LOCAL, "own", default_user=user, authorization=authorization)
        tenant = "own-" + hmac.digest(self._secret, b"tenant\x00" + credential, "sha256").hex()[:32]
        return Principal(tenant, "own", authorization=authorization)

    def find_tools(self, principal: Principal) -> KeyTools:
        """Return which of the operator's tools a key grants now; of a revoked one, none."""
        digest = principal.tools.digest
        if not digest:
            return principal.tools
        key: KeyGrant | None = self._keys.get(digest) or self.key_store.get(digest)
        return NO_TOOLS if key is None else self._principal_of(digest).tools

    def manager(self, headers: Headers) -> Principal:
        """Return the principal of a request to `/memory`. Raises Unauthenticated, Unavailable."""
        return _note_principal(self._manager(headers))

    def _manager(self, headers: Headers) -> Principal:
        if not self._keyless:
            if self._is_token(bearer(headers)):
                return self._owner
            return self._caller(headers)
        credential = bearer(headers)
        if credential is None or not hmac.compare_digest(credential, self._token.encode()):
            raise Unauthenticated(
                "Memory management on this machine needs the local token: send the contents of "
                "the `token` file of the data folder as `Authorization: Bearer ...`."
            )
        return self._token_holder()

    def _is_token(self, credential: bytes | None) -> bool:
        """Tell whether this is the local token, which managed keys leave valid on loopback."""
        token = self._token.encode()
        return bool(token) and credential is not None and hmac.compare_digest(credential, token)

    @property
    def _owner(self) -> Principal:
        """The owner of a gateway with managed keys, by the local token."""
        return Principal(LOCAL, "token", admin=True, default_user="me")

    @property
    def _keyless_tenant(self) -> str:
        if self._is_single_user:
            return LOCAL
        return OPEN

    def _token_holder(self) -> Principal:
        default_user = "me" if self._is_single_user else ""
        return Principal(self._keyless_tenant, "token", default_user=default_user)

    def session_name(self, headers: Headers) -> str:
        """Return a name for the caller in a session of the dashboard, without their key.

        Raises Unauthenticated, Unavailable.
        """
        principal = self.manager(headers)
        credential = bearer(headers) or b""
        if self._keyless or self._is_token(credential):
            return f"token {digest_of(credential)}"
        if self._mode == "managed":
            return f"key {digest_of(credential)}"
        return f"tenant {principal.tenant}"

    def resume(self, name: str) -> Principal:
        """Return the principal of a session, as `session_name` named it.

        Raises Unauthenticated for a key that was revoked or a mode that has changed.
        """
        kind, _, value = name.partition(" ")
        if kind == "key" and self._mode == "managed":
            return _note_principal(self._principal_of(value))
        token_digest = ""
        if self._token:
            token_digest = digest_of(self._token.encode())
        is_owner = (
            kind == "token" and bool(token_digest) and hmac.compare_digest(value, token_digest)
        )
        if is_owner and self._mode == "managed":
            return _note_principal(self._owner)
        if self._mode != "managed" and kind == ("token" if self._keyless else "tenant"):
            if not self._keyless:
                return _note_principal(Principal(value, "own"))
            if hmac.compare_digest(value, digest_of(self._token.encode())):
                return _note_principal(self._token_holder())
        raise Unauthenticated("This session has ended. Sign in again.")

    def operator(self, headers: Headers) -> Principal:
        """Return the principal of whoever runs this gateway: an admin key or the local token.

        Raises Unauthenticated, Unavailable, Forbidden.
        """
        principal = self.manager(headers)
        if not (principal.admin or self._keyless):
            raise Forbidden(
                "Only an admin key may read this. Send one as `Authorization: Bearer ...`, or "
                'set telemetry.metrics = "open".'
            )
        return principal

    def _principal_of(self, digest: str) -> Principal:
        key: KeyGrant | None = self._keys.get(digest) or self.key_store.get(digest)
        if key is None:
            if not self.key_store.read and self._settings.key_counts != NONE:
                raise Unavailable(
                    "The database that holds the keys is not open yet. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                )
            raise Unauthenticated("Unknown API key. Check it, or ask the operator for one.")
        key_and_principal = self._principals.get(digest)
        if key_and_principal is None or key_and_principal[0] is not key:
            key_and_principal = self._principals[digest] = (
                key,
                _principal_behind(key, digest),
            )
        return key_and_principal[1]


def _principal_behind(key: KeyGrant, digest: str) -> Principal:
    return Principal(
        key.tenant,
        key.name,
        key.trusted,
        key.admin,
        frozenset(key.users),
        # No user is an agent's own memory.
        key.default_user.lstrip(AGENT_KIND[0]),
        key.models,
        limits=key.limits,
        budget=key.budget,
        paths=key.paths,
        memory=key.memory,
        agents=key.agents,
        tools=KeyTools(key.tools, key.tools_max, digest),
        approve=key.approve,
    )


def _note_principal(principal: Principal) -> Principal:
    """Note the key in the request's line of the access log."""
    current_line().key = principal.key
    return principal


def bearer(headers: Headers) -> bytes | None:
    """Return the credential that a client sent; None if there is none."""
    if (value := headers.get(b"authorization")) is not None:
        scheme, _, credential = value.partition(b" ")
        if scheme.lower() == b"bearer":
            return credential.strip() or None
        return value.strip() or None
    return headers.get(b"x-api-key", b"").strip() or None
