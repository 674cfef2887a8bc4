"""A gateway that stops between any two turns: what a conversation said stays in its requests, word
for word or summarised.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.conftest import running
from tests.e2e.test_resent import CONFIG, NUMBERED, Brief, Client, answers, summarises
from tests.e2e.test_turns import check_valid
from tests.models import Model

# Whose numbers fit in a summary.
TURNS = 45


def numbers_in(value):
    return {*NUMBERED.findall(json.dumps(value))}


@pytest.mark.parametrize("window", [3000, 6000])
@pytest.mark.parametrize(("app", "seed"), [(Client, 0), (Brief, 3), (Brief, 4)])
async def test_nothing_that_was_asked_is_lost(tmp_path, app, seed, window):
    config = {
        **CONFIG,
        "models": {**CONFIG["models"], "m": {**CONFIG["models"]["m"], "context_window": window}},
    }
    rng, asked, client = random.Random(f"{seed}x"), set(), app(None, seed, {})
    async with Model(answers(seed)) as up:
        turn = 0
        while turn < TURNS:
            async with running(up.url, tmp_path, config) as live:
                token = (tmp_path / "token").read_text().strip()
                client.live, client.token = live, {"authorization": f"Bearer {token}"}
                for _ in range(rng.choice([1, 1, 2, 3, 5, 8])):
                    await client.turn(turn)
                    turn += 1
                    sent = [b for b in up.bodies if not summarises(b)][-1]
                    check_valid(sent["messages"])
                    # An app that sends its newest message alone relies on the gateway for the rest.
                    asked = numbers_in(client.messages) | (asked if app is Brief else set())
                    assert asked <= numbers_in(sent) or "were left out" in json.dumps(sent)
