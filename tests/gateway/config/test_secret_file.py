"""The secrets of the data folder: whole or refused, the same for all, readable by their owner
alone.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from gateway.cli.serve import warnings
from gateway.config.loader import load
from gateway.config.secret_file import load_or_create_secret
from gateway.config.settings import ConfigError

MAKE = (
    "import sys, pathlib; from gateway.config.secret_file import load_or_create_secret; "
    "sys.stdin.read(1); print(load_or_create_secret(pathlib.Path(sys.argv[1]), 32).hex())"
)


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "secret"
    made = load_or_create_secret(path, 32)
    assert (len(made), path.stat().st_mode & 0o777, load_or_create_secret(path, 32)) == (
        32,
        0o600,
        made,
    )
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize("text", ["", "\n", "ab", "00" * 31, "00" * 33, "no hex"])
def test_what_is_no_secret_is_refused(tmp_path, text):
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"secret must hold a secret of 32 bytes"):
        load_or_create_secret(path, 32)
    assert path.read_text() == text


def test_processes_that_begin_at_once_have_one_secret(tmp_path):
    path = tmp_path / "secret"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for child in children:
        child.stdin.write("x")
        child.stdin.flush()
    assert {child.communicate()[0].strip() for child in children} == {path.read_text().strip()}
    assert os.listdir(tmp_path) == ["secret"]


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    assert load_or_create_secret(tmp_path / "token", 24) == load_or_create_secret(
        tmp_path / "token", 24
    )


def test_a_token_that_others_could_read_is_theirs_no_more_and_the_log_says_so(tmp_path, caplog):
    path = tmp_path / "token"
    made = load_or_create_secret(path, 24)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING, "mnemogate"):
        assert load_or_create_secret(path, 24) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert "token could be read by other users" in caplog.text


def test_a_short_key_is_told_by_its_name_at_the_start():
    keys = [
        {"name": "weak", "key": "mg-one", "tenant": "t"},
        {"name": "strong", "key": "x" * 16, "tenant": "t"},
    ]
    told = [line for line in warnings(load(None, {}, {"keys": keys})) if "guessed" in line]
    assert len(told) == 1
    assert "'weak'" in told[0]
    assert "mg-one" not in told[0]
