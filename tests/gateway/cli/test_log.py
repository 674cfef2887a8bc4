"""What `mnemogate serve` writes to its log, as a process: one line a request, whatever became of
the request.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from gateway.demo_model.server import start as start_bundled
from tests.gateway.cli.command import spawned, started

PROMPT, KEY = "my-prompt-is-mine", "sk-sentinel-0aa1"
HEADERS = {"authorization": f"Bearer {KEY}"}


def chat(**more):
    return {"model": "mnemogate-demo", "messages": [{"role": "user", "content": PROMPT}], **more}


@pytest.fixture(scope="module")
def upstream():
    with start_bundled() as server:
        yield server.url


def lines(process):
    return [json.loads(line) for line in process.lines if '"mnemogate.access"' in line]


def test_each_request_leaves_one_line_and_no_prompt_and_no_key(tmp_path, upstream):
    with started(
        tmp_path, "serve", "--port", "0", "--upstream", upstream, "--log-format", "json"
    ) as process:
        with httpx.Client(base_url=process.url, headers=HEADERS) as client:

            def asked(method, path, expect, **options):
                answer = client.request(method, path, **options)
                assert answer.status_code == expect, answer.text
                return answer.headers["x-mnemogate-request-id"]

            token = {"authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
            sent = [
                (
                    asked("POST", "/v1/chat/completions", 200, json=chat(user="ada b")),
                    ("ada b", "ok", None),
                ),
                (
                    asked("POST", "/v1/chat/completions", 200, json=chat(stream=True)),
                    ("me", "ok", None),
                ),
                (
                    asked("POST", "/u/eve/v1/chat/completions", 200, json=chat()),
                    ("eve", "ok", None),
                ),
                (
                    asked(
                        "POST",
                        "/v1/chat/completions",
                        200,
                        json=chat(),
                        headers={"x-memory": "off"},
                    ),
                    (None, "off", None),
                ),
                (
                    asked("POST", "/v1/completions?key=" + KEY, 404, json=chat()),
                    (None, "off", "not_found"),
                ),
                (asked("GET", "/v1/models", 200), (None, None, None)),
                (
                    asked(
                        "POST",
                        "/v1/chat/completions",
                        # A key of the management API, which is never sent upstream.
                        401,
                        json=chat(),
                        headers=token,
                    ),
                    (None, None, "invalid_api_key"),
                ),
                (
                    asked("POST", "/v1/chat/completions", 400, content=PROMPT),
                    (None, None, "invalid_json"),
                ),
                (
                    asked("GET", "/v1/models", 403, headers={"x-forwarded-for": "203.0.113.9"}),
                    (None, None, "forbidden"),
                ),
                (
                    asked("GET", "/memory/v1/users/ada%20b/blocks", 200, headers=token),
                    ("ada b", None, None),
                ),
                (asked("GET", "/memory/v1/users", 401), (None, None, "invalid_api_key")),
                (asked("GET", f"/{PROMPT.upper()}", 404), (None, None, "not_found")),
            ]
            client.get("/health")
        assert process.stopped() == 0
    found = {one["request_id"]: one for one in lines(process)}
    assert len(lines(process)) == len(sent)
    assert [(found[i]["user"], found[i]["memory"], found[i]["code"]) for i, _ in sent] == [
        wanted for _, wanted in sent
    ]
    first = found[sent[0][0]]
    assert (first["method"], first["path"], first["status"], first["key"]) == (
        "POST",
        "/v1/chat/completions",
        200,
        "own",
    )
    assert first["upstream"] == "openai/mnemogate-demo"
    assert first["attempts"] == first["rounds"] >= 1
    assert min(first["input_tokens"], first["output_tokens"], first["ms"]) > 0
    assert "x-forwarded-for" in found[sent[8][0]]["reason"]
    assert PROMPT not in "\n".join(process.lines)
    assert KEY not in "\n".join(process.lines)
    assert json.loads(process.lines[-1])["message"] == "Mnemogate has stopped"


def test_a_request_whose_client_left_is_in_the_log(tmp_path, upstream):
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        started(
            tmp_path,
            "serve",
            "--port",
            "0",
            "--upstream",
            f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
            "--log-format",
            "json",
        ) as process,
    ):
        host, port = process.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port))
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(chat(user="ada")),
            {**HEADERS, "content-type": "application/json"},
        )
        taken = silent.accept()[0]
        taken.recv(1)
        connection.close()
        half = socket.create_connection((host, int(port)))
        half.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer "
            f"{KEY}\r\ncontent-length: 9\r\n\r\nhalf".encode()
        )
        # No more comes, but the connection is still somebody's: else nobody is asked for a key.
        half.shutdown(socket.SHUT_WR)
        until = time.monotonic() + 20
        while len(lines(process)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        half.close()
        taken.close()
    assert {(one["status"], one["user"], one["key"]) for one in lines(process)} == {
        (499, "ada", "own"),
        (499, None, "own"),
    }


def test_a_request_that_cannot_be_read_is_in_the_log(tmp_path, upstream):
    with started(
        tmp_path, "serve", "--port", "0", "--upstream", upstream, "--log-format", "json"
    ) as process:
        host, port = process.url.removeprefix("http://").split(":")
        for sent in (
            b"nonsense\r\n\r\n",
            b"GET /v1/models?key="
            + KEY.encode()
            + b"&x="
            + b"x" * 20_000
            + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        ):
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall(sent)
                assert raw.recv(9) == b"HTTP/1.1 "
        assert process.stopped() == 0
    first, second = lines(process)
    assert (first["status"], second["status"], second["code"]) == (400, 414, "url_too_long")
    assert second["path"] == "/v1/models"
    assert KEY not in "\n".join(process.lines)


def test_a_log_that_nobody_reads_holds_up_no_request_and_no_shutdown(tmp_path, upstream):
    serve = (sys.executable, "-m", "gateway", "serve", "--port", "0", "--upstream", upstream)
    with spawned(tmp_path, *serve, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        url = child.stderr.readline().split()[2].removesuffix("/v1")
        with httpx.Client(base_url=url, timeout=10) as client:
            # Some 200 bytes of log each, and a pipe holds 64 KiB.
            for _ in range(900):
                assert client.get("/" + "x" * 200).status_code == 404
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


@pytest.mark.parametrize(
    ("level", "health", "chats"),
    [("debug", True, True), ("info", False, True), ("error", False, False)],
)
def test_the_level_says_what_is_shown(tmp_path, upstream, level, health, chats):
    with started(
        tmp_path, "serve", "--port", "0", "--upstream", upstream, "--log-level", level
    ) as process:
        httpx.get(f"{process.url}/health")
        httpx.post(f"{process.url}/v1/chat/completions", json=chat(), headers=HEADERS)
        assert process.stopped() == 0
    process._reader.join(5)
    told = "\n".join(process.lines)
    assert ("GET /health 200" in told) is health
    assert ("POST /v1/chat/completions 200 key=own user=me memory=ok" in told) is chats
    assert ("Mnemogate has stopped" in told) is chats
