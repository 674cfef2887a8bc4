"""What may be written into an agent's profile, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from pydantic import ValidationError

from gateway.auth.authenticator import Principal
from gateway.config.agents import ID, AgentSettings, check_agent_name
from gateway.config.validation import describe_validation_errors
from gateway.errors import BadRequest, Forbidden
from gateway.http.json_thread import run_by_weight
from gateway.management.context import EVERY
from gateway.routing.agents import settings_of
from gateway.routing.router import is_model_allowed
from gateway.state import GatewayState
from gateway.tools.grants import Grants, limits_of
from gateway.wire.chat import Json, encode
from gateway.wire.chat_request import parse
from gateway.wire.json_weight import is_readable
from memory import BaseRule, InvalidRule, parse_rules

PROFILE_BYTES = 256 << 10
# Each may be a fault of its own, which are all found in one step.
PROFILE_VALUES = 10_000
# Of a profile.
TOLD_FAULTS = 5
# Members of the object that the gateway itself gives it: a profile that was read can be sent back.
GIVEN = frozenset(
    {"object", "id", "name", "source", "version", "created_at", "updated_at", "updated_by"}
)


class ProfileMaker(Protocol):
    """Who makes a profile. runs_it: they operate the gateway."""

    tenant: str

    @property
    def gateway(self) -> GatewayState: ...

    @property
    def principal(self) -> Principal: ...

    @property
    def runs_it(self) -> bool: ...


def check_maker(caller: ProfileMaker) -> None:
    """Raise Forbidden or BadRequest for a caller who may make no agents."""
    principal = caller.principal
    if not (principal.trusted or principal.admin):
        raise Forbidden(
            "Only trusted and admin keys make, change and delete agents. Ask the operator.",
        )
    if caller.tenant == EVERY:
        raise BadRequest("An agent belongs to one tenant: name it.", param="tenant")


def check_new_name(name: str) -> None:
    """Raise BadRequest for a name that no agent may have."""
    try:
        check_agent_name(name)
    except ValueError as e:
        code = "reserved_name" if "form of an agent's id" in str(e) else None
        text = str(e)
        raise BadRequest(
            f"`name` is {name[:64]!r}: {text[:1].lower()}{text[1:]}.", param="name", code=code
        ) from e


async def read_members(body: bytes, name: str) -> Json:
    """Return what `sent_members` does of a body's bytes, read in a thread if that takes long."""
    return sent_members(await run_by_weight(body, parse, body), name)


def sent_members(body: Any, name: str) -> Json:
    """Return the members of a profile that a body sets. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("The body must be an object.")
    is_id = ID.fullmatch(name) is not None
    if body.get("name", name) != name and body.get("id", name if is_id else None) != name:
        raise BadRequest(
            f"`name` is {str(body['name'])[:64]!r}, but the path names {name!r}: an agent keeps "
            "its name.",
            param="name",
        )
    return {member: value for member, value in body.items() if member not in GIVEN}


def check_profile(caller: ProfileMaker, members: Mapping[str, Any]) -> str:
    """Return a profile as it is stored. Raises BadRequest, Forbidden."""
    sent_json = _encode(members)
    if "tool_rules" in members:
        read_rules(members["tool_rules"], "tool_rules")
    profile = _parse(sent_json)
    router = caller.gateway.router
    _check_served(profile, lambda name: router.find(name) is not None)
    _check_rights(caller, profile)
    profile_json = profile.model_dump_json(exclude_none=True)
    _check_size(len(profile_json.encode()))
    return profile_json


def _check_size(size: int) -> None:
    """Raise BadRequest for a profile of so many bytes."""
    if size > PROFILE_BYTES:
        raise BadRequest(
            f"The profile has {size} bytes as JSON; at most {PROFILE_BYTES} are allowed. Shorten "
            "it.",
            code="profile_too_large",
        )


def check_restored(caller: ProfileMaker, profile_json: str) -> None:
    """Raise Forbidden for a profile that the caller may not write, though it once stood.

    An undone edit may have taken a tool or a model away, which whoever could not give it may not
    give back. A model that is no longer served is no fault: the profile stood as it is.
    """
    _check_rights(caller, settings_of(profile_json))


def may_grant_tool(caller: ProfileMaker, pattern: str) -> bool:
    """Tell whether a caller may grant an agent a tool, or all tools of a pattern.

    A pattern is taken as a name: what its own `*` stands for must be within one of the key's.
    """
    if caller.runs_it:
        return True
    key_tools = caller.principal.tools
    settings = caller.gateway.settings
    granted_patterns = key_tools.granted if settings.mode == "managed" else settings.toolbox.grant
    return Grants(granted_patterns, limits_of(key_tools.most)).allow(pattern)


def _check_tools(caller: ProfileMaker, patterns: Sequence[str]) -> None:
    """Raise Forbidden for a tool that the caller may not grant."""
    for pattern in patterns:
        if not may_grant_tool(caller, pattern):
            raise Forbidden(
                f"This key may not grant the tool {pattern[:64]!r}: it grants what its own `tools` "
                "grant it. Use an admin key, or leave the tool out.",
                code="tool_not_allowed",
                param="tools",
            )


def read_rules(rules: object, member: str) -> tuple[BaseRule, ...]:
    """Return the rules on tools that a member of a body holds. Raises BadRequest."""
    try:
        return parse_rules(rules)
    except InvalidRule as e:
        path = f"{member}{e.path}"
        raise BadRequest(f"`{path}`: {e.text}.", code="invalid_rule", param=path) from e


def _encode(members: Mapping[str, Any]) -> bytes:
    """Return members as JSON. Raises BadRequest for more than are checked in one short step."""
    try:
        sent_json = encode(members)
    except msgspec.MsgspecError as e:
        raise BadRequest(f"The profile cannot be read: {e}") from e
    _check_size(len(sent_json))
    if not is_readable(sent_json, PROFILE_VALUES):
        raise BadRequest(
            f"The profile has more than {PROFILE_VALUES} JSON values. Leave some out.",
            code="profile_too_large",
        )
    return sent_json


def _parse(sent_json: bytes) -> AgentSettings:
    """Return the profile of these members. Raises BadRequest naming the member and its value."""
    try:
        return AgentSettings.model_validate_json(sent_json, strict=True)
    except ValidationError as e:
        faults = describe_validation_errors(e, AgentSettings, limit=TOLD_FAULTS)
        raise BadRequest(
            "; ".join(f"{'.'.join(path) or 'the body'}: {text}" for path, text in faults),
            param=".".join(faults[0][0]) or None,
        ) from e


def _named_models(profile: AgentSettings) -> Iterator[tuple[str, str]]:
    """Yield the models that a profile names, each behind the member that names it."""
    if profile.model:
        yield "model", profile.model
    for name in profile.fallbacks:
        yield "fallbacks", name


def _check_served(profile: AgentSettings, serves: Callable[[str], bool]) -> None:
    """Raise BadRequest for a model that is not served here."""
    for member, name in _named_models(profile):
        if not serves(name):
            raise BadRequest(
                f"`{member}` names the model {name!r}, which is not configured here.",
                param=member,
            )


def _check_rights(caller: ProfileMaker, profile: AgentSettings) -> None:
    """Raise Forbidden for a model that the caller may not call, or a tool that it may not grant."""
    principal = caller.principal
    for member, name in _named_models(profile):
        if not is_model_allowed(principal, name):
            raise Forbidden(
                f"This key may not call the model {name!r}. It may call: "
                f"{', '.join(principal.models)}.",
                code="model_not_allowed",
                param=member,
            )
    _check_tools(caller, profile.tools)
