"""Nothing phones home: no process of ours looks up, contacts or writes anything but what the
configuration or a command names.

Each runs in a network of its own in which every packet is seen, with an empty home and without
`CI`, by which some libraries know to be quiet.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from memory.embed.onnx import unpack
from tests.gateway.cli.command import ROOT
from tests.memory.embed import test_onnx as tiny

E2E = Path(__file__).parent
ONNX = {"MNEMOGATE_MEMORY__EMBEDDER": "onnx-minilm", "MNEMOGATE_STORAGE__VECTORS": "none"}
CHROMA = {
    **ONNX,
    "MNEMOGATE_STORAGE__VECTORS": "chroma:embedded",
    "MNEMOGATE_STORAGE__EXACT_BELOW": "0",
}


@pytest.fixture
def alone(tmp_path):
    """Runs a program sealed off; returns what it said and whom it tried to reach."""
    if (
        sys.platform != "linux"
        or os.geteuid()
        or not all(map(shutil.which, ("unshare", "ip", "mount")))
    ):
        pytest.skip(
            "a network namespace needs Linux, root, and the programs unshare, ip and mount "
            "(packages util-linux, iproute2)"
        )
    for name in ("home", "tmp", "cwd", "data"):
        (tmp_path / name).mkdir()

    def run(*command, **env):
        kept = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path / "tmp"),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [
                "unshare",
                "--net",
                "--mount",
                sys.executable,
                str(E2E / "sealed.py"),
                str(tmp_path),
                sys.executable,
                *command,
            ],
            cwd=tmp_path,
            env={
                **kept,
                "PYTHONDONTWRITEBYTECODE": "1",
                "MNEMOGATE_DATA": str(tmp_path / "data"),
                **env,
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


def written(folder):
    """What lies in the home, in the folder for temporary files and in the working one."""
    return [
        str(path.relative_to(folder))
        for name in ("home", "tmp", "cwd")
        for path in (folder / name).rglob("*")
    ]


def test_what_is_looked_up_connected_to_or_written_is_seen(alone, tmp_path):
    """Else the tests below could not fail."""
    found = alone(
        "-c",
        "import contextlib, pathlib, socket\n"
        "with contextlib.suppress(OSError): socket.getaddrinfo('events.example.com', 443)\n"
        "with contextlib.suppress(OSError): socket.create_connection(('203.0.113.7', 443), 1)\n"
        "pathlib.Path.home().joinpath('deviceid').touch()",
    )
    assert found["asked"] == ["203.0.113.7:443", "events.example.com"]
    assert written(tmp_path) == ["home/deviceid"]


def test_the_demo_contacts_nobody(alone, tmp_path):
    found = alone("-m", "gateway", "demo", "--once", "--port", "0")
    assert "Your name is Ada" in found["output"]
    assert found["asked"] == []
    assert written(tmp_path) == []


@pytest.mark.parametrize(
    ("part", "env", "expected"),
    [
        ("none", {}, ("none", "")),
        (
            "redis",
            {"MNEMOGATE_STORAGE__REDIS": "redis://127.0.0.1:6390/0"},
            (
                "none",
                "",
                "redis-server",
                "--port",
                "6390",
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ),
        ),
        ("onnxruntime", ONNX, ("vectors", "")),
        ("chromadb", CHROMA, ("vectors", "chroma/chroma.sqlite3")),
    ],
)
def test_a_turn_with_an_optional_part_contacts_nobody(alone, tmp_path, part, env, expected):
    if part != "none" and find_spec(part) is None:
        pytest.skip(f"{part} is not installed")
    if part == "redis" and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    if env.get("MNEMOGATE_MEMORY__EMBEDDER"):
        archive, digest = tiny.archive(
            tmp_path / "a.tar.gz", model__onnx=tiny.tiny_model(), tokenizer__json=tiny.tokenizer()
        )
        unpack(archive, tmp_path / "data" / "embedder", digest)
    found = alone(str(E2E / "quiet_turn.py"), str(tmp_path / "data"), *expected, **env)
    assert found["output"].endswith("done\n"), found["output"]
    assert found["asked"] == []
    assert written(tmp_path) == []
