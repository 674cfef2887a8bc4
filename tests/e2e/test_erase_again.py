"""A restore to a moment before an erasure brings the user back; the log can erase them again."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil

from tests.conftest import running
from tests.gateway.cli.command import mnemogate
from tests.models import Model, text

ADMIN = {"name": "root", "key": "sk-root-0123456789abcdef", "tenant": "acme", "admin": True}


def gateway(up, data):
    file = {"storage.database": f"sqlite+aiosqlite:///{data}/mnemogate.db", "storage.secret": ""}
    return running(up.url, data, {**file, "keys": [ADMIN]}, ADMIN["key"])


async def users_of(live):
    return {user["id"] for user in (await live.memory("GET", "/users")).json()["data"]}


async def test_what_was_erased_after_the_backup_is_erased_again(data, tmp_path, caplog):
    log, saved = tmp_path / "gateway.log", tmp_path / "saved.db"
    caplog.set_level(logging.INFO, logger="mnemogate")
    async with Model(text("so be it")) as up:
        async with gateway(up, data) as live:
            for user in ("ada", "bob", "eve"):
                said = await live.chat(f"I am {user}", {"x-memory-user": user})
                assert said.headers["x-memory-status"] == "ok"
            assert (await live.memory("DELETE", "/users/eve")).status_code == 200
            await live.chat("I am back", {"x-memory-user": "eve"})
            # What is asked for is written.
            await live.memory("GET", "/usage?group_by=user")
            made = await asyncio.to_thread(mnemogate, data, "db", "backup", str(saved))
            assert made.returncode == 0, made.stderr
            assert (await live.memory("DELETE", "/users/ada")).status_code == 200
        log.write_text("a line\n" + "\n".join(json.dumps({"message": m}) for m in caplog.messages))
        told = [m for m in caplog.messages if m.startswith("erased ")]
        assert len(told) == 2
        # A key is hexadecimal, which may spell a name.
        assert all(re.fullmatch(r"erased owner=[0-9a-f]{32} at=[0-9.]+", m) for m in told)
        for part in data.glob("mnemogate.db*"):
            part.unlink()
        shutil.copy(saved, data / "mnemogate.db")
        for erased in (1, 0):
            done = await asyncio.to_thread(mnemogate, data, "db", "erase-again", str(log), "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == {"logged": 2, "erased": erased}
        async with gateway(up, data) as live:
            assert await users_of(live) == {"bob", "eve"}
            used = (await live.memory("GET", "/usage?group_by=user")).text
            assert "ada" not in used
            assert "bob" in used
