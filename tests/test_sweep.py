"""The sweep that follows every run of the suite finds a key where one lies."""

import logging

from tests.e2e.wire.ways import GATEWAY_KEY
from tests.sweep import Overheard, leaks


def test_a_key_in_a_file_or_a_log_record_is_found(tmp_path):
    planted = tmp_path / "data" / "mnemogate.db-wal"
    planted.parent.mkdir()
    planted.write_bytes(b"\x00" * 100 + GATEWAY_KEY.encode() + b"\x00")
    (tmp_path / "gateway.toml").write_text(f'key = "{GATEWAY_KEY}"')
    found = leaks(tmp_path)
    planted.unlink()  # the real sweep comes later
    assert found == [f"data/mnemogate.db-wal: {GATEWAY_KEY}"]
    handler = Overheard()
    handler.emit(
        logging.LogRecord("mnemogate", logging.INFO, "", 0, "refused %s", (GATEWAY_KEY,), None)
    )
    handler.emit(logging.LogRecord("mnemogate", logging.INFO, "", 0, "refused", (), None))
    assert len(handler.found) == 1
