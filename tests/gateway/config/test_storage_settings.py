"""Where the memory may be kept, and what is told of a place where it may not."""

from __future__ import annotations

import pytest

from gateway.config.loader import read_settings
from gateway.config.secret_file import server_secret
from gateway.config.settings import ConfigError

SECRET = "5a" * 32
POSTGRES = "postgresql+asyncpg://me:sentinel-pw@db.example/memory"


def settings(**storage):
    return read_settings(None, {}, {f"storage.{name}": value for name, value in storage.items()})


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        ({"database": POSTGRES}, r"secret is required with Postgres.*64 hexadecimal digits"),
        ({"database": "postgresql://db/x"}, r"use sqlite\+aiosqlite.* or postgresql\+asyncpg"),
        ({"secret": "abc"}, r"64 hexadecimal digits.*this has 3 characters"),
        ({"secret": "z" * 64}, "64 hexadecimal digits"),
        ({"pool": 1}, r"storage\.pool"),
    ],
)
def test_what_cannot_be_used_is_told_with_the_next_step(storage, told):
    with pytest.raises(ConfigError, match=told) as found:
        settings(**storage)
    assert "sentinel-pw" not in str(found.value)
    assert "z" * 64 not in str(found.value)


def test_a_server_is_named_without_its_password_and_has_no_file():
    found = settings(database=POSTGRES, secret=SECRET)
    assert found.database_shown == "postgresql+asyncpg://db.example/memory"
    assert (found.sqlite_file, found.storage.is_postgres) == (None, True)
    assert SECRET not in repr(found)


def test_a_given_secret_goes_before_the_file(tmp_path):
    assert server_secret(settings(data=str(tmp_path), secret=SECRET)) == bytes.fromhex(SECRET)
    assert not (tmp_path / "secret").exists()
    assert len(server_secret(settings(data=str(tmp_path)))) == 32
    assert (tmp_path / "secret").exists()
