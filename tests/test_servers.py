"""On a machine without a server, what needs it is skipped with its reason, and is no error."""

from __future__ import annotations

import pytest

from tests import postgres_server, stores


@pytest.mark.parametrize(
    "start",
    [
        lambda folder: postgres_server.PostgresServer(folder),
        lambda folder: postgres_server.postgres_server().__enter__(),
        lambda folder: stores.server.__wrapped__(),
    ],
)
def test_what_needs_postgres_is_skipped_without_it(monkeypatch, tmp_path, start):
    monkeypatch.setattr(postgres_server, "binaries", lambda: None)
    with pytest.raises(pytest.skip.Exception, match="postgres is not installed"):
        start(tmp_path)
