"""Managed keys over HTTP: list, create, revoke; for admin keys only.

In single-user mode the machine's local token may create the first ones. The mode is decided when
the gateway starts, so the answer then says that keys are required from the next start on. In
own-key mode a key belongs to a client's provider and gives no access.
"""

from __future__ import annotations

from typing import Any, TypeVar

from litestar import delete, get, post
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody
from litestar.params import FromPath
from pydantic import ValidationError

from gateway.auth.key_store import new_key, parse_grant
from gateway.config.settings import KeyGrant
from gateway.config.validation import describe_validation_errors
from gateway.errors import BadRequest, Forbidden, RequestConflict
from gateway.http.paths import segment
from gateway.management.context import EVERY, AtDoor, Cursor, ManagementRequest, PageLimit, window
from gateway.management.key_schemas import Key, MadeKey, RevokedKey
from gateway.management.schemas import Page, place_of
from gateway.storage import api_keys
from gateway.wire.chat_request import parse
from memory import iso

K = TypeVar("K", bound=Key)
# Of a grant.
TOLD_FAULTS = 5
FROM_NEXT_START = (
    "This gateway stays in single-user mode until it is restarted or its configuration is "
    "reloaded; then every request needs a managed key. What it remembers until then belongs "
    "to the tenant 'local'."
)
NO_ADMIN = (
    "No admin key is left, so no keys can be created or revoked through a running gateway: "
    "stop it and run `mnemogate keys create --admin`."
)


def inline_schema(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a JSON schema of pydantic without references."""
    if isinstance(schema, list):
        return [inline_schema(x, definitions) for x in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        resolved = {**definitions[schema["$ref"].rsplit("/", 1)[1]], **schema}
    else:
        resolved = schema
    return {
        name: inline_schema(value, definitions)
        for name, value in resolved.items()
        if name not in ("$ref", "$defs")
    }


class TakingGrant(Operation):
    """An operation whose body says what a key may do, with the members of [[keys]]."""

    def __init__(self, **members: Any) -> None:
        schema = KeyGrant.model_json_schema()
        body = RequestBody(
            {
                "application/json": OpenAPIMediaType(
                    schema=inline_schema(schema, schema.get("$defs", {}))
                )
            },
            required=True,
        )
        super().__init__(**{**members, "request_body": body})


def _operator(caller: ManagementRequest) -> None:
    """Raise Forbidden if the caller may not manage keys."""
    settings = caller.gateway.settings
    if settings.mode == "managed":
        if not caller.principal.admin:
            raise Forbidden(
                "Only an admin key may list, create or revoke keys. Without one: stop the gateway "
                "and run `mnemogate keys create --admin`, which then writes to the database "
                "directly."
            )
    elif not settings.single_user:
        raise Forbidden(
            "Keys are not managed here yet. Stop the gateway, run `mnemogate keys create "
            "--admin` on its machine, and start it again: it then requires managed keys."
        )


@get(
    "/keys", summary="The managed keys, those of the configuration first; never the keys themselves"
)
async def list_keys(caller: AtDoor, cursor: Cursor = None, limit: PageLimit = 50) -> Page[Key]:
    _operator(caller)
    after = place_of(cursor, tuple[float, str])
    tenant = None if caller.asked_tenant in (None, EVERY) else caller.tenant
    # Configured keys have no creation time: they come first, by name.
    placed_keys = [
        (_to_schema(Key, key), (0.0, key.name))
        for key in sorted(caller.gateway.settings.keys, key=lambda key: key.name)
        if tenant in (None, key.tenant) and (after is None or (0.0, key.name) > after)
    ]
    stored_keys = await caller.read(api_keys.list_keys(caller.memory.db, tenant, after, limit + 1))
    placed_keys += [
        (_to_schema(Key, _readable(row), row), (row.created_at, row.id)) for row in stored_keys
    ]
    page, next_cursor = window(placed_keys[: limit + 1], limit, lambda entry: entry[1])
    return Page([key for key, _ in page], next_cursor)


@post(
    "/keys",
    status_code=200,
    summary="Create a key; only this response shows it",
    operation_class=TakingGrant,
)
async def create_key(caller: AtDoor) -> MadeKey:
    return await make_key(caller, await caller.body())


def is_first_key(caller: ManagementRequest) -> bool:
    """Tell whether a new key ends the mode without keys, and no admin key is there yet."""
    gateway = caller.gateway
    return gateway.settings.mode != "managed" and not gateway.keys.admins


async def make_key(caller: ManagementRequest, body: bytes) -> MadeKey:
    """Create a key. body: what it may do, as JSON. Raises BadRequest, Forbidden, Unavailable."""
    _operator(caller)
    grant = _parse_grant(body)
    if grant.name in (key.name for key in caller.gateway.settings.keys):
        raise RequestConflict(
            f"A key named {grant.name!r} exists in the configuration: choose another name.",
            param="name",
        )
    text, digest = new_key()
    spec = grant.model_dump_json(exclude={"name", "tenant"})
    row = await caller.write(
        api_keys.create_key(caller.memory.db, grant.name, grant.tenant, digest, spec)
    )
    await caller.gateway.keys.key_store.adopt(digest, grant)
    return _to_schema(
        MadeKey,
        grant,
        row,
        key=text,
        note=None if caller.gateway.settings.mode == "managed" else FROM_NEXT_START,
    )


@delete(
    "/keys/{ident:str}",
    status_code=200,
    summary="Revoke a key, by its id or name",
)
async def revoke_key(caller: AtDoor, ident: FromPath[str]) -> RevokedKey:
    return await withdraw_key(caller, segment(ident))


async def withdraw_key(caller: ManagementRequest, ident: str) -> RevokedKey:
    """Revoke a key. ident: its id or name. Raises Forbidden, RequestConflict, Unavailable."""
    _operator(caller)
    if ident in (key.name for key in caller.gateway.settings.keys):
        raise RequestConflict(
            f"The key {ident!r} is part of the configuration: remove it there, and reload "
            "(SIGHUP) or restart."
        )
    row = await caller.write(api_keys.revoke_key(caller.memory.db, ident))
    await caller.gateway.keys.key_store.adopt(row.digest, None)
    if row.name == caller.principal.key and caller.principal.admin:
        notes = ["This request used that key."]
    else:
        notes = []
    if caller.gateway.settings.mode == "managed" and not caller.gateway.keys.admins:
        notes.append(NO_ADMIN)
    return _to_schema(RevokedKey, _readable(row), row, note=" ".join(notes) or None)


def _parse_grant(body: bytes) -> KeyGrant:
    """Parse a grant. Raises BadRequest naming the member and its value."""
    # Raises for invalid JSON, as for every body.
    parse(body)
    try:
        return KeyGrant.model_validate_json(body, strict=True)
    except ValidationError as e:
        faults = describe_validation_errors(e, KeyGrant, limit=TOLD_FAULTS)
        raise BadRequest(
            "; ".join(f"{'.'.join(path) or 'the body'}: {text}" for path, text in faults),
            param=".".join(faults[0][0]) or None,
        ) from e


def _readable(row: api_keys.StoredKey) -> KeyGrant:
    """Return what a stored key may do; nothing, if its row cannot be read."""
    return parse_grant(row) or KeyGrant.model_construct(
        name=row.name, tenant=row.tenant, trusted=False, models=(), agents=()
    )


def _to_schema(
    shape: type[K], grant: KeyGrant, row: api_keys.StoredKey | None = None, **members: Any
) -> K:
    """Return a key as the API shows it, without the key itself.

    row: None for a configured key.
    """
    return shape(
        id=row.id if row else None,
        name=grant.name,
        tenant=grant.tenant,
        trusted=grant.trusted,
        users=list(grant.users),
        default_user=grant.default_user,
        admin=grant.admin,
        models=list(grant.models),
        agents=list(grant.agents),
        approve=grant.approve,
        paths=list(grant.paths),
        memory=grant.memory,
        limits=grant.limits.model_dump(),
        budget=grant.budget.model_dump(),
        source="made" if row else "config",
        created_at=iso(row.created_at) if row else None,
        revoked_at=iso(row.revoked_at) if row and row.revoked_at else None,
        **members,
    )


ROUTES = (list_keys, create_key, revoke_key)
