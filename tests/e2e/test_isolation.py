"""No key sees a byte that is not its own, by any route, on any wire, by commands or on pages."""

from __future__ import annotations

from tests.bench import isolation

DOORS = {
    "chat/completions", "commands", "counts", "explain", "letta", "mcp", "messages", "pages",
    "responses", "routes",
}  # fmt: skip


async def test_a_s7_no_look_of_another_tenant_or_user_sees_a_word(data):
    """The short form; `python -m tests.bench.isolation` makes some 2,000 looks that are answered.

    The looks are those of another tenant's keys, of a user who is in no team and no project, and
    of a project's owner outside it.
    """
    run = await isolation.play(data, most=1, seed=7)
    assert run.leaks == []
    assert set(run.answered) >= DOORS
    assert run.answered.total() >= 180
    assert run.telling.total() >= 60
    assert len(run.ids[""]) >= 40
