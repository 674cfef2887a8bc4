"""`mnemogate try MODEL`: does a model use its memory by itself? Twelve turns tell.

They go through a gateway of their own, in a folder that is removed afterwards, so that nothing of
the user's is touched.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import click

from gateway.cli.options import CommandFailed, json_option, print_json
from gateway.cli.trial import (
    FINDING,
    SCRIPT,
    SECRETLY,
    ScriptedTurn,
    TurnResult,
    Verdict,
    has,
    judge,
    report_of,
    succeeds,
)

if TYPE_CHECKING:
    import httpx

    from gateway.cli.client import ManagementClient

# Turns in a row without an answer, after which the trial ends.
FAILURES = 3
# How the result of a call that failed begins.
REFUSED = ("Error", "Nothing was")
WIDTH = 66


@click.command("try", short_help="Does a model use its memory by itself?")
@click.argument("model")
@click.option(
    "--upstream",
    envvar="MNEMOGATE_UPSTREAM",
    help="The server that has the model.  [default: OpenAI's, with OPENAI_API_KEY; env: "
    "MNEMOGATE_UPSTREAM]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    help="Seconds that a turn may take.",
)
@json_option
def try_model(model: str, upstream: str | None, timeout: float, as_json: bool) -> None:
    """Play twelve turns with MODEL, and report how well it uses its memory.

    Shows whether it saves, finds, corrects and forgets without being asked, what that costs, and
    which settings it needs. The trial uses a temporary memory. It sends OPENAI_API_KEY to the
    server, or ANTHROPIC_API_KEY to Anthropic's.

    \b
    Examples:
      mnemogate try gpt-4o-mini
      mnemogate try llama3.1 --upstream http://127.0.0.1:11434
    """
    signal.signal(signal.SIGTERM, _stop)
    key = _key(upstream)
    if not upstream and not key:
        raise CommandFailed(
            "No server is named. Give --upstream http://127.0.0.1:11434 (Ollama's, say), or set "
            "OPENAI_API_KEY."
        )
    with _gateway(upstream) as (url, api):
        trial = _Trial(api, url, {"model": model, "key": key or "none", "timeout": timeout})
        try:
            results = trial.play()
        finally:
            trial.erase()
    verdict = judge(results)
    if as_json:
        print_json({**report_of(verdict, results), "model": model})
    else:
        _tell(verdict, results)


def _key(upstream: str | None) -> str | None:
    """Return the key of that server from the environment, None without one."""
    host = urlsplit(upstream or "").hostname or ""
    is_anthropic = host == "anthropic.com" or host.endswith(".anthropic.com")
    return os.environ.get("ANTHROPIC_API_KEY" if is_anthropic else "OPENAI_API_KEY")


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _gateway(upstream: str | None) -> Iterator[tuple[str, ManagementClient]]:
    """Yield the URL of a gateway in this process, and a client of its API."""
    from gateway.cli.client import connect, local, local_token
    from gateway.cli.embedded import bind_socket, serve_in_thread
    from gateway.cli.upstream_address import complete_address
    from gateway.config.loader import load

    with tempfile.TemporaryDirectory(prefix="mnemogate-try-", ignore_cleanup_errors=True) as data:
        # Not from the environment: the trial must not write to a real memory. The model is to do
        # everything by itself.
        over: dict[str, Any] = {
            "storage.data": data,
            "storage.vectors": "none",
            "memory.extract": "off",
            "memory.recall": "tools",
        }
        if upstream:
            over["upstream"] = upstream
            over["server.open"] = local(upstream) and not _key(upstream)
        over = {k: v for k, v in over.items() if v not in (None, False)}
        settings = load(None, {}, over)
        if upstream:
            settings = load(None, {}, {**over, "upstream": complete_address(settings)})
        with (
            _quiet_log(),
            serve_in_thread(settings, bind_socket("127.0.0.1", 0)) as url,
            connect(url, local_token(Path(data))) as api,
        ):
            yield url, api


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Keep the gateway's log out of the report, which has the errors of the turns."""
    log = logging.getLogger("mnemogate")
    silence = logging.NullHandler()
    before = log.propagate
    log.addHandler(silence)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(silence)


class _Trial:
    """Plays the turns. how: model, key and timeout (seconds)."""

    def __init__(self, api: ManagementClient, url: str, how: dict[str, Any]) -> None:
        from gateway.cli.memory import UserMemory

        self._api = api
        self._url = url
        self._how = how
        self._person = UserMemory(api, f"trial-{secrets.token_hex(4)}", None)
        self._memory: list[str] = []

    def play(self) -> list[TurnResult]:
        """Play every turn, with progress on standard error. Raises CommandFailed."""
        results: list[TurnResult] = []
        history: list[dict[str, str]] = []
        session = 0
        for number, turn in enumerate(SCRIPT):
            if turn.session != session:
                history = []
                session = turn.session
            if number == FINDING[0]:
                self._help()
            result = self._turn(turn, history)
            results.append(result)
            verdict = "yes" if succeeds(turn, result) else "no "
            click.echo(f"{number + 1:2}/{len(SCRIPT)}  {verdict}  {turn.says[:WIDTH]}", err=True)
            if all(r.error for r in results[-FAILURES:]) and len(results) >= FAILURES:
                raise CommandFailed(
                    f"{self._how['model']} did not answer {FAILURES} turns in a row: "
                    f"{result.error}\nCheck the model's name, --upstream, OPENAI_API_KEY and "
                    "--timeout."
                )
        return results

    def erase(self) -> None:
        """Erase the trial's memory, although its folder is removed too.

        A failure is printed, and hides neither the results nor another error.
        """
        try:
            self._api.call("DELETE", self._person.path())
        except CommandFailed as e:
            click.echo(
                f"The trial's memory was not erased, but its folder is removed: {e.message}",
                err=True,
            )

    def _help(self) -> None:
        """Put facts that the model did not save into its memory, so that finding can be tried."""
        for word, fact in SECRETLY.items():
            if not has(word, self._memory):
                self._person.call("POST", "passages", json={"content": fact})
        self._memory = self._texts()

    def _turn(self, turn: ScriptedTurn, history: list[dict[str, str]]) -> TurnResult:
        import httpx

        history.append({"role": "user", "content": turn.says})
        result = TurnResult()
        start_time = time.monotonic()
        try:
            answer = self._ask(history)
            self._read(answer, result)
        except (httpx.HTTPError, ValueError, LookupError, TypeError, OverflowError) as e:
            result.error = str(e) or type(e).__name__
        result.seconds = time.monotonic() - start_time
        texts = self._texts()
        result.added_texts = max(len(set(texts) - set(self._memory)), 0)
        result.memory = self._memory = texts
        history.append({"role": "assistant", "content": result.answer or "(no answer)"})
        return result

    def _ask(self, history: list[dict[str, str]]) -> httpx.Response:
        import httpx

        return httpx.post(
            f"{self._url}/v1/chat/completions",
            json={"model": self._how["model"], "messages": history, "user": self._person.user},
            headers={"authorization": f"Bearer {self._how['key']}"},
            timeout=self._how["timeout"],
            trust_env=False,
        )

    def _read(self, answer: httpx.Response, result: TurnResult) -> None:
        """Read an answer, and what the memory did for it. Raises ValueError, LookupError,
        TypeError, OverflowError.
        """
        from gateway.cli.client import message_of

        if answer.is_error:
            raise ValueError(f"{answer.status_code}: {message_of(answer)}"[:500])
        body = answer.json()
        if not isinstance(body, dict):
            raise TypeError("the answer is no JSON object")
        result.answer = str(_object(body["choices"][0], "message").get("content") or "")
        if body.get("usage") is not None:
            usage = _object(body, "usage")
        else:
            usage = {}
        result.tokens_in = int(usage.get("prompt_tokens") or 0)
        result.tokens_out = int(usage.get("completion_tokens") or 0)
        record = self._api.explain(answer.headers.get("x-memory-explain", "")) or {}
        calls = record.get("tools") or []
        result.calls = [str(call["name"]) for call in calls]
        result.refused_calls = sum(str(call.get("result")).startswith(REFUSED) for call in calls)
        result.offered = bool((record.get("injected") or {}).get("tools"))

    def _texts(self) -> list[str]:
        """Return what is kept now: the lines of the blocks, and the passages."""
        blocks = self._person.call("GET", "blocks")["data"]
        lines = [line for b in blocks for line in b["value"].splitlines() if line.strip()]
        passages = self._api.pages(self._person.path("passages"), {"limit": 200})
        return lines + [p["content"] for p in passages]


def _object(value: Any, name: str) -> dict[str, Any]:
    """Return a member of an answer that must be an object. Raises TypeError."""
    member = None
    if isinstance(value, dict):
        member = value.get(name)
    if not isinstance(member, dict):
        raise TypeError(f"the answer's {name} is no object: {member!r:.100}")
    return member


def _tell(verdict: Verdict, results: list[TurnResult]) -> None:
    def word(right: bool) -> str:
        if right:
            return "yes"
        return "no"

    tokens = sum(r.tokens_in for r in results), sum(r.tokens_out for r in results)
    click.echo(f"saves     {verdict.saves.correct} of {verdict.saves.total} facts")
    click.echo(f"finds     {verdict.finds.correct} of {verdict.finds.total} facts")
    click.echo(f"corrects  {word(verdict.corrects)}")
    click.echo(f"forgets   {word(verdict.forgets)}")
    click.echo(
        f"calls     {verdict.calls}, {verdict.refused_calls} of them refused; "
        f"{verdict.junk} texts saved from small talk"
    )
    click.echo(
        f"cost      {tokens[0]} tokens in, {tokens[1]} out, {sum(r.seconds for r in results):.1f} s"
    )
    if verdict.failed_turns:
        errors = [r.error for r in results if r.error]
        click.echo(f"failed    {verdict.failed_turns} turns, the last with: {errors[-1]}")
    click.echo("\nRecommended:")
    for name, (value, why) in verdict.settings.items():
        click.echo(f'  {name} = "{value}"    # {why}')
