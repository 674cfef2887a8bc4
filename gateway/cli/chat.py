"""`mnemogate chat`: a terminal chat through a gateway that shows what the memory did."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.chat_commands import ChatCommands
from gateway.cli.formatting import tool_lines
from gateway.cli.options import CommandFailed, GatewayOptions, where_options

if TYPE_CHECKING:
    import httpx

    from gateway.cli.client import ManagementClient
    from gateway.config.settings import Settings


@dataclass(slots=True)
class ChatSession:
    """One conversation. key: sent as Authorization of the chat requests."""

    api: ManagementClient
    key: str | None
    model: str
    user: str
    messages: list[dict[str, str]] = field(default_factory=list)


@click.command(short_help="Chat in the terminal.")
@click.option(
    "--model",
    default="gpt-4o-mini",
    envvar="MNEMOGATE_CHAT_MODEL",
    show_default=True,
    help="The model's name.",
)
@click.option("--user", default="me", show_default=True, help="Who is talking.")
@click.option(
    "--bundled",
    is_flag=True,
    help="Talk to the rule-based stand-in that comes with Mnemogate; no provider is called.",
)
@where_options
def chat(where: GatewayOptions, model: str, user: str, bundled: bool) -> None:
    """Chat through the gateway that runs on your data folder, or through one started for this chat.

    Ctrl-D ends it. /remember, /forget, /memory, /undo, /search and /why steer the memory.

    The provider's key is taken from OPENAI_API_KEY (with managed keys: --key).

    \b
    Examples:
      mnemogate chat
      mnemogate chat --model llama3.1 --user ada
      mnemogate chat --bundled
    """
    with _open_gateway(where, bundled) as (api, key):
        session = ChatSession(api, key, "mnemogate-demo" if bundled else model, user)
        click.secho(
            f"{session.model} through {api.url}, as {user}. Ctrl-D ends.", dim=True, err=True
        )
        commands = ChatCommands(api, user)
        while (typed_line := _read_line()) is not None:
            if typed_line.startswith("/"):
                for line in commands.run(typed_line):
                    click.secho(indent(line, "    "), fg="cyan")
            elif typed_line:
                commands.explain = _answer(session, typed_line) or commands.explain


@contextmanager
def _open_gateway(
    where: GatewayOptions, bundled: bool
) -> Iterator[tuple[ManagementClient, str | None]]:
    """Yield a client of the gateway to talk through, and the key to send."""
    from gateway.cli.client import connect, local_token, token_for
    from gateway.cli.embedded import bind_socket, serve_in_thread
    from gateway.cli.lockfile import running_url

    with ExitStack() as stack:
        if bundled:
            settings = _in_front_of_bundled(where, stack)
        else:
            settings = where.settings()
        if settings.mode == "managed" or where.key:
            key = where.key
        else:
            key = os.environ.get("OPENAI_API_KEY")
        url = None
        if not bundled:
            url = where.url or running_url(settings.data)
        token = None
        if url:
            token = token_for(url, settings)
        if not url:
            if settings.mode == "own-key" and not key:
                raise CommandFailed(
                    "No gateway runs on this data folder, and no provider key is given to "
                    "start one. Set "
                    "OPENAI_API_KEY, or try `mnemogate chat --bundled`."
                )
            url = stack.enter_context(serve_in_thread(settings, bind_socket("127.0.0.1", 0)))
            token = local_token(settings.data)
        yield stack.enter_context(connect(url, where.key or token)), key


def _in_front_of_bundled(where: GatewayOptions, stack: ExitStack) -> Settings:
    from gateway.config.loader import load
    from gateway.demo_model.server import start

    upstream = stack.enter_context(start()).url
    settings = where.settings()
    storage_settings = {"storage.data": str(settings.data), "storage.database": settings.database}
    # The stand-in is reached without a proxy.
    over = {"server.open": True, "upstream": upstream, "providers.openai.proxy": "none"}
    return load(None, {}, {**storage_settings, **over})


def _read_line() -> str | None:
    """Return the next line; None at the end of the input."""
    try:
        return input("You: ").strip()
    except (EOFError, KeyboardInterrupt):
        click.echo()
        return None


def _answer(session: ChatSession, text_to_answer: str) -> str | None:
    """Answer a line; return the id of the answer's explain record."""
    import httpx

    session.messages.append({"role": "user", "content": text_to_answer})
    body = {
        "model": session.model,
        "messages": session.messages,
        "user": session.user,
        "stream": True,
    }
    headers = {"authorization": f"Bearer {session.key or 'none'}"}
    text = ""
    explain = None
    try:
        with httpx.stream(
            "POST",
            f"{session.api.url}/v1/chat/completions",
            json=body,
            headers=headers,
            timeout=600,
            trust_env=False,
        ) as response:
            click.echo("Assistant: ", nl=False)
            explain = response.headers.get("x-memory-explain")
            for part in _pieces(response):
                click.echo(part, nl=False)
                text += part
    except httpx.HTTPError as e:
        click.echo(f"[the gateway did not answer: {e}]", nl=False)
    except KeyboardInterrupt:
        click.echo(" [stopped]", nl=False)
    click.echo()
    if text:
        session.messages.append({"role": "assistant", "content": text})
    else:
        session.messages.pop()
    for line in tool_lines(session.api.explain(explain)) if explain else ():
        click.secho(f"    memory: {line}", fg="cyan")
    return explain


def _pieces(response: httpx.Response) -> Iterator[str]:
    """Yield the text of a streamed answer piece by piece; an error as text in brackets."""
    from gateway.cli.client import message_of
    from gateway.wire.sse import SseFramer

    if response.is_error:
        response.read()
        yield f"[{message_of(response)}]"
        return
    framer = SseFramer()
    for data in response.iter_bytes():
        for event in framer.feed(data):
            if event.data and event.data != b"[DONE]":
                yield _text(json.loads(event.data))


def _text(chunk: dict[str, Any]) -> str:
    if error := chunk.get("error"):
        return f"[{error.get('message')}]"
    choices = chunk.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")
