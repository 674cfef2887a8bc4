"""`mnemogate doctor` and context windows: known, told by a server, too small, unknown."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager

from gateway.cli.window_check import check_windows
from gateway.config.loader import load


class Ollama(http.server.BaseHTTPRequestHandler):
    """Lists models, of which it has loaded one."""

    def do_GET(self):
        answers = {
            "/v1/models": {"data": [{"id": "llama"}, {"id": "qwen"}]},
            "/api/ps": {"models": [{"name": "qwen", "context_length": 32_768}]},
        }
        self.answer(answers.get(self.path))

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.answer({"model_info": {"llama.context_length": 131_072}, "parameters": ""})

    def answer(self, body):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(404 if body is None else 200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Silent(Ollama):
    """Lists its models, and tells nothing of them."""

    def do_GET(self):
        self.answer({"data": [{"id": "mystery"}]} if self.path == "/v1/models" else None)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.answer(None)


@contextmanager
def served(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def look(tmp_path, url, models=None):
    overrides = {"storage.data": str(tmp_path), "providers": {"p": {"base_url": url}}}
    settings = load(None, {}, overrides | ({"models": models} if models else {}))
    return {f.state: f.told for f in check_windows(settings)}


def test_a_server_is_asked_for_the_windows_of_the_models_that_it_lists(tmp_path):
    with served(Ollama) as url:
        found = look(tmp_path, url)
    assert found["ok"] == "qwen: 32,768 tokens"
    assert found["note"].startswith("llama: 4,096 tokens, as the server says, is little")
    assert found["note"].endswith("OLLAMA_CONTEXT_LENGTH=32768)")


def test_a_window_that_nobody_tells_is_named_with_its_setting(tmp_path):
    with served(Silent) as url:
        listed = look(tmp_path, url)
        targets = {"targets": [{"provider": "p", "model": "mystery"}]}
        named = look(tmp_path, url, {"mine": targets})
        set_here = look(tmp_path, url, {"mine": {**targets, "context_window": 9000}})
    assert listed["note"].endswith('set context_window in [models."mystery"]')
    assert named["note"].endswith('set context_window in [models."mine"]')
    assert set_here == {"ok": "from the configuration and models.toml"}


def test_windows_of_a_hosted_provider_and_of_a_server_that_is_down(tmp_path):
    assert look(tmp_path, "https://api.openai.com/v1") == {
        "ok": "from the configuration and models.toml"
    }
    down = look(tmp_path, "http://127.0.0.1:9/v1", {"mine": {"targets": [{"provider": "p"}]}})
    assert down["note"].startswith("unknown for mine")
