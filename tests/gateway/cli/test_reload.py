"""SIGHUP: the configuration is read again."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

from gateway.cli.serve import reread
from gateway.config.loader import load


async def test_requests_go_on_while_the_configuration_is_read(tmp_path):
    """It asks the database for its keys, which may take seconds."""
    go, applied = threading.Event(), []

    def settings():
        assert go.wait(5), "the event loop waits"
        return load(None, {}, {"storage.data": str(tmp_path)})

    serving = SimpleNamespace(config="gateway.toml", settings=settings, upstream=None)
    app = SimpleNamespace(reload=lambda wanted: applied.append(wanted) or [])
    reading = asyncio.create_task(reread(serving, app))
    await asyncio.sleep(0.05)
    assert not applied
    go.set()
    await reading
    assert [found.data for found in applied] == [tmp_path]
