"""Prompts that a person picks in their client: each asks the model for one of the tools. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gateway.mcp.protocol import RpcRequest, bad_params
from gateway.wire.chat import Json

# Of an argument.
MAX_CHARACTERS = 20_000


class MemoryPrompt(NamedTuple):
    """One prompt. argument: the name of the only one it takes, "" for none."""

    title: str
    description: str
    argument: str
    needs_it: bool
    text: str


PROMPTS = {
    "forget": MemoryPrompt(
        "Forget something",
        "Has the assistant forget something about you.",
        "text",
        True,
        "Forget this about me: {} Search the memory for it (archival_memory_search, memory_show), "
        "then call memory_forget for each hit, and tell me what is gone.",
    ),
    "remember": MemoryPrompt(
        "Remember something",
        "Has the assistant store something about you.",
        "text",
        True,
        "Remember this about me: {} Use core_memory_append if every conversation should begin with "
        "it, else archival_memory_insert.",
    ),
    "show_memory": MemoryPrompt(
        "Show the memory",
        "Has the assistant say what it knows about you.",
        "",
        False,
        "Call memory_show, and tell me in plain words what you know about me.",
    ),
    "what_changed": MemoryPrompt(
        "What changed",
        "Has the assistant say what was stored about you lately.",
        "since",
        False,
        "Tell me what was stored about me since {}: call archival_memory_search and "
        "conversation_search with since, and memory_show.",
    ),
}


def list_prompts() -> Json:
    """Return all prompts."""
    return {"prompts": [_describe(name, prompt) for name, prompt in PROMPTS.items()]}


def _describe(name: str, prompt: MemoryPrompt) -> Json:
    description: Json = {"name": name, "title": prompt.title, "description": prompt.description}
    if prompt.argument:
        description["arguments"] = [{"name": prompt.argument, "required": prompt.needs_it}]
    return description


def get_prompt(request: RpcRequest) -> Json:
    """Return the prompt that a request names. Raises RpcError."""
    name = request.params.get("name")
    prompt = None
    if isinstance(name, str):
        prompt = PROMPTS.get(name)
    if prompt is None:
        names = ", ".join(PROMPTS)
        raise bad_params(request, f"Unknown prompt: {str(name)[:80]!r}. There are: {names}.")
    arguments = request.params.get("arguments")
    argument = None
    if isinstance(arguments, dict):
        argument = arguments.get(prompt.argument)
    if prompt.needs_it and not (isinstance(argument, str) and argument.strip()):
        raise bad_params(request, f"The prompt {name!r} needs the argument {prompt.argument!r}.")
    if isinstance(argument, str) and len(argument) > MAX_CHARACTERS:
        raise bad_params(
            request,
            f"The argument {prompt.argument!r} has {len(argument)} characters; at most "
            f"{MAX_CHARACTERS} are allowed.",
        )
    value = argument if isinstance(argument, str) and argument.strip() else "yesterday"
    text = prompt.text.replace("{}", value)
    return {
        "description": prompt.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }
