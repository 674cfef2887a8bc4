"""`mnemogate agents import` and `export`: an `.af` file out and in again says the same."""

from __future__ import annotations

import json

from tests.gateway.cli.command import mnemogate

FILE = {
    "agents": [
        {
            "id": "agent-0",
            "name": "Sam Support!",
            "description": "Answers",
            "system": "You are Sam.",
            "model": "openai/gpt-4.1",
            "tags": ["a"],
            "metadata": {"x": 1},
            "timezone": "Europe/Berlin",
            "block_ids": ["block-0", "block-1"],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "I like tea"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Noted."}]},
            ],
            "passages": [{"text": "Grace arrives on Friday", "tags": ["family"]}],
        }
    ],
    "blocks": [
        {"id": "block-0", "label": "human", "value": "Likes tea", "limit": 5000},
        {"id": "block-1", "label": "persona", "value": "I am Sam.", "read_only": True},
    ],
}


def bare(file):
    """What a file says, without its times."""
    text = json.dumps({k: v for k, v in file.items() if k != "created_at"})
    return json.loads(text, object_hook=lambda o: {k: v for k, v in o.items() if k != "created_at"})


def test_an_agent_file_out_and_in_again_is_the_same_but_for_times(tmp_path):
    source = tmp_path / "sam.af"
    source.write_text(json.dumps(FILE))
    made = mnemogate(tmp_path, "agents", "import", str(source))
    assert made.stdout == "The agent sam-support is made (openai/gpt-4.1).\n", made.stderr
    shown = json.loads(mnemogate(tmp_path, "agents", "show", "sam-support", "--json").stdout)
    assert (shown["home"], shown["inherit_blocks"]) == ("agent", False)
    assert (shown["title"], shown["instruction"]) == ("Sam Support!", "You are Sam.")
    out = json.loads(mnemogate(tmp_path, "agents", "export", "sam-support").stdout)
    (agent,) = out["agents"]
    assert [b["value"] for b in out["blocks"]] == ["Likes tea", "I am Sam."]
    assert [m["role"] for m in agent["messages"]] == ["user", "assistant"]
    assert agent["passages"][0]["text"] == "Grace arrives on Friday"
    assert (agent["tags"], agent["metadata"], agent["timezone"]) == (
        ["a"],
        {"x": 1},
        "Europe/Berlin",
    )
    source.write_text(json.dumps(out))
    again = mnemogate(tmp_path, "agents", "import", str(source), "--name", "sam2")
    assert again.returncode == 0, again.stderr
    assert bare(json.loads(mnemogate(tmp_path, "agents", "export", "sam2").stdout)) == bare(out)
    taken = mnemogate(tmp_path, "agents", "import", str(source))
    assert "There is an agent 'sam-support' already" in taken.stderr


def test_a_block_that_is_attached_to_an_agent_is_in_its_file(tmp_path):
    source = tmp_path / "sam.af"
    source.write_text(json.dumps(FILE))
    mnemogate(tmp_path, "agents", "import", str(source))
    for label, value in (("board", "Plan: tea."), ("human", "Likes coffee")):
        made = mnemogate(tmp_path, "shared", "put", label, value, "--agent", "sam-support")
        assert made.returncode == 0, made.stderr
    mnemogate(tmp_path, "shared", "put", "board", "Not theirs.", "--agent", "max")
    out = json.loads(mnemogate(tmp_path, "agents", "export", "sam-support").stdout)
    values = {b["label"]: b["value"] for b in out["blocks"]}
    assert values == {"board": "Plan: tea.", "human": "Likes coffee", "persona": "I am Sam."}
