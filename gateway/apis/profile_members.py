"""What an agent's profile adds to a request, in the members of the request's own format. Pure.

A request that says something itself has its way, but for what the profile locks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gateway.wire.chat import Json
from gateway.wire.token_limits import MAX_COMPLETION_TOKENS, MAX_TOKENS, usual_member


class MemberPlace(NamedTuple):
    """Where a format has a parameter.

    path: the member, or a member of a member. aliases: other members that say the same. convert:
    gives the format's own value, None where it has none for it.
    """

    path: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value

    @property
    def name(self) -> str:
        return ".".join(self.path)


def _flat_format(response_format: Json) -> Any:
    """Return a chat completion's format as Responses has it."""
    if response_format.get("type") != "json_schema":
        return response_format
    return {"type": "json_schema", **response_format["json_schema"]}


def _bare_schema(response_format: Json) -> Any:
    """Return a chat completion's format as Messages has it, which knows schemas alone."""
    if response_format.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "schema": response_format["json_schema"].get("schema") or {}}


def _as_list(stop: Any) -> Any:
    if isinstance(stop, str):
        return [stop]
    return stop


def _negate(value: Any) -> Any:
    if value is None:
        return None
    return not value


SAMPLING = {"temperature": MemberPlace(("temperature",)), "top_p": MemberPlace(("top_p",))}
PLACES: Mapping[str, Mapping[str, MemberPlace]] = {
    "chat": {
        **SAMPLING,
        "max_output_tokens": MemberPlace((MAX_TOKENS,), (MAX_COMPLETION_TOKENS,)),
        "reasoning_effort": MemberPlace(("reasoning_effort",)),
        "seed": MemberPlace(("seed",)),
        "stop": MemberPlace(("stop",)),
        "parallel_tool_calls": MemberPlace(("parallel_tool_calls",)),
        "response_format": MemberPlace(("response_format",)),
    },
    "responses": {
        **SAMPLING,
        "max_output_tokens": MemberPlace(("max_output_tokens",)),
        "reasoning_effort": MemberPlace(("reasoning", "effort")),
        "parallel_tool_calls": MemberPlace(("parallel_tool_calls",)),
        "response_format": MemberPlace(("text", "format"), (), _flat_format),
    },
    "messages": {
        **SAMPLING,
        "max_output_tokens": MemberPlace((MAX_TOKENS,)),
        "reasoning_effort": MemberPlace(("output_config", "effort")),
        "stop": MemberPlace(("stop_sequences",), (), _as_list),
        "parallel_tool_calls": MemberPlace(
            ("tool_choice", "disable_parallel_tool_use"), (), _negate
        ),
        "response_format": MemberPlace(("output_config", "format"), (), _bare_schema),
    },
}
# Of the Messages API: it stays where the profile has none.
REQUIRED = ("max_tokens",)


class ProfileMembers(NamedTuple):
    """What a profile says of the members of a request.

    values: by parameter, in the profile's own form. locked: what a request cannot change. tools:
    the request goes upstream with tools, its own or the memory's.
    """

    values: Mapping[str, Any]
    locked: tuple[str, ...] = ()
    tools: bool = True


def with_profile(
    api: str, body: Json, members: ProfileMembers, model: str = ""
) -> tuple[Json, list[str]]:
    """Return a request with a profile's parameters, and the members of its own that gave way.

    model: the one that answers.
    """
    request = dict(body)
    dropped_members: list[str] = []
    for parameter, place in PLACES[api].items():
        if parameter == "parallel_tool_calls" and not _takes_parallel(api, body, members):
            continue
        if api == "chat" and parameter == "max_output_tokens":
            place = _limit_place(model)
        value = members.values.get(parameter)
        converted_value = None
        if value is not None:
            converted_value = place.convert(value)
        said_members = _find_said(request, place)
        if parameter not in members.locked:
            if converted_value is not None and not said_members:
                _put(request, place.path, converted_value)
            continue
        if list(said_members.values()) == [converted_value] or (
            api == "messages" and converted_value is None and place.name in REQUIRED
        ):
            continue
        for name in said_members:
            _remove(request, tuple(name.split(".")))
        dropped_members += said_members
        if converted_value is not None:
            _put(request, place.path, converted_value)
    return request, dropped_members


def _takes_parallel(api: str, body: Json, members: ProfileMembers) -> bool:
    """Tell whether the member is allowed: servers refuse it where there are no tools."""
    return bool(body.get("tools")) or (api != "messages" and members.tools)


def _limit_place(model: str) -> MemberPlace:
    """Return the place of the limit of output, under the name that the model's server takes."""
    name = usual_member(model)
    return MemberPlace((name,), tuple({MAX_TOKENS, MAX_COMPLETION_TOKENS} - {name}))


def _find_said(body: Json, place: MemberPlace) -> dict[str, Any]:
    """Return what a request says of a parameter itself, by member; null says nothing."""
    paths = [place.path, *((alias,) for alias in place.aliases)]
    values = {".".join(path): _get(body, path) for path in paths}
    return {name: value for name, value in values.items() if value is not None}


def _get(body: Json, path: tuple[str, ...]) -> Any:
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _put(body: Json, path: tuple[str, ...], value: Any) -> None:
    first_name, *inner_path = path
    if not inner_path:
        body[first_name] = value
        return
    inner_object = body.get(first_name)
    if first_name == "tool_choice" and not isinstance(inner_object, dict):
        inner_object = {"type": "auto"}
    body[first_name] = {
        **(inner_object if isinstance(inner_object, dict) else {}),
        inner_path[0]: value,
    }


def _remove(body: Json, path: tuple[str, ...]) -> None:
    first_name, *inner_path = path
    if not inner_path:
        del body[first_name]
        return
    remaining_members = {
        name: value for name, value in body[first_name].items() if name != inner_path[0]
    }
    if remaining_members:
        body[first_name] = remaining_members
    else:
        del body[first_name]
