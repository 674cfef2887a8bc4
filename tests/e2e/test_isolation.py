"""One tenant's keys see no byte of another's, by any route, in chats or on pages."""

from __future__ import annotations

from tests.bench import isolation


async def test_a_s7_no_look_of_another_tenant_sees_a_word(data):
    """The short form; `python -m tests.bench.isolation` looks some 2,000 times."""
    run = await isolation.play(data, most=1, seed=7)
    assert run.leaks == []
    assert run.looks >= 300
    assert run.answered >= 100
    assert run.seen >= 20
    assert len(run.ids) >= 40
