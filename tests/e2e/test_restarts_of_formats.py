"""In each format, at each kind of server, with restarts between any two turns: every body that goes
upstream is legal, and what a conversation said is in it, word for word or summarised.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.e2e.random_apps import (
    ChainApp,
    MessagesApp,
    ResponsesApp,
    numbers_in,
    random_answers,
    summarise,
)
from tests.models import Model
from tests.wire_models import MessagesModel, ResponsesModel

TURNS, WINDOW = 20, 3000
RESPONSES, CHAT = {"providers.openai.wires": ["responses"]}, {"providers.openai.wires": ["chat"]}
ANTHROPIC = {"providers.openai.kind": "anthropic"}
SERVERS = {
    "responses": (ResponsesModel, RESPONSES),
    "chat": (ChatOnlyModel, CHAT),
    "anthropic": (MessagesModel, ANTHROPIC),
}


def config(up, other, app, kind):
    # Else it keeps the chain.
    target = {"provider": "openai", "stateful": app is not ChainApp}
    return {
        "models": {
            "m": {"targets": [target], "context_window": WINDOW},
            "s": {"targets": [{"provider": "sum"}]},
        },
        "providers.openai.base_url": up.url,
        "providers.sum.base_url": other.url,
        "memory.summarizer": "s",
        "memory.summarize_ahead": False,
        "memory.read_deadline_ms": 10000,
        **kind,
    }


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(
    ("app", "server"),
    [
        *((ResponsesApp, server) for server in SERVERS),
        *((ChainApp, server) for server in SERVERS),
        (MessagesApp, "anthropic"),
        (MessagesApp, "chat"),
    ],
)
async def test_bodies_are_legal_and_lose_nothing(tmp_path, app, server, seed):
    double, kind = SERVERS[server]
    rng, client = random.Random(f"{seed}x"), app(seed)
    answers = random_answers(seed, thinks=server != "chat")
    async with Model(summarise) as other, double(answers) as up:
        settings = config(up, other, app, kind)
        while client.turns < TURNS:
            async with running(up.url, tmp_path, settings) as live:
                client.live = live
                for _ in range(rng.choice([1, 1, 2, 3, 5, 8])):
                    asked = await client.turn()
                    assert not up.faults
                    sent = json.dumps(up.bodies[-1])
                    assert asked <= numbers_in(sent) or "were left out" in sent
        # Something was summarised.
        assert other.bodies
