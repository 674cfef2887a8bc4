"""One request of a Letta client: who asks, what for, and the memory behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from gateway.auth.authenticator import Principal
from gateway.errors import Forbidden, ResourceNotFound, StoreDown
from gateway.http.asgi import Receive, Send
from gateway.http.json_thread import run_by_weight
from gateway.http.request_body import read_body
from gateway.letta.errors import Unprocessable
from gateway.letta.project import project_headers, with_project
from gateway.management.context import translate_errors
from gateway.management.tenant_proof import is_accepted_upstream
from gateway.state import GatewayState, headers_of, request_id
from gateway.wire.chat import Json
from gateway.wire.chat_request import parse
from memory import EditSource, Memory, management

T = TypeVar("T")
MIB = 1 << 20
# That the header lists.
DROPPED_NAMES = 40
YES = ("true", "1", "yes")


class LettaCall:
    """One request. tenant: whose agents. dropped_members: members that are not used, for the
    header.
    """

    def __init__(self, gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
        self.gateway = gateway
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers = with_project(headers_of(scope))
        self.principal = caller_of(gateway, self.headers)
        self.tenant = self.principal.tenant
        self.memory: Memory = gateway.memory
        # Of whose part of the memory the request is; "" for none.
        self.project = ""
        self.dropped_members: list[str] = []
        # Of the body, once it is read.
        self.size = 0
        query = scope.get("query_string", b"").decode("latin-1")
        self._query: dict[str, list[str]] = parse_qs(
            query, keep_blank_values=True, max_num_fields=1000
        )
        self._used_parameters: set[str] = set()

    @property
    def id(self) -> str:
        return request_id(self.scope)

    @property
    def runs_it(self) -> bool:
        """Whether the caller operates the gateway: an admin key, or this machine's local token."""
        return self.principal.admin or self.gateway.settings.is_keyless

    @property
    def may_manage(self) -> bool:
        """Whether the key may see and change all of its tenant's."""
        return self.principal.trusted or self.principal.admin

    def source(self, expect: int | None = None) -> EditSource:
        """Return who makes an edit. expect: the version that was seen, None for any."""
        return EditSource("api", self.id, expect=expect)

    def check_manager(self) -> None:
        """Raise Forbidden for a key that may not reach what others told an agent."""
        if not self.may_manage:
            raise Forbidden("Only trusted and admin keys may do this. Ask the operator.")

    def check_policy(self, *, writes: bool) -> None:
        """Raise Forbidden for what the key's own policy does not allow."""
        needed = "write" if writes else "read"
        principal = self.principal
        if not principal.admin and principal.memory not in ("full", needed):
            raise Forbidden(
                f"The memory policy of this key is {principal.memory!r}: it may not {needed} a "
                "memory. Use another key, or ask the operator.",
                code="policy",
            )

    async def check_tenant(self) -> None:
        """Raise Forbidden for a tenant that no upstream accepts (own-key mode), StoreDown."""
        with translate_errors():
            await self.memory.wait_until_ready()
        settings = self.gateway.settings
        if settings.mode != "own-key" or settings.single_user:
            return
        if await self.read(management.users.is_proven(self.memory, self.tenant)):
            return
        if not await is_accepted_upstream(self.gateway, self.principal):
            raise Forbidden("No upstream has accepted this key yet, so nothing is kept for it.")

    async def read(self, work: Awaitable[T]) -> T:
        """Await a result of the memory; its errors become the gateway's."""
        try:
            with translate_errors():
                await self.memory.wait_until_ready()
        except StoreDown:
            if isinstance(work, Coroutine):
                work.close()
            raise
        with translate_errors():
            return await work

    async def write(self, work: Awaitable[T]) -> T:
        """Await a change of the memory, and wake the worker, since it may have queued a job."""
        out = await self.read(work)
        self.gateway.worker.wake()
        return out

    async def raw_body(self) -> bytes:
        """Return the bytes of the body. Raises TooLarge, UnsupportedMedia, BadRequest."""
        limit = int(self.gateway.settings.server.max_body_mib * MIB)
        return await read_body(self.receive, self.headers, limit)

    async def body(self) -> Json:
        """Return the body, an object; {} for none. Raises TooLarge, BadRequest."""
        content = await self.raw_body()
        self.size = len(content)
        if content.strip():
            return await run_by_weight(content, parse, content)
        return {}

    def drop(self, names: Iterable[str]) -> None:
        """Note members that have no effect here."""
        self.dropped_members += [name for name in names if name not in self.dropped_members]

    def word(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        self._used_parameters.add(name)
        values = self._query.get(name)
        if values:
            return values[0]
        return default

    def words(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        self._used_parameters |= {name, f"{name}[]"}
        values = [*self._query.get(name, ()), *self._query.get(f"{name}[]", ())]
        return [word for value in values for word in value.split(",") if word]

    def flag(self, name: str) -> bool:
        return self.word(name).lower() in YES

    def number(self, name: str, default: int, max_number: int) -> int:
        """Return a number of the query. Raises Unprocessable."""
        text = self.word(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and int(text[:9]) >= 1):
            raise Unprocessable(f"`{name}` is {text[:40]!r}: give a number from 1.", param=name)
        return min(int(text[:9]), max_number)

    def headers_out(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of an answer of ours."""
        out = [(b"x-mnemogate-request-id", self.id.encode()), (b"x-memory-status", b"off")]
        out.append((b"x-memory-reason", b"path"))
        unused = [
            *self.dropped_members,
            *(name for name in self._query if name not in self._used_parameters),
        ]
        out += project_headers(self.project)
        if header_names := listable(unused):
            out.append((b"x-mnemogate-dropped", ", ".join(header_names).encode()))
        return out


def listable(names: Iterable[str]) -> list[str]:
    """Return the names of members that a header can list."""
    valid_names = [
        n for n in dict.fromkeys(names) if n.isascii() and n.isprintable() and "," not in n
    ]
    return [n[:60] for n in valid_names[:DROPPED_NAMES]]


def caller_of(gateway: GatewayState, headers: Any) -> Principal:
    """Return the principal of a request. Raises Unauthenticated, Unavailable.

    Where no key is needed, agents are as private as the management of a memory: the local token
    opens both. It is no provider's key: the last one that this person's other programs sent is
    used, as by background work.
    """
    settings = gateway.settings
    if not settings.is_keyless or settings.server.letta_open:
        return gateway.keys.caller(headers)
    principal = gateway.keys.manager(headers)
    if settings.mode == "own-key":
        credential = gateway.credentials.get(principal.tenant)
        return msgspec.structs.replace(principal, authorization=credential)
    return principal


def missing(kind: str, name: str) -> ResourceNotFound:
    """Return the error for a name of nothing here."""
    return ResourceNotFound(f"There is no {kind} {name[:64]!r}.")
