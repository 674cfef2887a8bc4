"""A memory that is open, and somebody who reaches into it from outside."""

from __future__ import annotations

import pytest

from memory import EditSource, ManagementActor, Memory, Policy, Scope

SECRET = b"s" * 32


@pytest.fixture
def scope():
    return Scope("acme", "ada", "default", SECRET)


@pytest.fixture
def actor(scope):
    return ManagementActor(scope, {}, EditSource("api", "req"))


@pytest.fixture
async def store(db, tmp_path):
    out = Memory(db, Policy(), SECRET, tmp_path)
    await out.open()
    yield out
    await out.close()
