"""After its conversation the demo says where to go on, and logs what apps ask of it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading

import httpx
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from gateway.cli.db import upgrade_data
from gateway.config.loader import load
from memory.stores.sql import migrations
from memory.stores.sql.engine import schema
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


def test_the_memory_of_an_earlier_demo_is_migrated(tmp_path):
    settings = load(None, {}, {"storage.data": str(tmp_path)})
    upgrade_data(settings)
    assert not settings.sqlite_file.exists()
    engine = create_engine(f"sqlite:///{settings.sqlite_file}")
    with engine.begin() as conn:
        config = Config(attributes={"connection": conn})
        config.set_main_option("script_location", next(iter(migrations.__path__)))
        command.upgrade(config, "0014")
    engine.dispose()
    upgrade_data(settings)
    with contextlib.closing(sqlite3.connect(settings.sqlite_file)) as conn:
        version = conn.execute("SELECT version_num FROM alembic_version").fetchone()
    assert version == (schema.REVISION,)
    settings.sqlite_file.write_bytes(b"no database")
    upgrade_data(settings)
