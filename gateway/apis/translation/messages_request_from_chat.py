"""A chat completion request as one of Anthropic's Messages API. Pure.

Decisions, where the two differ:
- Messages: see `messages_turns`.
- Thinking goes back where it stood, in the tool loop under way only. That of earlier turns is left
  out: the API checks that
  nothing before a thinking block has changed, and memory before it may have. It is also left out
  where a tool called in the loop
  is not offered any more. Where memory changed during the loop, a model that checks is asked to
  drop the block, not to refuse.
- `reasoning_effort` becomes `thinking`, adaptive or with a budget, as the model takes it;
  Anthropic's own `thinking` goes as it is.
- `response_format`: a strict schema is `output_config.format` where the model has it; else an
  instruction at the end of `system`.
- What a model refuses is left out: sampling, forced tools (`auto` then), an assistant message at
  the end (a user message is put
  after it). `temperature` is held within 0 and 1 and wins over `top_p`, as only one of them may be
  sent.
- `user` is an identity, and stays here. Also dropped: `name`, `strict` of tools; and, told by
  `dropped_members`, logprobs, penalties, `logit_bias`, `seed`, `store`, `metadata`, `prediction`,
  `service_tier`, `verbosity`, and whatever else the API does not know.
- Refused with 400: `n` above 1, `functions`, custom and allowed tools, audio.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gateway.apis.translation.messages_turns_from_chat import (
    NativeMessages,
    as_list,
    call_ids_in,
    loop_of,
)
from gateway.errors import BadRequest
from gateway.wire.chat import Json, encode
from gateway.wire.chat_request import check_model, messages_of

# Of Anthropic's own, as are thinking, output_config and top_k.
NATIVE = (
    "cache_control",
    "context_management",
    "mcp_servers",
    "container",
)
GO_ON = "Go on."
# the beta that a request with `thinking.block_binding` needs
BINDING = "thinking-binding-controls-2026-08-01"
BUDGETS = {"low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 65536}
LEAST_BUDGET = 1024
# Members that are translated, refused or of no meaning to an answer.
TAKEN = frozenset(
    """
    model messages max_tokens max_completion_tokens stream stream_options stop temperature top_p
    top_k tools tool_choice parallel_tool_calls reasoning_effort response_format thinking
    output_config n functions function_call audio user cache_control context_management mcp_servers
    container
    """.split()  # noqa: SIM905
)
USUAL: Json = {"modalities": ["text"], "frequency_penalty": 0, "presence_penalty": 0}
# cache_control in one request.
MARKS = 4


def messages_request(
    body: Json, facts: Mapping[str, Any], max_tokens: int, frozen: bool = False
) -> Json:
    """Return the request to `/messages` for a chat completion request.

    facts: what models.toml knows of the model. max_tokens: for a body without its own and a model
    whose maximum is unknown. frozen: the first system message ends with text that stays; a cache
    mark is put there while the client left one unused. Raises BadRequest.
    """
    _check(body)
    declared = _tools(body)
    tools, choice = _tools_and_choice(body, declared, facts)
    loop = loop_of(body["messages"])
    undeclared = call_ids_in(loop) - {t["name"] for t in declared}
    kept_thoughts = 0 if undeclared else len(loop)
    talk = NativeMessages(body["messages"], kept_thoughts, frozen and _may_mark(body))
    if "prefill" in facts.get("refuses", ()) and talk.messages[-1]["role"] == "assistant":
        talk.messages.append({"role": "user", "content": [{"type": "text", "text": GO_ON}]})
    refuses = facts.get("refuses", ())
    limit = _limit(body, facts, max_tokens)
    reasoning = _reasoning_members(body, facts, limit, choice)
    if binds_thinking(facts) and talk.thoughtful:
        _tolerate_changed_history(reasoning)
    if _kind(reasoning) == "enabled" and _began_without_thoughts(loop, undeclared):
        reasoning["thinking"] = None
    output, instruction = _format(body, facts)
    reasoning["output_config"] = {**(reasoning["output_config"] or {}), **output}
    samples = _kind(reasoning) not in ("enabled", "adaptive")
    request = {
        "model": body["model"],
        "max_tokens": limit,
        "system": [*talk.system, *instruction],
        "messages": talk.messages,
        "tools": tools,
        "tool_choice": choice,
        **_plain_members(body),
        **reasoning,
        **(_sampling(body) if samples and "sampling" not in refuses else {}),
    }
    return {k: v for k, v in request.items() if v is not None and v not in ([], {})}


def dropped_members(body: Json) -> tuple[str, ...]:
    """Return the members of a request that the API has no place for."""
    return tuple(
        name
        for name, value in body.items()
        if name not in TAKEN and value not in (None, False, [], {}) and value != USUAL.get(name)
    )


def _began_without_thoughts(loop: Sequence[Json], undeclared: Collection[str]) -> bool:
    """Tell whether a loop of calls began without thinking: it goes on without."""
    calls = [m for m in loop if m.get("tool_calls")]
    return any(undeclared or not m.get("thinking_blocks") for m in calls)


def _plain_members(body: Json) -> Json:
    """Give the members that need little or no translation."""
    stream = True if body.get("stream") else None
    native_members = {k: body.get(k) for k in NATIVE}
    return {"stop_sequences": _stops(body), "stream": stream, **native_members}


def _tools_and_choice(
    body: Json, declared: list[Json], facts: Mapping[str, Any]
) -> tuple[list[Json], Json]:
    """Give the tools, and which of them must be called.

    Calls in the history need tools beside them: where the client declares none, they are declared
    here, and none may be called.
    """
    choice = _tool_choice(body, declared, facts)
    if declared or not (called_ids := sorted(call_ids_in(body["messages"]))):
        return declared, choice
    return [{"name": n, "input_schema": {"type": "object"}} for n in called_ids], {"type": "none"}


def _reasoning_members(body: Json, facts: Mapping[str, Any], limit: int, choice: Json) -> Json:
    """Give the members that say how the model thinks: the client's own, then what is derived."""
    own_members = {k: body.get(k) for k in ("thinking", "output_config")}
    return own_members | _reasoning(body, facts, limit, choice.get("type") in ("any", "tool"))


def _tolerate_changed_history(reasoning: Json) -> None:
    """Have blocks dropped whose history is another than when they were signed."""
    if _kind(reasoning) in (None, "adaptive"):
        reasoning["thinking"] = {
            "type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            **(reasoning["thinking"] or {}),
        }


def binds_thinking(facts: Mapping[str, Any]) -> bool:
    """Tell whether a model refuses thinking once something before it has changed."""
    return "changed_history" in facts.get("refuses", ())


def with_stale_thinking_dropped(body: Json) -> Json | None:
    """Return a request of the API's own that has such thinking dropped, in place of a refusal.

    None where the client says how it is, or thinks by a budget or not at all.
    """
    own_thinking = body.get("thinking")
    thoughtful = own_thinking is not None or b'"thinking"' in encode(body.get("messages"))
    if not thoughtful or (isinstance(own_thinking, dict) and "block_binding" in own_thinking):
        return None
    reasoning = {"thinking": own_thinking}
    _tolerate_changed_history(reasoning)
    if reasoning["thinking"] is own_thinking:
        return None
    return {**body, **reasoning}


def _kind(reasoning: Json) -> Any:
    """Return the kind of thinking that is asked for, if any."""
    thinking = reasoning["thinking"]
    if isinstance(thinking, dict):
        return thinking.get("type")
    return None


def thoughts_in_loop(body: Json) -> int:
    """Return how many thinking blocks the tool loop under way has had so far."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return sum(len(as_list(m.get("thinking_blocks"))) for m in loop_of(messages))
    return 0


def _check(body: Json) -> None:
    messages_of(body)
    check_model(body)
    if body.get("n") not in (None, 1):
        raise BadRequest(
            f"`n` is {str(body['n'])[:20]}: this model gives one choice. Send 1, or ask several "
            "times.",
            param="n",
        )
    for name in ("thinking", "output_config"):
        if not isinstance(body.get(name), dict | None):
            raise BadRequest(f"`{name}` must be an object.", param=name)
    for name in ("functions", "function_call"):
        if body.get(name):
            raise BadRequest(
                f"`{name}` is not translated for this provider. Use `tools` and `tool_choice`.",
                param=name,
            )
    if "audio" in as_list(body.get("modalities")) or body.get("audio"):
        raise BadRequest(
            "This provider gives no audio. Leave `audio` out, or use another model.", param="audio"
        )


def _limit(body: Json, facts: Mapping[str, Any], default: int) -> Any:
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return body[name]
    return facts.get("max_output") or default


def _sampling(body: Json) -> Json:
    sampling_members = {k: body.get(k) for k in ("temperature", "top_p", "top_k")}
    if isinstance(temperature := sampling_members["temperature"], int | float):
        sampling_members |= {"temperature": min(1.0, max(0.0, temperature)), "top_p": None}
    return sampling_members


def _stops(body: Json) -> list[str]:
    stop = body.get("stop")
    return [
        s
        for s in ([stop] if isinstance(stop, str) else as_list(stop))
        if isinstance(s, str) and s.strip()
    ]


def _reasoning(body: Json, facts: Mapping[str, Any], limit: Any, forced: bool) -> Json:
    """`reasoning_effort` as the model takes it: see `thinking` in models.toml."""
    effort = body.get("reasoning_effort")
    mode = facts.get("thinking")
    # Anthropic's own member wins.
    if not isinstance(effort, str) or body.get("thinking") is not None or mode is None:
        return {}
    is_off = effort in ("none", "minimal")
    if mode in ("budget", "asked") and (is_off or forced):
        # There thinking is off unless asked for, and goes with no forced tool.
        return {}
    if mode == "budget":
        budget = min(BUDGETS.get(effort, 0), limit // 2 if isinstance(limit, int) else 0)
        if budget >= LEAST_BUDGET:
            return {"thinking": {"type": "enabled", "budget_tokens": budget}}
        return {}
    if mode == "default" and is_off:
        return {"thinking": {"type": "disabled"}}
    config = {"effort": "low" if is_off else effort, **(body.get("output_config") or {})}
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": config}


def _format(body: Json, facts: Mapping[str, Any]) -> tuple[Json, list[Json]]:
    """`response_format` as a member of `output_config`, or as a block of instruction."""
    response_format = body.get("response_format")
    if not isinstance(response_format, dict) or response_format.get("type") not in (
        "json_object",
        "json_schema",
    ):
        return {}, []
    schema_member = response_format.get("json_schema")
    if not isinstance(schema_member, dict):
        schema_member = {}
    schema = schema_member.get("schema")
    if not isinstance(schema, dict):
        return {}, _system_blocks(
            "Answer with one JSON object and nothing else: no other text, no code fence."
        )
    if schema_member.get("strict") and facts.get("structured_outputs"):
        return {"format": {"type": "json_schema", "schema": schema}}, []
    return {}, _system_blocks(
        "Answer with one JSON value that fits this JSON schema and nothing else, no other "
        f"text, no code fence:\n{encode(schema).decode()}"
    )


def _system_blocks(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def _tools(body: Json) -> list[Json]:
    return [_tool(i, tool) for i, tool in enumerate(as_list(body.get("tools")))]


def _tool(index: int, tool: Any) -> Json:
    kind = None
    if isinstance(tool, dict):
        kind = tool.get("type")
    function = None
    if kind == "function":
        function = tool.get("function")
    if isinstance(function, dict) and isinstance(function.get("name"), str) and function["name"]:
        schema = function.get("parameters")
        if isinstance(schema, dict):
            schema = {"type": "object", **schema}
        else:
            schema = {"type": "object", "properties": {}}
        native_tool = {
            "name": function["name"],
            "description": function.get("description"),
            "input_schema": schema,
            "cache_control": tool.get("cache_control") or function.get("cache_control"),
        }
        return {k: v for k, v in native_tool.items() if v}
    if (
        isinstance(kind, str)
        and kind not in ("function", "custom")
        and isinstance(tool.get("name"), str)
    ):
        # One of Anthropic's own.
        return dict(tool)
    raise BadRequest(
        f"`tools[{index}]` is of type {str(kind)[:40]!r}; this provider takes functions with a "
        "name, and its own tools.",
        param=f"tools[{index}]",
    )


def _tool_choice(body: Json, tools: Sequence[Json], facts: Mapping[str, Any]) -> Json:
    tool_choice = body.get("tool_choice")
    if not tools:
        return {}
    if (
        isinstance(tool_choice, dict)
        and tool_choice.get("type") == "function"
        and isinstance(tool_choice.get("function"), dict)
    ):
        choice: Json = {"type": "tool", "name": tool_choice["function"].get("name")}
    elif tool_choice in (None, "auto", "none", "required"):
        choice = {"type": {"none": "none", "required": "any"}.get(str(tool_choice), "auto")}
    else:
        raise BadRequest(
            "`tool_choice` is none of auto, none, required and a named function. Send one of them.",
            param="tool_choice",
        )
    if choice["type"] in ("any", "tool") and "forced_tools" in facts.get("refuses", ()):
        choice = {"type": "auto"}
    if body.get("parallel_tool_calls") is False and choice["type"] != "none":
        return {**choice, "disable_parallel_tool_use": True}
    if tool_choice is not None:
        return choice
    return {}


def _may_mark(body: Json) -> bool:
    """Tell whether a cache mark is left, and ours would stand before no longer-lived one, which the
    API refuses.
    """
    body_text = encode([body.get("tools"), body["messages"]])
    return (
        body_text.count(b'"cache_control":{') + bool(body.get("cache_control")) < MARKS
        and b'"ttl":"1h"' not in body_text
    )
