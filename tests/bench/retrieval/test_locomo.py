"""The proof of the search: its metrics, and the data set that it fetches and checks."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.bench.retrieval import locomo
from tests.bench.retrieval.locomo import NotThere
from tests.bench.retrieval.metrics import Score, means, score
from tests.models import RawServer

TURNS = [
    {"speaker": "Ann", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a dog"},
    {"speaker": "Bob", "dia_id": "D1:2", "text": "Nice."},
]
SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": TURNS,
        "session_2_date_time": "1:56 pm on 9 May, 2023",
    },
    "qa": [
        {"question": "Which pet?", "category": 4, "evidence": ["D1:1; D:1:2"]},
        {"question": "Which car?", "category": 5, "evidence": ["D9:9"]},
    ],
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(locomo.NAMED, raising=False)
    return tmp_path


def test_a_ranking_is_scored_by_where_the_evidence_is():
    found = score(1, ["x", "a", "y", "b"], {"a", "b", "c"})
    assert found.recall == pytest.approx(2 / 3)
    assert found.reciprocal == 0.5
    assert found.ndcg == pytest.approx((0.63093 + 0.43068) / (1 + 0.63093 + 0.5), abs=1e-4)
    assert score(1, ["a"], {"a"}) == Score(1, 1.0, 1.0, 1.0)
    assert score(1, [], {"a"}) == Score(1, 0.0, 0.0, 0.0)
    assert score(1, [*"0123456789", "a"], {"a"}).recall == 0.0


def test_adversarial_questions_count_by_themselves():
    found = means([Score(1, 1.0, 1.0, 1.0), Score(4, 0.0, 0.0, 0.0), Score(5, 1.0, 1.0, 1.0)])
    assert (found.asked, found.recall) == (2, 0.5)
    assert (found.by_category["multi-hop"], found.by_category["adversarial"]) == (1.0, 1.0)
    assert means([]).recall == 0.0


def test_a_dialogue_is_read_with_dates_speakers_and_evidence(cache):
    path = cache / "l.json"
    path.write_text(json.dumps([SAMPLE] * 6))
    dialogue, *others = locomo.load(path)
    assert len(others) == 4
    assert len(locomo.load(path, 0)) == 6
    first, second = dialogue.found
    assert (first.text, first.role, second.role) == ("Look! [shares a dog]", "user", "assistant")
    assert first.at == 1683554160.0
    assert dialogue.questions == [("Which pet?", 4, frozenset({"D1:1", "D1:2"}))]


def test_a_copy_that_is_named_is_used(cache, monkeypatch):
    path = cache / "mine.json"
    path.write_text("[]")
    monkeypatch.setenv(locomo.NAMED, str(path))
    assert locomo.fetch("http://127.0.0.1:9/") == path
    monkeypatch.setenv(locomo.NAMED, str(cache / "gone"))
    with pytest.raises(NotThere, match="no file"):
        locomo.present()


async def test_what_is_fetched_is_checked_kept_and_not_fetched_again(cache, monkeypatch):
    import asyncio

    raw, status = json.dumps([SAMPLE]).encode(), [200]

    async def give(seen, wire):
        await wire.json(json.loads(raw), status[0])

    async with RawServer(give) as server:
        url = f"{server.url}/locomo10.json"
        with pytest.raises(NotThere, match="not 79fa87e9"):
            await asyncio.to_thread(locomo.fetch, url)
        assert not locomo.cached().exists()
        body = await asyncio.to_thread(locomo._download, url)
        monkeypatch.setattr(locomo, "SHA256", hashlib.sha256(body).hexdigest())
        assert await asyncio.to_thread(locomo.fetch, url) == locomo.cached()
        status[0] = 404
        assert await asyncio.to_thread(locomo.fetch, url) == locomo.cached()
        locomo.cached().write_text("changed")
        with pytest.raises(NotThere, match="MNEMOGATE_LOCOMO=/path"):
            await asyncio.to_thread(locomo.fetch, url)
