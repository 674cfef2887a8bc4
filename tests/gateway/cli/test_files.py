"""`mnemogate files`: list, put, show, delete, through the API of a database without a gateway."""

from __future__ import annotations

import json

from tests.gateway.cli.command import mnemogate


def test_without_files_the_commands_say_so(tmp_path):
    assert "ann has no files" in mnemogate(tmp_path, "files", "list", "--user", "ann").stdout
    listed = mnemogate(tmp_path, "files", "list", "--user", "ann", "--json").stdout
    assert json.loads(listed) == []
    for command in (("show", "a.txt"), ("delete", "a.txt")):
        failed = mnemogate(tmp_path, "files", *command, "--user", "ann")
        assert ("There is no file 'a.txt' here" in failed.stderr, failed.returncode) == (True, 1)
    (tmp_path / "a.txt").write_text("text")
    refused = mnemogate(tmp_path, "files", "put", str(tmp_path / "a.txt"), "--user", "ann")
    assert ("No files are kept here" in refused.stderr, refused.returncode) == (True, 1)
