"""After its conversation the demo says where to go on, and logs what apps ask of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import httpx

from tests.sockets import free_port

SECONDS = 90.0


def test_the_demo_names_the_dashboard_and_run_and_logs_requests(tmp_path):
    port = free_port()
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "MNEMOGATE_"))},
        "MNEMOGATE_DATA": str(tmp_path),
        "MNEMOGATE_SERVER__PORT": str(port),
    }
    command = [sys.executable, "-u", "-m", "gateway", "demo"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as demo:
        guard = threading.Timer(SECONDS, demo.kill)
        guard.start()
        try:
            told = []
            for line in demo.stdout:
                told.append(line)
                if "logged here" in line:
                    break
            text = "".join(told)
            url = f"http://127.0.0.1:{port}"
            assert f"({url}/ui)" in text
            assert "run -- claude" in text
            with httpx.Client(trust_env=False) as http:
                assert http.get(f"{url}/v1/models").status_code == 200
            assert "GET /v1/models 200" in demo.stdout.readline()
        finally:
            guard.cancel()
            demo.terminate()
            demo.wait(20)
