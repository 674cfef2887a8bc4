"""`mnemogate doctor` and the disk."""

from __future__ import annotations

import shutil

import pytest

from gateway.cli.doctor import _data
from gateway.config.loader import load


@pytest.mark.parametrize(
    ("mebibytes", "state"), [(5000, "ok"), (256, "ok"), (255, "note"), (8, "note"), (7, "failed")]
)
def test_a_disk_that_is_nearly_full_is_told_with_what_is_left(
    tmp_path, monkeypatch, mebibytes, state
):
    class Usage:
        free = mebibytes << 20

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    found = _data(load(None, {}, {"storage.data": str(tmp_path / "not there yet")}))
    assert (found.what, found.state) == ("data folder", state)
    assert (f"{mebibytes} MiB are free" in found.told) == (state != "ok")
