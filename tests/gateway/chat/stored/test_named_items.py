"""What is told in full of items that are named by their ids."""

from __future__ import annotations

from gateway.chat.stored.named_items import tell_items
from gateway.wire.own_marks import ORPHANED


def ref(name):
    return {"type": "item_reference", "id": name}


USER = {"role": "user", "content": "Hi"}
ORPHAN = {"type": "reasoning", "id": "rs_1", "encrypted_content": ORPHANED}
THOUGHT = {"type": "reasoning", "id": "rs_2"}
TEXT = {"type": "message", "role": "assistant", "id": "msg_1"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
MADE = {"type": "message", "role": "assistant", "id": "msg_" + "0" * 32 + "_0"}


def test_what_a_server_cannot_take_by_its_id_is_told_in_full():
    whole = [USER, ORPHAN, CALL, OUTPUT, THOUGHT, TEXT, MADE, ref("rs_9")]
    items = [USER, *(ref(i["id"]) for i in (ORPHAN, CALL)), OUTPUT]
    items += [ref(i["id"]) for i in (THOUGHT, TEXT, MADE)] + [ref("rs_9")]
    told = [USER, ORPHAN, CALL, OUTPUT, ref("rs_2"), ref("msg_1"), MADE, ref("rs_9")]
    assert tell_items(items, whole) == told
