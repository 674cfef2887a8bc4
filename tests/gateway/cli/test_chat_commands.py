"""Lines of `mnemogate chat` that begin with a slash, as a user types them."""

from __future__ import annotations

from tests.gateway.cli.command import mnemogate

LINES = """\
/memory
My name is Ada
/why
/remember Grace arrives on Friday
/search Grace
/memory
/undo
/remember Grace arrives on Friday
/forget Grace
/forget
/dance
"""


def test_each_command_says_what_it_did(tmp_path):
    done = mnemogate(tmp_path, "chat", "--bundled", stdin=LINES)
    assert done.returncode == 0, done.stderr
    for words in (
        "Nothing yet.",
        "tokens were added",
        "remembered: Grace arrives on Friday",
        "- Grace arrives on Friday",
        "human: ",
        "forgotten again: Grace arrives on Friday",
        "forgotten: passage_",
        "What should be forgotten?",
        "There is no command /dance",
    ):
        assert words in done.stdout, (words, done.stdout)
