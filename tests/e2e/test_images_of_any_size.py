"""What a user shows is kept, whatever its size: below and above each bound of how it is written."""

from __future__ import annotations

import pytest

from memory.conversation.long_json import LONG_CHARACTERS
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows.message_pieces import LARGE_BYTES
from tests.conftest import running
from tests.e2e.test_background import rows
from tests.models import Model

BOUNDS = sorted({LONG_CHARACTERS, LARGE_BYTES})
SIZES = [size for bound in BOUNDS for size in (bound - 1000, bound, bound + 1000)]
USER = {"x-memory-user": "ada"}


def shown(size, **more):
    url = "data:image/png;base64," + "iVBORw0K" * (size // 8)
    parts = [{"type": "text", "text": "What is this?"}]
    return {
        "role": "user",
        "content": [*parts, {"type": "image_url", "image_url": {"url": url}}],
        **more,
    }


@pytest.mark.parametrize("name", [{}, {"name": "bo"}], ids=["unnamed", "named"])
@pytest.mark.parametrize("size", SIZES)
async def test_an_image_is_kept_and_its_conversation_goes_on(data, size, name):
    async with Model(lambda seen, wire: "A cup.") as up, running(up.url, data) as live:
        messages = [shown(size, **name)]
        first = await live.chat(messages, USER)
        assert (first.status_code, first.headers["x-memory-status"]) == (200, "ok")
        messages += [{"role": "assistant", "content": "A cup."}, {"role": "user", "content": "Of?"}]
        second = await live.chat(messages, USER)
        assert second.headers["x-memory-status"] == "ok"
        kept = "x-memory-conversation"
        assert second.headers[kept] == first.headers[kept]
        said = [(row["role"], row["content"]) for row in await rows(live, t.messages)]
        assert said == [
            ("user", "What is this?"),
            ("assistant", "A cup."),
            ("user", "Of?"),
            ("assistant", "A cup."),
        ]
        found = await live.gateway.memory.db.read(read_first)
        assert found == messages[0]


def read_first(conn):
    """Read the first message as it is kept."""
    row = conn.execute(t.messages.select().order_by(t.messages.c.id).limit(1)).one()
    return message_rows.message_of(conn, row)
