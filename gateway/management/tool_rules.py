"""Rules on tools over HTTP: what they would say of calls, without a turn."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal

import msgspec
from litestar import post

from gateway.errors import BadRequest, Forbidden
from gateway.management.context import STORE_OPTIONAL, AtDoor, ManagementRequest
from gateway.management.profile_edits import read_rules
from gateway.management.schemas import describe_body
from memory import RuleChain, ToolRun

MAX_CALLS = MAX_ROUNDS = 1000
# That the event loop is held at a time.
SLICE_SECONDS = 0.005
RunStatus = Literal["ok", "error", "timeout", "cancelled", "unknown"]


class JudgedCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call and what its run came to. result: as the model saw it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    status: RunStatus = "ok"
    result: Annotated[str, msgspec.Meta(max_length=100_000)] = ""


class RuleCheckPost(msgspec.Struct, forbid_unknown_fields=True):
    """rules: as in a profile. rounds: the calls of one turn, reply by reply."""

    rules: list[Any]
    rounds: Annotated[list[list[JudgedCall]], msgspec.Meta(max_length=MAX_ROUNDS)]
    policy: Literal["allow", "deny"] = "allow"


class CallVerdict(msgspec.Struct):
    """rule: the index of the rule that decided, null for the policy.

    message: the result that the model gets for a call that is refused.
    """

    name: str
    verdict: Literal["run", "refuse", "approve"]
    rule: int | None
    message: str


class RuleCheck(msgspec.Struct):
    """ended: whether a tool has run that ends the turn. unmet: what was required and is missing."""

    rounds: list[list[CallVerdict]]
    ended: bool
    unmet: list[str]


def check_trusted(caller: ManagementRequest, action: str) -> None:
    """Raise Forbidden for a key that is neither trusted nor an admin's."""
    if not (caller.principal.trusted or caller.principal.admin):
        raise Forbidden(
            f"Only trusted and admin keys {action}. Ask the operator.", code="trusted_key_needed"
        )


@post(
    "/tools/check",
    status_code=200,
    summary="What rules on tools say of calls",
    operation_class=describe_body(RuleCheckPost),
    opt={STORE_OPTIONAL: True},
)
async def check_calls(caller: AtDoor) -> RuleCheck:
    check_trusted(caller, "check rules on tools")
    check_post = await caller.parse_body(RuleCheckPost)
    chain = RuleChain(read_rules(check_post.rules, "rules"), check_post.policy)
    if (count := sum(map(len, check_post.rounds))) > MAX_CALLS:
        raise BadRequest(
            f"`rounds` has {count} calls; at most {MAX_CALLS} are allowed.",
            code="too_many_calls",
            param="rounds",
        )
    rounds = await _judge_rounds(chain, check_post.rounds)
    return RuleCheck(rounds, chain.end is not None, chain.list_unmet())


async def _judge_rounds(
    chain: RuleChain, rounds: list[list[JudgedCall]]
) -> list[list[CallVerdict]]:
    judged_rounds = []
    until = time.monotonic() + SLICE_SECONDS
    for calls in rounds:
        verdicts = []
        runs = []
        for call in calls:
            verdict = chain.judge(call.name)
            verdicts.append(CallVerdict(call.name, verdict.decision, verdict.rule, verdict.message))
            if verdict.decision != "refuse":
                chain.accept(call.name)
                runs.append(ToolRun(call.name, call.status == "ok", call.result))
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_SECONDS
        chain.finish_round(runs)
        judged_rounds.append(verdicts)
    return judged_rounds


ROUTES = (check_calls,)
