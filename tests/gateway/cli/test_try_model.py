"""`mnemogate try` with scripted models that behave well, badly, and not at all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from gateway.cli import trial, try_model
from gateway.cli.client import ManagementClient
from gateway.cli.main import cli
from gateway.cli.options import CommandFailed

FACTS = ("beekeeper", "Biscuit", "walnut")


@contextmanager
def serving(behave):
    """A server that answers a request's body with (status, message). Yields its URL and bodies."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self):
            if not self.path.startswith("/v1/"):
                self.send_error(404)
                return
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            status, message = behave(body)
            usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            if status == 200 and message.get("tool_calls"):
                choice["finish_reason"] = "tool_calls"
            whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
            good = {**whole, "choices": [choice], "usage": usage}
            raw = json.dumps(good if status == 200 else message).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # A client that left.
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def says(text):
    return 200, {"role": "assistant", "content": text}


def calls(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call_1", "type": "function", "function": function}
    return 200, {"role": "assistant", "content": None, "tool_calls": [call]}


def asked(body):
    """What the user said last, and what tools answered since."""
    at = max(i for i, m in enumerate(body["messages"]) if m["role"] == "user")
    content = body["messages"][at]["content"]
    text = content if isinstance(content, str) else " ".join(p["text"] for p in content)
    results = [str(m["content"]) for m in body["messages"][at:] if m["role"] == "tool"]
    return text, results


def attentive(body):
    """Saves what is told, searches what is asked, corrects and forgets."""
    text, results = asked(body)
    insert, forget = "archival_memory_insert", "memory_forget"
    if "not Biscuit" in text:
        steps = (forget, {"id": "Dog: Biscuit"}), (insert, {"content": "Dog: Pepper"})
    elif "Forget" in text:
        steps = ((forget, {"id": "Allergic: walnut"}),)
    elif text.endswith("?") and any(
        w in text for w in ("dog", "living", "not eat", "allergic to any")
    ):
        word = "dog" if "dog" in text else "beekeeper work" if "living" in text else "allergic"
        steps = (("archival_memory_search", {"query": word}),)
    else:
        told = {"beekeeper": "Work", "Biscuit": "Dog", "walnut": "Allergic"}
        steps = tuple((insert, {"content": f"{told[f]}: {f}"}) for f in FACTS if f in text)
    if len(results) < len(steps):
        name, arguments = steps[len(results)]
        return calls(name, **arguments)
    return says(results[-1] if results else "Certainly.")


def tried(url, *more, code=0):
    done = CliRunner().invoke(cli, ["try", "m", "--upstream", url, *more])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """The folder of temporary files and of data, in which nothing may be left."""
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [None, "sk-of-mine-0123456789"])
def test_a_model_that_behaves_well(monkeypatch, key):
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with serving(attentive) as (url, _):
        done = tried(url, "--json")
    report = json.loads(done.stdout)
    assert report["saves"] == {"right": 3, "of": 3}
    assert report["finds"] == {"right": 3, "of": 3}
    assert (report["corrects"], report["forgets"], report["junk"]) == (True, True, 0)
    assert report["tokens"]["input"] >= 1200
    assert report["recommended"]["memory.extract"]["value"] == "off"
    assert report["recommended"]["memory.recall"]["value"] == "tools"
    assert "12/12  yes" in done.stderr


def test_the_api_is_found_at_v1_as_documented():
    """`--upstream http://127.0.0.1:11434`, as Ollama is started."""
    with serving(attentive) as (url, _):
        done = tried(url.removesuffix("/v1"))
        assert f"The API is at {url}." in done.stderr
        assert "yes" in done.stderr


def test_no_line_of_the_log_runs_through_the_report(capfd):
    failures = iter(range(100))

    def flaky(body):
        return (500, {"error": {"message": "overloaded"}}) if next(failures) < 2 else says("Well.")

    with serving(flaky) as (url, _):
        command = [sys.executable, "-m", "gateway", "try", "m", "--upstream", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = (r"\s*\d+/\d+ +(yes|no) ", r"The API is at ", r"$")
    lines = done.stderr.splitlines()
    assert len(lines) >= 10
    assert [line for line in lines if not any(re.match(form, line) for form in report)] == []


def test_a_model_that_never_calls():
    with serving(lambda _: says("I see.")) as (url, bodies):
        done = tried(url)
    assert "saves     0 of 3 facts" in done.stdout
    assert 'memory.extract = "always"' in done.stdout
    assert 'memory.recall = "always"' in done.stdout
    assert 'memory.tools = "with_client_tools"' in done.stdout
    assert all(body["tools"] for body in bodies)


def test_a_model_that_calls_wrongly():
    def wrong(body):
        return says("Saved.") if asked(body)[1] else calls("archival_memory_insert", text="x")

    with serving(wrong) as (url, _):
        report = json.loads(tried(url, "--json").stdout)
    assert (report["calls"], report["calls_refused"]) == (12, 12)
    assert report["recommended"]["memory.tools"]["value"] == "never"


def test_a_model_that_saves_junk():
    def junk(body):
        text, results = asked(body)
        if len(results) < 2:
            return calls("archival_memory_insert", content=f"{len(results)} User said: {text}")
        return says("Noted.")

    with serving(junk) as (url, _):
        report = json.loads(tried(url, "--json").stdout)
    assert report["junk"] == 4
    assert report["recommended"]["memory.tools"]["value"] == "never"


def test_a_server_that_refuses_tools():
    def without(body):
        if body.get("tools"):
            return 400, {"error": {"message": "m does not support tools", "type": "invalid"}}
        return says("I see.")

    with serving(without) as (url, _):
        report = json.loads(tried(url, "--json").stdout)
    assert (report["takes_tools"], report["turns_failed"]) == (False, 0)
    assert report["recommended"]["memory.tools"]["value"] == "never"


def test_a_model_that_fails_now_and_then_is_tried_to_the_end():
    count = iter(range(1000))

    def flaky(body):
        if next(count) % 4 == 3:
            return 400, {"error": {"message": "overloaded", "type": "x"}}
        return attentive(body)

    with serving(flaky) as (url, _):
        report = json.loads(tried(url, "--json").stdout)
    assert len(report["turns"]) == 12


def test_a_server_that_refuses_everything_ends_the_trial():
    with serving(lambda _: (401, {"error": {"message": "bad key"}})) as (url, _):
        told = tried(url, code=1).stderr
    assert "did not answer 3 turns in a row: 502" in told
    assert "OPENAI_API_KEY" in told


def test_a_model_that_takes_too_long_ends_the_trial():
    def slow(_):
        time.sleep(0.5)
        return says("late")

    with serving(slow) as (url, _):
        assert "--timeout" in tried(url, "--timeout", "0.1", code=1).stderr


class _Answer:
    """An answer of a server, as far as it is read. body: its JSON."""

    is_error, headers = False, {}

    def __init__(self, body):
        self.json = lambda: body


@pytest.mark.parametrize(
    "body",
    [
        [],
        None,
        {},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": "x"}}], "usage": 7},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": [1]}},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": float("inf")}},
    ],
)
def test_an_answer_of_any_shape_is_a_failed_turn(monkeypatch, body):
    played = try_model._Trial(None, "", {})
    monkeypatch.setattr(played, "_ask", lambda _: _Answer(body))
    monkeypatch.setattr(played, "_texts", list)
    assert played._turn(trial.SCRIPT[0], []).error


def test_a_memory_that_cannot_be_erased_hides_no_other_error(monkeypatch):
    call = ManagementClient.call

    def refuse(api, method, path, **options):
        if method == "DELETE":
            raise CommandFailed("no erasing")
        return call(api, method, path, **options)

    monkeypatch.setattr(ManagementClient, "call", refuse)
    with serving(lambda _: (401, {"error": {"message": "bad key"}})) as (url, _):
        told = tried(url, code=1).stderr
    assert "did not answer 3 turns in a row" in told
    assert "no erasing" in told


def test_the_memory_is_erased_if_the_trial_is_stopped(monkeypatch):
    erased = []
    erase = try_model._Trial.erase
    monkeypatch.setattr(try_model._Trial, "erase", lambda t: erased.append(1) or erase(t))
    monkeypatch.setattr(try_model._Trial, "_help", lambda _: try_model._stop())
    with serving(attentive) as (url, _):
        assert CliRunner().invoke(cli, ["try", "m", "--upstream", url]).exit_code == 1
    assert erased == [1]


def test_without_a_server_it_says_what_to_name(monkeypatch):
    monkeypatch.delenv("MNEMOGATE_UPSTREAM", raising=False)
    done = CliRunner().invoke(cli, ["try", "m"])
    assert done.exit_code == 1
    assert "--upstream" in done.stderr


def test_the_script_has_about_a_dozen_turns():
    assert len(trial.SCRIPT) == 12
    assert sum(turn.idle for turn in trial.SCRIPT) == 2


def test_the_key_is_that_of_the_server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-open")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-anth")
    for upstream, key in (
        (None, "sk-open"),
        ("http://127.0.0.1:11434", "sk-open"),
        ("https://api.anthropic.com", "sk-anth"),
        ("https://anthropic.com.example.org", "sk-open"),
    ):
        assert try_model._key(upstream) == key
