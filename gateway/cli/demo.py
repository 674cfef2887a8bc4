"""`mnemogate demo`: the gateway, and sessions of one user through the real OpenAI SDK.

The second session is sent no history; the third, of the bundled model, uses tools. The upstream
is named by OPENAI_API_KEY or MNEMOGATE_UPSTREAM. Without them it is the bundled rule-based model,
and everything that could be mistaken for a real model's answer says so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gateway.cli import demo_tools
from gateway.cli.formatting import tool_lines
from gateway.cli.options import CommandFailed, private

if TYPE_CHECKING:
    import socket

    from openai import OpenAI

    from gateway.cli.client import ManagementClient
    from gateway.config.settings import Settings

PORT = 8080
PACE = 0.03
# Its name, whether it streams, what is asked.
DemoSession = tuple[str, bool, tuple[str, ...]]
SESSIONS: tuple[DemoSession, ...] = (
    (
        "Session 1",
        True,
        (
            "Hi! My name is Ada, and I like green tea.",
            "Please remember that my sister Grace arrives on Friday.",
        ),
    ),
    ("Session 2", False, ("What is my name? And what do I like?", "When does my sister arrive?")),
)


@dataclass(frozen=True, slots=True)
class DemoUpstream:
    """The model that answers. key: sent by the client. bundled: it is the stand-in."""

    url: str
    key: str
    model: str
    bundled: bool


@click.command(short_help="A conversation with memory, then the gateway.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    envvar="MNEMOGATE_SERVER__PORT",
    default=PORT,
    show_default=True,
    help="The port. If it is in use, a free one is chosen.  [env: MNEMOGATE_SERVER__PORT]",
)
@click.option("--once", is_flag=True, help="End after the conversation.")
def demo(port: int, once: bool) -> None:
    """Start the gateway, play sessions through the real OpenAI SDK, then keep serving.

    With OPENAI_API_KEY set the model is OpenAI's (MNEMOGATE_DEMO_MODEL, default gpt-4o-mini); with
    MNEMOGATE_UPSTREAM it is that server's; with neither, a small rule-based stand-in that comes
    with Mnemogate.

    \b
    Examples:
      mnemogate demo
      mnemogate demo --once
      OPENAI_API_KEY=sk-... mnemogate demo
    """
    try:
        import openai  # noqa: F401
    except ImportError as e:
        raise CommandFailed(
            "The demo needs the OpenAI SDK, which is not installed: run pip install "
            "'.[demo]' in the folder of Mnemogate's source"
        ) from e
    # Even if the parent ignores SIGINT, as a shell does for background processes.
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):
        signal.signal(number, _stop)
    with contextlib.suppress(KeyboardInterrupt):
        _run(port, once)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(port: int, once: bool) -> None:
    from gateway.cli.client import connect, local_token
    from gateway.cli.embedded import serve_in_thread
    from gateway.cli.lockfile import hold_lock
    from gateway.config.loader import load

    with _model(os.environ) as upstream, _port(port) as sock, _data() as data:
        # Not from the environment: the demo must not write to a real memory.
        settings = load(
            None,
            {},
            {
                "storage.data": str(data),
                "upstream": upstream.url,
                "server.open": upstream.bundled,
                "providers.openai.proxy": "none" if upstream.bundled else None,
                **_settings_of(upstream),
            },
        )
        if settings.mode == "managed":
            raise CommandFailed(
                "The demo's data folder has managed keys, so the demo's own client "
                f"would be refused. Remove {data}, which only contains demo data, and start "
                "again."
            )
        _upgrade(settings)
        with (
            serve_in_thread(settings, sock) as url,
            hold_lock(data, url),
            connect(url, local_token(data)) as api,
        ):
            user = f"ada-{secrets.token_hex(2)}"
            _introduce(url, upstream, user)
            _play(url, upstream, user, api)
            if once:
                return
            _show_next_steps(url, upstream, user, data)
            with _logging():
                while True:
                    time.sleep(3600)


def _upgrade(settings: Settings) -> None:
    from gateway.cli.db import upgrade_data

    upgrade_data(settings)


@contextlib.contextmanager
def _logging() -> Iterator[None]:
    """Show the log of what apps ask from now on, as `serve` does."""
    from gateway.server import log_output

    sink = log_output.begin("text", "info")
    try:
        yield
    finally:
        sink.close()


def _settings_of(upstream: DemoUpstream) -> dict[str, Any]:
    """Return the settings of the stand-in: it keeps no responses, and tools ask its server."""
    if not upstream.bundled:
        return {}
    target = {"provider": "openai", "stateful": False}
    tools = demo_tools.settings_of_tools(upstream.url.removesuffix("/v1"))
    return {"models": {"*": {"targets": [target]}}, **tools}


@contextlib.contextmanager
def _model(env: Mapping[str, str]) -> Iterator[DemoUpstream]:
    """Yield the upstream that the environment names, or a bundled one."""
    key = env.get("OPENAI_API_KEY")
    url = env.get("MNEMOGATE_UPSTREAM")
    model = env.get("MNEMOGATE_DEMO_MODEL")
    if not key and not url:
        from gateway.demo_model.engine import MODEL
        from gateway.demo_model.server import start

        with start(pace=PACE) as server:
            yield DemoUpstream(server.url, "any", MODEL, bundled=True)
        return
    from gateway.config.addresses import complete_url

    try:
        base = complete_url(url or "https://api.openai.com/v1")
    except ValueError as e:
        raise CommandFailed(f"MNEMOGATE_UPSTREAM: {e}") from e
    yield DemoUpstream(
        base, key or "none", model or ("gpt-4o-mini" if key else _first_model(base)), bundled=False
    )


def _first_model(base: str) -> str:
    """Return the first model that a server without keys lists."""
    import httpx

    from gateway.cli.client import local

    url = f"{base.rstrip('/')}/models"
    try:
        answer = httpx.get(url, timeout=5, trust_env=not local(base))
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as e:
        raise CommandFailed(
            f"{base} lists no models ({e}). Is it running? Set MNEMOGATE_DEMO_MODEL to a model "
            "of it."
        ) from e


def _port(port: int) -> socket.socket:
    from gateway.cli.embedded import bind_socket

    try:
        return bind_socket("127.0.0.1", port)
    except CommandFailed as e:
        sock = bind_socket("127.0.0.1", 0)
        click.secho(
            f"{e.message.split('.  ')[0].split('. Stop')[0]}; this demo takes port "
            f"{sock.getsockname()[1]}.",
            fg="yellow",
        )
        return sock


@contextlib.contextmanager
def _data() -> Iterator[Path]:
    """Yield the demo's own data folder; a temporary one if that is not writable."""
    from gateway.config.settings import data_folder

    folder = data_folder() / "demo"
    try:
        private(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError):
        # No home folder, or not writable.
        with tempfile.TemporaryDirectory(prefix="mnemogate-demo-") as temporary:
            yield Path(temporary)
        return
    yield folder


def _introduce(url: str, upstream: DemoUpstream, user: str) -> None:
    click.echo(f"Mnemogate serves {url}/v1")
    if upstream.bundled:
        click.secho(
            f"Model: {upstream.model}, the small rule-based STAND-IN that comes with Mnemogate, "
            "not a real language model.",
            fg="yellow",
        )
        click.echo(
            "       Set OPENAI_API_KEY, or MNEMOGATE_UPSTREAM for another server, to talk to a "
            "real one."
        )
    else:
        click.echo(f"Model: {upstream.model} at {upstream.url}")
    click.echo(f"User:  {user} (the request's `user` member)")


def _play(url: str, upstream: DemoUpstream, user: str, api: ManagementClient) -> None:
    for session in SESSIONS:
        heading, streamed, _ = session
        click.secho(f"\n{heading}", bold=True)
        click.secho(
            "a new client, "
            + ("streaming" if streamed else "not streaming; nothing of session 1 is sent"),
            dim=True,
        )
        _play_session(url, upstream, user, api, session)
    if upstream.bundled:
        _play_with_tools(url, upstream, user, api)


def _play_with_tools(url: str, upstream: DemoUpstream, user: str, api: ManagementClient) -> None:
    """Play a session whose tools the gateway runs itself, hidden from the client."""
    click.secho(f"\n{demo_tools.SESSION[0]}", bold=True)
    click.secho(
        f"a tool over HTTP and the user's file {demo_tools.FILE}; the client sees answers only",
        dim=True,
    )
    demo_tools.upload_file(api, user)
    _play_session(url, upstream, user, api, demo_tools.SESSION)


def _play_session(
    url: str, upstream: DemoUpstream, user: str, api: ManagementClient, session: DemoSession
) -> None:
    from openai import APIError, DefaultHttpxClient, OpenAI

    _, streamed, questions = session
    # Kept by an app for one session.
    messages: list[dict[str, str]] = []
    # The gateway is on this machine, so the environment's proxy is not used.
    straight = DefaultHttpxClient(trust_env=False)
    with OpenAI(
        base_url=f"{url}/v1", api_key=upstream.key, max_retries=1, http_client=straight
    ) as client:
        for question in questions:
            click.echo(f"You: {question}")
            messages.append({"role": "user", "content": question})
            try:
                text, explain = _ask(
                    client,
                    {"model": upstream.model, "messages": messages, "user": user},
                    streamed,
                )
            except APIError as e:
                raise CommandFailed(_refusal(e, upstream)) from e
            messages.append({"role": "assistant", "content": text})
            for line in tool_lines(api.explain(explain) if explain else None):
                label = "memory"
                if session is demo_tools.SESSION:
                    label = "tool"
                click.secho(f"    {label}: {line}", fg="cyan")


def _refusal(error: Exception, upstream: DemoUpstream) -> str:
    advice = (
        "\nWithout OPENAI_API_KEY and MNEMOGATE_UPSTREAM the demo runs on the model that "
        "comes with Mnemogate, offline."
    )
    if upstream.bundled:
        advice = ""
    return f"{upstream.model} at {upstream.url} did not answer: {error}{advice}"


def _ask(client: OpenAI, body: dict[str, Any], streamed: bool) -> tuple[str, str | None]:
    """Print the answer as it arrives; return its text and the id of its explain record."""
    click.echo("Assistant: ", nl=False)
    raw_response: Any = client.chat.completions.with_raw_response.create(**body, stream=streamed)
    if streamed:
        text = ""
        for chunk in raw_response.parse():
            part = ""
            if chunk.choices:
                part = chunk.choices[0].delta.content or ""
            click.echo(part, nl=False)
            text += part
        click.echo()
    else:
        text = raw_response.parse().choices[0].message.content or ""
        click.echo(text)
    return text, raw_response.headers.get("x-memory-explain")


def _show_next_steps(url: str, upstream: DemoUpstream, user: str, data: Path) -> None:
    key = "your provider's key"
    if upstream.bundled:
        key = '"any"'
    header = ' -H "authorization: Bearer $OPENAI_API_KEY"'
    if upstream.bundled:
        header = ""
    click.secho("\nNow your own app", bold=True)
    click.echo(
        f'Point it here; nothing else changes:\n\n  base_url = "{url}/v1"     api_key: '
        f"{key}  "
        "   "
        f'model: "{upstream.model}"\n'
    )
    body = (
        f'{{"model": "{upstream.model}", "user": "{user}", "messages": [{{"role": "user", '
        f'"content": "Who am I?"}}]}}'
    )
    click.echo(
        f"  curl {url}/v1/chat/completions{header} \\\n    -H 'content-type: application/json' "
        f"-d '{body}'\n"
    )
    click.echo(
        f"See what was remembered:  {_command()} memory show --url {url} --user {user}\n"
        f"Look at it in a browser:   {_command()} ui     ({url}/ui)\n"
        f"Put a client behind it:    {_command()} run -- claude     (or codex)\n"
        f"It is kept in {data}"
    )
    click.echo(f"Serving {url}/v1 until Ctrl-C. Requests are logged here:")


def _command() -> str:
    """Return how this user runs `mnemogate`: by its path if it is not on PATH."""
    program = Path(sys.argv[0])
    if program.name == "mnemogate" and not shutil.which("mnemogate"):
        return os.path.relpath(program)
    return "mnemogate"
