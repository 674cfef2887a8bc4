"""Checks a call before it may run: its name, its arguments, how often it was made."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.tools.coercion import coerce_arguments, quote
from gateway.tools.own_tools import OWN_TOOLS, TOOL_CALL
from gateway.tools.registry import RegisteredTool
from gateway.wire.chat import object_or_empty
from memory import (
    MAX_ARGUMENT_CHARACTERS,
    MEMORY_TOOL_NAMES,
    ToolCall,
    TurnRuns,
    decode_foreign,
)
from memory.session.toolbox import DIGEST_CHARACTERS, NO_LONGER_AVAILABLE, Effect, StartedRun

NEAREST = 5
# Equal calls that one turn may run.
MOST_ALIKE = 2
_canonical = msgspec.json.Encoder(order="sorted").encode


class RefusedCall(Exception):
    """A call that does not run; the message is what the model is told. rule: that refused it."""

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class AdmittedCall(msgspec.Struct):
    """A call that may run, as far as it alone tells.

    tool: None for one of the toolbox's own. needs_approval: it waits for a person.
    """

    run: StartedRun
    tool: RegisteredTool | None
    arguments: dict[str, Any]
    needs_approval: bool = False

    @property
    def name(self) -> str:
        return self.run.name


class CallChecker:
    """Checks the calls of one request. tools: by name. limit: calls of the user's turn."""

    def __init__(self, tools: Mapping[str, RegisteredTool], limit: int) -> None:
        self._tools = tools
        self._limit = limit
        self._count: int | None = None
        self._counts_by_call: Counter[tuple[str, str]] = Counter()

    def begin_reply(self, before: TurnRuns, tools: Mapping[str, RegisteredTool]) -> None:
        """Count anew which calls were made.

        before: what ran in the user's turn before it. tools: that its calls may run.
        """
        self._tools = tools
        earlier = [run for runs in before.rounds for run in runs]
        self._counts_by_call = Counter((run.name, run.digest) for run in earlier)
        # Those of earlier requests, and of a request that broke off.
        if self._count is None:
            self._count = sum(run.name not in MEMORY_TOOL_NAMES for run in earlier)

    def check(self, call: ToolCall, place: int) -> AdmittedCall:
        """Return a call that may run. Raises RefusedCall."""
        name = call.name
        arguments = parse_arguments(call)
        if name == TOOL_CALL:
            name, arguments = self._unwrap(arguments)
        tool = self._tools.get(name)
        if tool is None and name not in OWN_TOOLS:
            raise RefusedCall(NO_LONGER_AVAILABLE.format(name))
        digest = hashlib.sha256(_canonical(arguments)).hexdigest()
        coerced_arguments = _coerce(tool, name, arguments)
        if isinstance(coerced_arguments, str):
            raise RefusedCall(f"Error: {coerced_arguments}.")
        self._count_call(name, digest)
        effect: Effect = "read" if tool is None else tool.tool.effect
        # What `tool_call` calls is recorded and asked about as a call of that tool.
        if name == call.name:
            argument_text = call.arguments
        else:
            argument_text = _canonical(arguments).decode()
        run = StartedRun(
            place,
            "" if tool is None else tool.entry.name,
            name,
            0 if tool is None else tool.tool.version,
            effect,
            argument_text,
            digest,
            tool is not None and (tool.tool.idempotent or tool.entry.settings.idempotent),
        )
        return AdmittedCall(run, tool, coerced_arguments)

    def _count_call(self, name: str, digest: str) -> None:
        """Count a call. Raises RefusedCall for one too many."""
        count = self._count or 0
        if count >= self._limit:
            raise RefusedCall(
                f"Error: {self._limit} calls of tools were made in this turn, which is the most. "
                "Answer with what you have."
            )
        call_key = (name, digest[:DIGEST_CHARACTERS])
        if self._counts_by_call[call_key] >= MOST_ALIKE:
            raise RefusedCall(
                f"Error: {name} was already called twice with these arguments in this turn; use "
                "that result."
            )
        self._count = count + 1
        self._counts_by_call[call_key] += 1

    def _unwrap(self, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the tool that `tool_call` calls. Raises RefusedCall."""
        name = arguments.get("name")
        inner_arguments = arguments.get("arguments", {})
        if isinstance(inner_arguments, str):
            inner_arguments = parse_arguments(ToolCall("", TOOL_CALL, inner_arguments))
        if not isinstance(name, str) or name not in self._tools:
            nearest_names = difflib.get_close_matches(str(name)[:64], self._tools, NEAREST, 0.0)
            raise RefusedCall(
                f"Error: there is no tool {quote(name)}. The nearest are: "
                f"{', '.join(nearest_names)}."
            )
        if not isinstance(inner_arguments, dict):
            raise RefusedCall(f"Error: arguments must be an object, got {quote(inner_arguments)}.")
        return name, inner_arguments


def called_name(name: str, arguments: str) -> str:
    """Return the tool that a call stands for: `tool_call` names another."""
    if name != TOOL_CALL:
        return name
    name_member = object_or_empty(arguments.encode("utf-8", "replace")).get("name")
    if isinstance(name_member, str):
        return name_member
    return name


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments. Raises RefusedCall for anything but a JSON object."""
    size = call.size or len(call.arguments)
    if size > MAX_ARGUMENT_CHARACTERS:
        raise RefusedCall(
            f"Error: the arguments of {call.name} have {size} characters; at most "
            f"{MAX_ARGUMENT_CHARACTERS:,} are allowed. Send less at once."
        )
    try:
        arguments = decode_foreign(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError) as e:
        raise RefusedCall(
            f"Error: the arguments of {call.name} are not valid JSON ({str(e)[:200]}). Call it "
            "again with a JSON object."
        ) from e
    if not isinstance(arguments, dict):
        raise RefusedCall(f"Error: the arguments of {call.name} must be a JSON object.")
    return arguments


def _coerce(
    tool: RegisteredTool | None, name: str, arguments: dict[str, Any]
) -> dict[str, Any] | str:
    if tool is None:
        return coerce_arguments(OWN_TOOLS[name].parameters, arguments)
    if tool.entry.settings.kind == "files":
        coerced = coerce_arguments(tool.tool.parameters, arguments)
        if isinstance(coerced, str):
            return coerced
        arguments = coerced
    return tool.entry.kind.check_arguments(tool.tool, arguments)
