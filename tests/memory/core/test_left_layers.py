"""An explain record for who no longer reads a shared block: no byte of it, and all else."""

from __future__ import annotations

from memory.core.blocks import CoreBlock, compile_core, note
from memory.core.left_layers import LEFT, without_layers

TAG = "0a1b2c3d4e"
WORD = "quetzal <b> & co"


def record():
    blocks = [
        CoreBlock("board", f"Codeword {WORD}", "About", shared=True),
        CoreBlock("human", "Likes tea"),
    ]
    told = note({"board": "Plan", "human": "x"}, {"board": f"Plan\n{WORD}", "human": "y"}, TAG)
    call = {"role": "assistant", "content": None, "tool_calls": [{"label": "board", "x": WORD}]}
    other = [{"role": "assistant", "content": "About human"}]
    return {
        "injected": {
            "core": compile_core(blocks, TAG),
            "notes": [{"message": 1, "text": told}],
            "spliced": [{"message": 1, "messages": [call]}, {"message": 2, "messages": other}],
            "recall": "",
        },
        "tools": [
            {"name": "core_memory_append", "arguments": '{"label":"board"}', "result": WORD},
            {"name": "core_memory_append", "arguments": '{"label":"human"}', "result": "Saved"},
            {"name": "memory_show", "arguments": "{}", "result": compile_core(blocks, TAG)},
        ],
    }


def test_nothing_of_a_block_that_was_left_is_shown_and_the_others_stay():
    given = record()
    shown = without_layers(given, ["board"])
    text = str(shown)
    assert "quetzal" not in text
    assert f">{LEFT}</board>" in shown["injected"]["core"]
    assert f'<board change="appended">{LEFT}</board>' in shown["injected"]["notes"][0]["text"]
    assert "Likes tea" in text
    assert "About human" in text
    assert [call["result"] for call in shown["tools"][:2]] == [LEFT, "Saved"]
    assert shown["tools"][2]["result"] == shown["injected"]["core"]
    # It is not changed.
    assert given == record()
    assert without_layers(given, []) == given
