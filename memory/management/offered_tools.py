"""The memory tools as a program outside a conversation is offered them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from memory.conversation.messages import Json
from memory.core.tool_definitions import tools_to_offer
from memory.management.reading import read
from memory.service import Memory
from memory.session.caller_layers import read_layers
from memory.session.memory_caller import MemoryCaller


async def definitions_for(memory: Memory, caller: MemoryCaller) -> Sequence[Json]:
    """Return the tools as they are for a caller: with the layers into which they may put.

    Raises StoreUnavailable.
    """
    await memory.wait_until_ready()
    visible = await read(memory, partial(read_layers, caller=caller, changes=memory.shared))
    labels = sorted(layer.label for layer in visible.layers if layer.takes_shares)
    return tools_to_offer(None, write=True, share=tuple(labels))
