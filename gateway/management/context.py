"""The context of a management request: caller, reachable scope, and the store.

Anything unclear is refused. The tenant comes from the key, except for an admin's `?tenant=`; a key
that is not trusted only reaches its own users; in own-key mode a tenant that no upstream has
accepted manages nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from gateway.auth.authenticator import Principal
from gateway.auth.project_names import check_project_name, forbidden_project
from gateway.auth.user_resolver import HAS_NUL, NUL, USER_CHARACTERS, find_owner
from gateway.errors import (
    BadRequest,
    Forbidden,
    GatewayError,
    InsufficientStorage,
    RequestConflict,
    ResourceNotFound,
    StoreDown,
    TooLarge,
)
from gateway.http.access_log import current_line
from gateway.http.paths import segment
from gateway.limits.running_imports import RunningImports
from gateway.management import schemas, sent_bodies
from gateway.management.tenant_proof import is_accepted_upstream
from gateway.state import GatewayState, request_id
from memory import (
    KIND_MARK,
    EditSource,
    ManagementActor,
    Memory,
    Scope,
    VisibleScopes,
    management,
    memory_name,
)
from memory import errors as faults
from memory.export_format import BadLine, TooManyLines

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
# Where a body was not read to its end.
CLOSE = [(b"connection", b"close")]
# Of a page; encoding them takes the event loop some ms.
PAGE_CHARACTERS = 4 << 20
MIB = 1 << 20
# Limit of a request about one object.
JSON_MIB = 8
# Option of a route that has something to show without the store.
STORE_OPTIONAL = "store_optional"
# Option of a route that asks an upstream about a tenant not seen yet.
PROVES_TENANT = "proves_tenant"
EVERY = "*"  # ?tenant=* of an admin key: every tenant
PageLimit = Annotated[int, QueryParameter(ge=1, le=200, description="entries a page")]
Cursor = Annotated[str | None, QueryParameter(description="the next_cursor of the page before")]


class ManagementRequest:
    """One request: its key, and the tenant it may reach."""

    def __init__(
        self, request: Request[Any, Any, Any], principal: Principal, tenant: str | None
    ) -> None:
        self.request, self.principal = request, principal
        self.gateway: GatewayState = request.app.state.gateway
        self.memory: Memory = self.gateway.memory
        self.asked_tenant = tenant
        self.tenant = tenant or principal.tenant
        self.must_be_empty = False  # its body, which is looked at once the caller may do it

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that say of which version a change is."""
        return self.request.headers

    @property
    def actor(self) -> str:
        """Who makes a change: the CLI if it says so, else the API."""
        return "cli" if self.request.headers.get("x-mnemogate-actor") == "cli" else "api"

    @property
    def reach(self) -> VisibleScopes:
        """What is visible by id. An admin key that names no tenant sees all of them."""
        everywhere = self.principal.admin and self.asked_tenant in (None, EVERY)
        return VisibleScopes(None if everywhere else self.tenant, self.principal.only)

    async def read(self, work: Awaitable[T]) -> T:
        """Await a result of the memory; errors become those of `translate_errors`.

        A route that takes no body refuses what one says first, once the caller may do what it does.
        """
        try:
            if self.must_be_empty:
                self.must_be_empty = False
                await sent_bodies.check_empty(await self.body())
            await self.check_store()
        except GatewayError:
            if isinstance(work, Coroutine):
                work.close()
            raise
        with translate_errors():
            return await work

    async def check_store(self) -> None:
        """Raise StoreDown while the store is known not to answer."""
        with translate_errors():
            await self.memory.wait_until_ready()

    async def write(self, work: Awaitable[T]) -> T:
        """Await a change of the memory, and wake the worker, since it may have queued a job."""
        out = await self.read(work)
        self.gateway.worker.wake()
        return out

    async def body(self) -> bytes:
        """Return the request's body. Raises TooLarge, UnsupportedMedia, BadRequest."""
        return await self._body(JSON_MIB, "this request may have. Send less at once.")

    async def _body(self, mib: float, limit_text: str) -> bytes:
        """Read a body of at most `mib` MiB.

        limit_text: how the error describes that limit, if it is lower than the general one.
        """
        general_mib = self.gateway.settings.server.max_body_mib
        try:
            return await sent_bodies.read_limited(self.request, min(mib, general_mib))
        except TooLarge as e:
            if mib >= general_mib:
                raise
            raise TooLarge(
                f"The body is larger than {int(mib * MIB)} bytes, the most that {limit_text}",
                headers=e.headers,
            ) from e

    @property
    def runs_it(self) -> bool:
        """Whether the caller operates the gateway: an admin key, or this machine's local token."""
        settings = self.gateway.settings
        return self.principal.admin or settings.is_keyless

    @property
    def rows(self) -> int | None:
        """How many rows the caller may import at once; None for any number."""
        return None if self.runs_it else self.gateway.settings.memory.import_rows

    async def much(self) -> bytes:
        """Return the body of an import. Raises TooLarge, UnsupportedMedia, BadRequest."""
        settings = self.gateway.settings
        mib = settings.server.max_body_mib if self.runs_it else settings.memory.import_mib
        return await self._body(
            mib,
            "this key may import at once. Send it in several parts, use an admin key, or raise "
            "memory.import_mib.",
        )

    async def parse_body(self, model: type[S], *, may_be_empty: bool = False) -> S:
        """Return the body as this model. Raises BadRequest, and what `body` raises."""
        body = await self.body()
        if may_be_empty and not body.strip():
            return model()
        return await sent_bodies.parse_by_weight(body, model)


class UserContext:
    """A request about one user's memory."""

    def __init__(self, caller: ManagementRequest, scope: Scope, actor: str = "") -> None:
        self.caller, self.scope, self.actor = caller, scope, actor
        self.user = scope.user or ""
        self.memory: Memory = caller.memory
        self.defaults = caller.memory.policy.blocks
        self.read, self.write, self.asked = caller.read, caller.write, caller.parse_body

    def hand(self, actor: str | None = None) -> ManagementActor:
        """Return who edits this memory: the dashboard, the CLI if it says so, or the API."""
        actor_name = actor or self.actor or self.caller.actor
        source = EditSource(actor_name, request_id(self.caller.request.scope))
        return ManagementActor(self.scope, self.defaults, source)

    @property
    def agent(self) -> str | None:
        """The requested memory by its name; None if a route means all of the user's."""
        parameters = self.caller.request.query_params
        if parameters.get("project"):
            return memory_name(parameters.get("agent") or "default", self.scope.project)
        return parameters.get("agent")


AtDoor = NamedDependency[ManagementRequest]
AtUser = NamedDependency[UserContext]


async def caller(
    request: Request[Any, Any, Any], tenant: FromQuery[str | None] = None
) -> ManagementRequest:
    """Return the context of a request. Raises Unauthenticated, Forbidden, StoreDown."""
    gateway: GatewayState = request.app.state.gateway
    principal = gateway.keys.manager(dict(request.scope["headers"]))
    check_parameters(request)
    management_request = await open_request(request, principal, tenant)
    management_request.must_be_empty = not sent_bodies.takes_body(request)
    return management_request


def running_imports(request: Request[Any, Any, Any]) -> RunningImports:
    """Return the imports that run in this gateway."""
    imports: RunningImports = request.app.state.imports
    return imports


def check_parameters(request: Request[Any, Any, Any]) -> None:
    """Raise BadRequest for a query parameter that the route does not have.

    One that is ignored in silence answers something else than was asked.
    """
    parameters = request.query_params
    if not parameters:
        return
    known_names = _parameters_of(request.route_handler, frozenset(request.path_params))
    for name in parameters:
        if name not in known_names:
            known_list = ", ".join(sorted(known_names))
            raise BadRequest(
                f"The query parameter `{name[:60]}` is unknown here; known are: {known_list}.",
                param=name[:60],
            )


@lru_cache(256)
def _parameters_of(handler: Any, path_parameters: frozenset[str]) -> frozenset[str]:
    """Return the names of a route's query parameters, those of its dependencies included."""
    model = handler.create_kwargs_model(dict.fromkeys(path_parameters))
    return frozenset([parameter.field_alias for parameter in model.expected_query_params])


async def open_request(
    request: Request[Any, Any, Any], principal: Principal, tenant: str | None
) -> ManagementRequest:
    """Return the context of what a principal asks. Raises Forbidden, StoreDown.

    tenant: the one that an admin key names.
    """
    gateway: GatewayState = request.app.state.gateway
    if tenant is not None and tenant != principal.tenant and not principal.admin:
        raise Forbidden("Only an admin key may name a tenant with ?tenant=.", param="tenant")
    if tenant is not None:
        check_name(tenant, "tenant")
    _check_policy(principal, request.method)
    management_request = ManagementRequest(request, principal, tenant)
    if not request.route_handler.opt.get(STORE_OPTIONAL):
        await management_request.check_store()
    settings = gateway.settings
    if (
        settings.mode == "own-key"
        and not settings.single_user
        and not await management_request.read(
            management.users.is_proven(management_request.memory, principal.tenant)
        )
        and not (
            request.route_handler.opt.get(PROVES_TENANT)
            and await is_accepted_upstream(gateway, principal)
        )
    ):
        raise Forbidden(
            "No upstream has accepted this key yet, so there is nothing to manage with it. "
            "Send a chat completion with it first."
        )
    return management_request


def _check_policy(principal: Principal, method: str) -> None:
    """Raise Forbidden for what the key's own policy does not allow."""
    needed = "read" if method in ("GET", "HEAD") else "write"
    if not principal.admin and principal.memory not in ("full", needed):
        raise Forbidden(
            f"The memory policy of this key is {principal.memory!r}: it may not {needed} a memory. "
            "Use another key, or ask the operator.",
            code="policy",
        )


async def context(
    caller: AtDoor,
    user: FromPath[str],
    agent: FromQuery[str] = "default",
    project: FromQuery[str] = "",
) -> UserContext:
    """Return the context of a request about one user. Raises BadRequest, Forbidden."""
    user_context = await with_agents_blocks(open_user(caller, segment(user), agent))
    return await in_project(user_context, project) if project.strip() else user_context


async def in_project(user_context: UserContext, project: str) -> UserContext:
    """Return the context of a user's memory in a project. Raises BadRequest, Forbidden.

    A key that is not trusted names those alone that its user may name.
    """
    scope, caller = user_context.scope, user_context.caller
    name = check_project_name(check_name(project, "project"))
    user_context.scope = replace(scope, agent=memory_name(scope.agent, name))
    user_context.defaults = caller.memory.policy.blocks_in(name)
    if not (caller.principal.trusted or caller.principal.admin) and not await user_context.read(
        management.layers.may_name(caller.memory, user_context.scope)
    ):
        raise forbidden_project(name, scope.user)
    return user_context


async def with_agents_blocks(user_context: UserContext) -> UserContext:
    """Return the context with the blocks that the agent's profile describes, if it has one.

    Raises Forbidden: a key that is not trusted names those agents alone that it may call.
    """
    directory, scope = user_context.caller.gateway.agents, user_context.scope
    principal = user_context.caller.principal
    if scope.agent != "default":
        agent = await user_context.read(directory.find(scope.tenant, scope.agent, certain=False))
        if not (principal.trusted or principal.admin):
            directory.check_named(principal, scope.agent, agent)
        if agent is not None:
            user_context.defaults = directory.policy_of(agent).blocks
    return user_context


def open_user(caller: ManagementRequest, user: str, agent: str, actor: str = "") -> UserContext:
    """Return the context of what a caller asks about a user. Raises BadRequest, Forbidden.

    actor: who edits, where the request does not say it.
    """
    if caller.tenant == EVERY:
        raise BadRequest(
            "`tenant` is '*', but a user belongs to one tenant: name it.", param="tenant"
        )
    # As requests do.
    name = check_name(user.strip(), "user")
    owner, home = find_owner(caller.principal, name)
    current_line().user = name
    agent = check_name(agent, "agent").lstrip(KIND_MARK)
    if len(agent) > 256:
        raise BadRequest(
            f"`agent` has {len(agent)} characters; at most 256 are allowed.", param="agent"
        )
    if home and agent == "default":
        agent = home
    scope = Scope(caller.tenant, owner, agent, caller.gateway.secret)
    return UserContext(caller, scope, actor)


def check_name(name: str, parameter: str) -> str:
    """Return a name that can be stored. Raises BadRequest."""
    if not name.strip() or len(name) > USER_CHARACTERS:
        raise BadRequest(
            f"`{parameter}` has {len(name)} characters; 1 to {USER_CHARACTERS} are allowed, not "
            "all of them blank.",
            param=parameter,
        )
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as e:
        raise BadRequest(
            f"`{parameter}` is not valid UTF-8, percent-encoded.", param=parameter
        ) from e
    if NUL in name:
        raise BadRequest(f"`{parameter}` {HAS_NUL}", param=parameter)
    return name


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the memory's errors as errors of this API."""
    try:
        yield
    except (faults.MemoryFault, faults.ToolError, BadLine) as e:
        raise _limit_error(e) or _file_error(e) or _translate(e) from e


# By the error: the setting that it is about, and its code.
SPACE_LIMITS: dict[type[Exception], tuple[str, str]] = {
    faults.TooManyBlocks: ("memory.blocks_per_user", "too_many_blocks"),
    faults.BlockSpaceFull: ("memory.block_characters", "block_space"),
    faults.TooManyAgents: ("memory.agents_per_tenant", "too_many_agents"),
}


def _limit_error(error: Exception) -> GatewayError | None:
    """Return the error of a limit that the operator can raise, None for another one."""
    if (limit := SPACE_LIMITS.get(type(error))) is None:
        return None
    setting, code = limit
    return RequestConflict(f"{_sentence(error)} The operator can raise {setting}.", code=code)


def _file_error(error: Exception) -> GatewayError | None:
    """Return the error of an upload, None for another one."""
    message = _sentence(error)
    match error:
        case faults.TooManyFiles():
            return RequestConflict(f"{message}, or raise per_user.", code="too_many_files")
        case faults.FilesFull():
            return InsufficientStorage(f"{message}, or raise quota_mib.", code="files_quota")
        case faults.FileTooLarge():
            return TooLarge(f"{message}. Send less, or raise max_mib.", headers=CLOSE)
        case faults.BadFileName():
            return BadRequest(message, code="invalid_name", param="name")
    return None


def _sentence(error: Exception) -> str:
    message = str(error)
    return message[:1].upper() + message[1:]


def _translate(error: Exception) -> GatewayError:
    message = _sentence(error)
    match error:
        case faults.AmbiguousName():
            return RequestConflict(
                f"{message}. Name the owner with ?user= (and ?agent=, ?tenant=).",
                param="user",
                code="ambiguous",
            )
        case faults.NotFound() | faults.UnknownBlock():
            return ResourceNotFound(message)
        case faults.TooManySharers():
            return RequestConflict(message, code="too_many_members")
        case faults.Conflict() | faults.ErasedMeanwhile():
            return RequestConflict(message)
        case faults.BlockReadOnly():
            return Forbidden(message, code="block_read_only")
        case faults.BlockFull():
            return BadRequest(message, code="block_full", param="value")
        case faults.ToolError():
            return BadRequest(message)
        case TooManyLines():
            return TooLarge(message, code="too_many_rows")
        case BadLine():
            return BadRequest(message, code="bad_line")
    return StoreDown(
        f"The memory store is down: {error}. Nothing is remembered until it is back. Run "
        "`mnemogate doctor` where the gateway runs: it names what is wrong and what mends it.",
        headers=[(b"retry-after", b"1")],
    )


def window(
    rows: list[T],
    limit: int,
    place: Callable[[T], Any],
    weigh: Callable[[T], int] = lambda _: 0,
) -> tuple[list[T], str | None]:
    """Return one page of rows and the cursor to the rest.

    rows: up to one more than `limit`. weigh: a row's characters; a page has fewer rows if they are
    long.
    """
    page_size, weight = min(len(rows), limit), 0
    for index, row in enumerate(rows[:page_size]):
        weight += weigh(row)
        if index and weight > PAGE_CHARACTERS:
            page_size = index
            break
    if page_size == len(rows):
        return rows, None
    return rows[:page_size], schemas.cursor_of(place(rows[page_size - 1]))
