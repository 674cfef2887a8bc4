"""What a line of `mnemogate chat` that begins with `/` does, by the management API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from gateway.cli.client import ManagementClient, user_path
from gateway.cli.formatting import tool_lines
from gateway.cli.options import CommandFailed

MAX_LISTED = 10
HELP = "/remember TEXT, /forget WORDS, /memory, /undo [BLOCK], /search WORDS, /why"


class ChatCommands:
    """The commands of one chat. explain: the id of the newest answer's explain record."""

    def __init__(self, api: ManagementClient, user: str) -> None:
        self._api = api
        self._user = user
        self.explain: str | None = None
        self._commands: dict[str, Callable[[str], list[str]]] = {
            "remember": self._remember,
            "forget": self._forget,
            "memory": self._show,
            "undo": self._undo,
            "search": self._search,
            "why": self._why,
        }

    def run(self, line: str) -> list[str]:
        """Run a line; return what to show. A failure is shown too."""
        name, _, text = line.removeprefix("/").partition(" ")
        if (command := self._commands.get(name)) is None:
            return [f"There is no command /{name[:40]}. There are: {HELP}"]
        try:
            return command(text.strip())
        except CommandFailed as e:
            return [str(e)]

    def _call(self, method: str, *path: str, **options: Any) -> Any:
        return self._api.call(method, user_path(self._user, *path), **options)

    def _remember(self, text: str) -> list[str]:
        answer = self._call("POST", "passages", json={"content": text})
        return [f"remembered: {p['content']}" for p in answer["data"]]

    def _forget(self, text: str) -> list[str]:
        if not text:
            return ["What should be forgotten? /forget WORDS, or an id"]
        if not text.startswith("passage_"):
            passages = self._find("passages", text)
            exact_matches = [p for p in passages if p["content"].casefold() == text.casefold()]
            if len(candidates := exact_matches or passages) != 1:
                choices = [f"/forget {p['id']}  {p['content']}" for p in candidates]
                if candidates:
                    return ["Which of these?", *choices]
                return ["Nothing like that was found."]
            text = candidates[0]["id"]
        self._call("POST", "passages", text, "forget")
        return [f"forgotten: {text}"]

    def _show(self, text: str) -> list[str]:
        blocks = self._call("GET", "blocks")["data"]
        lines = [f"{b['label']}: {b['value']}" for b in blocks if b["value"]]
        passages = self._call("GET", "passages", params={"limit": MAX_LISTED})["data"]
        return [*lines, *(f"- {p['content']}" for p in passages)] or ["Nothing yet."]

    def _undo(self, text: str) -> list[str]:
        if text:
            now = self._call("POST", "blocks", quote(text, safe=""), "undo")
            return [f"{text} now reads: {now.get('value') or '(empty)'}"]
        undone = self._call("POST", "undo")
        text_now = undone["text"] or "(empty)"
        if undone["kind"] == "block":
            return [f"{undone['name']} now reads: {text_now}"]
        verbs = {"edited": "the detail now reads", "forgotten": "remembered again"}
        return [f"{verbs.get(undone['kind'], 'forgotten again')}: {text_now}"]

    def _search(self, text: str) -> list[str]:
        hits = [hit for kind in ("passages", "messages") for hit in self._find(kind, text)]
        return [f"- {hit['content']}" for hit in hits] or ["Nothing was found."]

    def _find(self, kind: str, words: str) -> list[dict[str, Any]]:
        params = {"q": words, "limit": MAX_LISTED}
        hits: list[dict[str, Any]] = self._call("GET", kind, "search", params=params)["data"]
        return hits

    def _why(self, text: str) -> list[str]:
        record = None
        if self.explain:
            record = self._api.explain(self.explain)
        if record is None:
            return ["There is no answer to explain yet."]
        decisions = [
            f"{name} was {'on' if d['on'] else 'off'}: {d['why']}"
            for name, d in record["decisions"].items()
        ]
        token_line = f"{record['tokens']['injected']} tokens were added"
        return [token_line, *tool_lines(record), *decisions, *record["remarks"]]
