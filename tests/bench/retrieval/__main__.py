"""`python -m tests.bench.retrieval`: does the gateway's own search find what was said?

LoCoMo, a small Chinese set and paraphrases, stored in a store of the gateway's own and asked for
through its own tool, beside plain FTS5: one table, by kind of question. `--embedder`: another
embedder than the stand-in. `--latency`: how long a search takes as stores grow. `--both`: whether
SQLite and a Postgres that it starts find the same, in the same order. LoCoMo is fetched
once, or named by MNEMOGATE_LOCOMO (see `locomo`); it is never part of the repository.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from memory.embed.base import Embed
from memory.retrieval.retriever import SemanticSearch
from memory.search import ranking
from memory.stores.sql.engine.database import Database
from tests.bench.retrieval import both, chinese, latency, locomo, paraphrases
from tests.bench.retrieval.embedders import STAND_INS, embedder
from tests.bench.retrieval.locomo import Dialogue
from tests.bench.retrieval.metrics import CATEGORIES, Score, means, score
from tests.bench.retrieval.plain import Plain
from tests.bench.retrieval.stored import DEPTH, SECRET, Store, Utterance
from tests.postgres_server import postgres_server

Search = Callable[[str], Awaitable[list[str]]]
# An embedder that knows words, not what they mean.
STAND_IN = "hashing"


async def scored(dialogue: Dialogue, search: Search) -> list[Score]:
    return [score(kind, await search(q), evidence) for q, kind, evidence in dialogue.questions]


def heading(title: str) -> str:
    kinds = "".join(f"{name:>12}" for name in CATEGORIES.values())
    return f"{title:26}{'recall@10':>10}{'nDCG@10':>9}{'MRR':>8}{kinds}{'asked':>7}"


def row(title: str, scores: Sequence[Score]) -> str:
    found = means(scores)
    kinds = "".join(f"{value:12.4f}" for value in found.by_category.values())
    return (
        f"{title:26}{found.recall:10.4f}{found.ndcg:9.4f}{found.reciprocal:8.4f}{kinds}"
        f"{found.asked:7}"
    )


async def ask_plain(dialogues: Sequence[Dialogue]) -> list[Score]:
    """The scores of plain FTS5."""
    out: list[Score] = []
    for dialogue in dialogues:
        bare = Plain(dialogue.found)

        async def search(query: str, bare: Plain = bare) -> list[str]:
            return bare.search(query, DEPTH)

        out += await scored(dialogue, search)
    return out


async def ask_stored(
    dialogues: Sequence[Dialogue], embed: Embed | None = None
) -> tuple[list[Score], list[Score]]:
    """The scores of our search over messages, and over the same texts as passages."""
    messages: list[Score] = []
    passages: list[Score] = []
    async with Store(SemanticSearch(embed) if embed else None) as store:
        for dialogue in dialogues:
            user = await store.user(dialogue.id, dialogue.found)
            await store.embedded(user)
            messages += await scored(dialogue, user.search)
            await user.keep(dialogue.found)
            await store.embedded(user)
            passages += await scored(dialogue, user.archival)
    return messages, passages


async def table(dialogues: Sequence[Dialogue], names: Sequence[str]) -> None:
    """One table: plain FTS5, our search by words alone, and with each embedder."""
    corpus = [u.text for d in dialogues for u in d.found]
    print(heading(f"LoCoMo, {len(dialogues)} dialogues"))
    print(row("plain FTS5", await ask_plain(dialogues)), flush=True)
    for name in ("", *names):
        messages, passages = await ask_stored(dialogues, embedder(name, corpus) if name else None)
        title = f"words and {name[-15:]}" if name else "words alone"
        print(row(title, messages))
        print(row("  the same as passages", passages), flush=True)


async def without(dialogues: Sequence[Dialogue]) -> None:
    """What each part of the ranking gains: the figures without it."""
    print(heading("LoCoMo"))
    async with Store() as store:
        users = [(d, await store.user(d.id, d.found)) for d in dialogues]
        for names in (
            (),
            ("SPEAKER",),
            ("SESSION",),
            ("FOLLOWS", "PRECEDES"),
            ("DATE",),
            ("TIMELY",),
        ):
            kept = {name: getattr(ranking, name) for name in names}
            for name in names:
                setattr(ranking, name, 0.0)
            scores = [one for d, user in users for one in await scored(d, user.search)]
            for name, value in kept.items():
                setattr(ranking, name, value)
            print(row(f"without {', '.join(names)}" if names else "whole", scores), flush=True)


async def small(
    name: str,
    found: Sequence[Utterance],
    questions: Sequence[tuple[str, str]],
    embed: Embed | None = None,
) -> None:
    """A set of which each question has one answer."""
    async with Store(SemanticSearch(embed) if embed else None) as store:
        user, bare = await store.user(name, found), Plain(found)
        await store.embedded(user)
        ranks = [(await user.search(q), bare.search(q, DEPTH), wanted) for q, wanted in questions]
    for label, which in (
        (f"{name}, {embed.model if embed else 'words'}", 0),
        *(() if embed else (("plain FTS5", 1),)),
    ):
        shares = " ".join(
            f"  in the first {n}: {sum(r[2] in r[which][:n] for r in ranks) / len(ranks):.3f}"
            for n in (1, 3, 10)
        )
        print(f"{label:24} {shares}   of {len(ranks)}")


async def own_sets(names: Sequence[str]) -> None:
    """The sets of our own, by words alone and with each embedder."""
    for name, found, questions, more in (
        ("Chinese", chinese.utterances(), chinese.QUESTIONS, ()),
        (
            "paraphrases",
            paraphrases.utterances(),
            paraphrases.questions(),
            (paraphrases.thesaurus(),),
        ),
    ):
        for embed in (None, *more, *(embedder(n, [u.text for u in found]) for n in names)):
            await small(name, found, questions, embed)


def compare_stores(args: argparse.Namespace) -> int:
    """Ask both stores the same; return 1 if anything differs."""
    dialogues: list[Dialogue] = []
    try:
        dialogues = locomo.load(args.data or locomo.fetch(), args.first)
    except locomo.NotThere as e:
        print(f"LoCoMo is left out. {e}")
    with postgres_server() as server:
        other = Database(server.database(SECRET), secret=SECRET)
        found = asyncio.run(both.differences(both.sets(dialogues), other))
    print(both.report(found))
    return 1 if any(unlike for _, unlike in found.values()) else 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="another file of LoCoMo's shape")
    parser.add_argument(
        "--first",
        type=int,
        default=locomo.FIRST,
        help="dialogues of it; 0 for all  [default: %(default)s, which the figures are of]",
    )
    parser.add_argument(
        "--without", action="store_true", help="LoCoMo again without each part of the ranking"
    )
    parser.add_argument(
        "--embedder",
        action="append",
        help=f"{', '.join(STAND_INS)} or onnx:<folder of mnemogate fetch embedder>; may be given "
        f"again  [default: {STAND_IN}]",
    )
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--both", action="store_true", help="SQLite and Postgres, by words")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="of the largest store with --latency"
    )
    args = parser.parse_args(argv)
    if args.latency:
        asyncio.run(latency.report(args.messages))
        return 0
    if args.both:
        return compare_stores(args)
    try:
        dialogues = locomo.load(args.data or locomo.fetch(), args.first)
    except locomo.NotThere as e:
        print(f"LoCoMo is left out. {e}")
    else:
        if args.without:
            asyncio.run(without(dialogues))
            return 0
        asyncio.run(table(dialogues, args.embedder or [STAND_IN]))
    asyncio.run(own_sets(args.embedder or []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
