"""An erasure while its user talks to four workers, and what is said is being embedded."""

from __future__ import annotations

import asyncio
import itertools

from tests import stores
from tests.chroma_server import chroma_server
from tests.e2e.fleet_model import KEY, FleetModel
from tests.models import text
from tests.sockets import within

TURNS = 50
WORD = "quincunx"
HEADERS = {"authorization": f"Bearer {KEY}", "x-memory-user": "gone"}
EMPTY = ("messages", "message_terms", "passages", "passage_terms", "vectors", "message_vectors")


class Talk(FleetModel):
    """Four workers with an embedder and a Chroma server, and a model that answers when it is let.

    bodies: what the upstream was sent.
    """

    def __init__(self, url, folder, chroma):
        settings = {
            "MNEMOGATE_STORAGE__VECTORS": f"chroma:{chroma}",
            "MNEMOGATE_STORAGE__EXACT_BELOW": "1",
            "MNEMOGATE_MEMORY__EMBEDDER": "upstream:e",
        }
        super().__init__(url, folder, 4, 22, **settings)
        self.free, self.held, self.bodies = asyncio.Event(), 0, []
        self.number = itertools.count()
        self.grown = f"a {WORD}"

    async def _answer(self, seen, wire):
        if seen.path.endswith("/embeddings"):
            await asyncio.sleep(self.random.uniform(0, 0.1))
            vectors = [
                {"index": i, "embedding": [1.0, i]} for i, _ in enumerate(seen.json["input"])
            ]
            return 200, {"data": vectors}
        self.bodies.append(seen.body)
        if not self.free.is_set():
            self.held += 1
            await self.free.wait()
            await asyncio.sleep(self.random.uniform(0, 1))
        return text(f"So you grow {self.grown}, number {next(self.number)}.")

    async def ask(self, number, words, *, stream=False):
        worker = self._workers[number % len(self._workers)]
        body = {"model": "m", "messages": [{"role": "user", "content": words}], "stream": stream}
        found = await self._http.post(
            f"{worker.url}/v1/chat/completions", json=body, headers=HEADERS
        )
        assert found.status_code == 200, found.text
        return found

    async def manage(self, method, path, **more):
        url = f"{self._worker().url}/memory/v1{path}"
        found = await self._http.request(method, url, headers=HEADERS, **more)
        assert found.status_code in (200, 201), found.text
        return found.json()

    async def count(self, table, where="true"):
        query = f"SELECT count(*) FROM {table} WHERE {where}"
        return (await asyncio.to_thread(stores.on_server, self.url, query))[0][0]

    async def reached(self, query, table, where="true"):
        """Wait until a number of rows is what it must be."""
        for _ in range(200):
            if query(await self.count(table, where)):
                return True
            await asyncio.sleep(0.05)
        return False

    async def places(self):
        """Return the columns of any table that hold the word."""
        columns = await asyncio.to_thread(
            stores.on_server,
            self.url,
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'public' AND data_type IN ('text', 'bytea', 'character varying')",
        )
        coded = WORD.encode().hex()
        queries = [
            f"SELECT '{t}.{c}' FROM \"{t}\" WHERE position('{WORD}' IN \"{c}\"::text) > 0 "
            f"OR position('{coded}' IN \"{c}\"::text) > 0"
            for t, c in columns
        ]
        found = await asyncio.to_thread(stores.on_server, self.url, " UNION ".join(queries))
        return {row[0] for row in found}


def indexed(url):
    """Return how many vectors a Chroma server holds."""
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", int(url.rsplit(":", 1)[1]))
    return sum(c.count() for c in client.list_collections())


async def test_an_erasure_amid_fifty_turns_leaves_nothing_in_any_table_or_index(
    postgres_url, tmp_path
):
    with chroma_server(tmp_path / "chroma") as chroma:
        talk = Talk(postgres_url, tmp_path, chroma)
        async with talk.running():
            talk.free.set()
            await asyncio.gather(*(talk.ask(i, f"My {WORD} {i} blooms.") for i in range(8)))
            await talk.manage("PUT", "/users/gone/blocks/human", json={"value": f"Grows a {WORD}."})
            assert await talk.reached(lambda n: n >= 8, "message_vectors")
            assert await asyncio.to_thread(indexed, chroma) >= 8
            talk.free.clear()
            asking = [
                asyncio.create_task(talk.ask(i, f"My {WORD} wilts: {i}.", stream=i % 2 == 0))
                for i in range(TURNS)
            ]
            assert await within(30, lambda: talk.held == TURNS)
            talk.free.set()
            await asyncio.sleep(0.5)
            await talk.manage("DELETE", "/users/gone")
            await asyncio.gather(*asking)
            assert await talk.reached(lambda n: n >= 8 + TURNS, "usage")
            assert await talk.reached(lambda n: n == 0, "jobs", "kind = 'embed'")
            assert await talk.reached(lambda n: n == 0, "jobs", "run_at < 9e9 AND attempts > 0")
            assert await talk.places() == set()
            assert {table: await talk.count(table) for table in EMPTY} == dict.fromkeys(EMPTY, 0)
            assert await talk.count("usage", '"user" IS NOT NULL') == 0
            # The index is emptied by a job.
            for _ in range(200):
                if not (left := await asyncio.to_thread(indexed, chroma)):
                    break
                await asyncio.sleep(0.05)
            assert left == 0
            talk.bodies.clear()
            # What is said anew may be recalled at once.
            talk.grown = "something"
            await asyncio.gather(*(talk.ask(i, f"What do I grow? {i}") for i in range(4)))
            assert len(talk.bodies) == 4
            assert not [body for body in talk.bodies if WORD.encode() in body]
