"""`mnemogate ui` and `mnemogate top`, as a user runs them beside a running gateway."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request

import httpx
import pytest
from click.testing import CliRunner

from gateway.cli import top
from gateway.cli.main import cli
from tests.gateway.cli.command import mnemogate, started


def opened(url):
    """The final address of a link whose button is pressed, with the cookies of a browser."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=10) as answer:
        code = re.search(r'name="code" value="([^"]+)"', answer.read().decode())[1]
    form = f"code={code}".encode()
    with browser.open(url.partition("?")[0], data=form, timeout=10) as answer:
        return answer.url, answer.read().decode()


def test_the_link_signs_in_once_and_top_tells_the_turns(tmp_path):
    with started(tmp_path, "serve", "--port", "0") as running:
        gateway = running.url
        running.waited("Mnemogate serves")
        printed = mnemogate(tmp_path, "ui", "--print")
        assert printed.returncode == 0, printed.stderr
        link = printed.stdout.strip()
        token = (tmp_path / "token").read_text().strip()
        assert token not in link
        where, page = opened(link)
        assert where.endswith("/ui")
        assert "<h1>Users</h1>" in page
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opened(link)
        assert re.fullmatch(rf"{re.escape(gateway)}/ui/enter\?code=\S+", link)
        shown = mnemogate(tmp_path, "top", "--once", "--json")
        assert shown.returncode == 0, shown.stderr
        assert [json.loads(line) for line in shown.stdout.splitlines()] == []


def test_without_a_gateway_it_says_what_to_start(tmp_path):
    done = mnemogate(tmp_path, "ui")
    assert done.returncode == 1
    assert "mnemogate serve" in done.stderr


@pytest.mark.parametrize(("last", "told"), [(0, "de"), (2, "bcde"), (9, "abcde")])
def test_top_tells_the_last_turns_asked_for_and_each_new_one_once(monkeypatch, last, told):
    # Old turns leave the window.
    rounds = iter(["abc", "abcd", "cde", "de"])

    class Api:
        def call(self, *_, **__):
            if (found := next(rounds, None)) is None:
                raise KeyboardInterrupt
            turn = {"created_at": "2026-03-01T12:00:00Z", "user": "ada", "model": "m", "calls": []}
            return {"data": [{**turn, "id": x, "injected_tokens": 1} for x in reversed(found)]}

    monkeypatch.setattr(top, "open_api", lambda *_, **__: contextlib.nullcontext(Api()))
    monkeypatch.setattr(top, "EVERY_SECONDS", 0)
    shown = CliRunner().invoke(top.top, ["--last", str(last), "--json"])
    assert [json.loads(line)["id"] for line in shown.stdout.splitlines()] == list(told)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_told_without_markup(monkeypatch, tmp_path, status):
    page = "<!doctype html><html><body>Sign in</body></html>"
    monkeypatch.setattr(httpx, "post", lambda *_, **__: httpx.Response(status, html=page))
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path))
    done = CliRunner().invoke(cli, ["ui", "--print", "--url", "http://127.0.0.1:9", "--key", "x"])
    assert done.exit_code != 0
    assert "does not know this key" in done.output
    assert "<" not in done.output
