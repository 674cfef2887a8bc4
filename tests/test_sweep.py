"""The sweep that follows every run of the suite finds a key where one lies."""

import logging
import subprocess
import sys

from tests.e2e.wire.ways import GATEWAY_KEY
from tests.sweep import Overheard, leaks
from tests.test_architecture import ROOT


def test_a_key_in_a_file_or_a_log_record_is_found(tmp_path):
    planted = tmp_path / "data" / "mnemogate.db-wal"
    planted.parent.mkdir()
    planted.write_bytes(b"\x00" * 100 + GATEWAY_KEY.encode() + b"\x00")
    (tmp_path / "gateway.toml").write_text(f'key = "{GATEWAY_KEY}"')
    found = leaks(tmp_path)
    # The real sweep comes when this test ends.
    planted.unlink()
    assert found == [f"data/mnemogate.db-wal: {GATEWAY_KEY}"]
    handler = Overheard()
    handler.emit(
        logging.LogRecord("mnemogate", logging.INFO, "", 0, "refused %s", (GATEWAY_KEY,), None)
    )
    handler.emit(logging.LogRecord("mnemogate", logging.INFO, "", 0, "refused", (), None))
    assert len(handler.found) == 1


SUITE = f"""
def test_leak(tmp_path):
    (tmp_path / "file.db").write_bytes({GATEWAY_KEY.encode()!r})

def test_failure(tmp_path):
    (tmp_path / "kept").write_bytes(b"x" * 100)
    assert False
"""


def test_what_a_passed_test_leaves_is_swept_and_removed(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    base = tmp_path / "base"
    options = ["-q", "-p", "tests.sweep", "--rootdir", tmp_path, "--basetemp", base]
    command = [sys.executable, "-m", "pytest", *options, tmp_path / "test_suite.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1
    assert f"file.db: {GATEWAY_KEY}" in run.stdout
    assert [p.name for p in base.rglob("*") if p.is_file()] == ["kept"]
