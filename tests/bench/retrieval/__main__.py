"""`python -m tests.bench.retrieval`: does the gateway's own search find what was said?

LoCoMo, a small Chinese set and paraphrases, stored in a store of the gateway's own and asked for
through its own tool, beside plain FTS5. `--embedder`: the same by words alone and with an embedder,
side by side. `--latency`: how long a search takes as stores grow. LoCoMo is read from `../shared`
beside the project (or --data), never copied.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from memory.embed.base import Embed
from memory.retrieval.retriever import SemanticSearch
from memory.search import ranking
from tests.bench.retrieval import chinese, latency, locomo, paraphrases
from tests.bench.retrieval.embedders import STAND_INS, embedder
from tests.bench.retrieval.plain import Plain
from tests.bench.retrieval.stored import DEPTH, Store, Utterance

Row = tuple[str, int, dict[str, float]]
Search = Callable[[str], Awaitable[list[str]]]


async def scored(metrics: Any, name: str, questions: list[Any], search: Search) -> list[Row]:
    return [
        (name, category, metrics._score(await search(q), evidence))
        for q, category, evidence in questions
    ]


def figures(rows: list[Row]) -> str:
    def mean(key: str, chosen: list[Row]) -> float:
        return sum(s[key] for _, _, s in chosen) / len(chosen) if chosen else 0.0

    asked = [r for r in rows if r[1] != 5]
    return (
        f"{mean('recall@10', asked):9.4f} {mean('ndcg@10', asked):9.4f} {mean('mrr', asked):7.4f} "
        f"{mean('recall@10', [r for r in rows if r[1] == 5]):12.4f} {len(asked):6}"
    )


async def english(metrics: Any, data: Path) -> None:
    print(
        f"{'LoCoMo':24} {'recall@10':>9} {'nDCG@10':>9} {'MRR':>7} {'adversarial':>12} {'asked':>6}"
    )
    ours: list[Row] = []
    plain: list[Row] = []
    kept: list[Row] = []
    async with Store() as store:
        for conv in metrics.load(str(data)):
            found = locomo.utterances(conv)
            user, bare = await store.user(conv.id, found), Plain(found)

            async def of_plain(query: str, bare: Plain = bare) -> list[str]:
                return bare.search(query, DEPTH)

            mine = await scored(metrics, conv.id, conv.qa, user.search)
            ours += mine
            plain += await scored(metrics, conv.id, conv.qa, of_plain)
            await user.keep(found)
            kept += await scored(metrics, conv.id, conv.qa, user.archival)
            print(f"{conv.id:24} {figures(mine)}")
    print(f"{'overall':24} {figures(ours)}")
    print(
        f"{'  multi-hop':24} {figures([r for r in ours if r[1] == 1])}\n{'  temporal':24} "
        f"{figures([r for r in ours if r[1] == 2])}"
    )
    print(
        f"{'  open-domain':24} {figures([r for r in ours if r[1] == 3])}\n{'  single-hop':24} "
        f"{figures([r for r in ours if r[1] == 4])}"
    )
    print(f"{'the same as passages':24} {figures(kept)}")
    print(f"{'plain FTS5':24} {figures(plain)}")


async def without(metrics: Any, data: Path) -> None:
    """What each part of the ranking gains: the figures without it."""
    print(
        f"{'LoCoMo, overall':24} {'recall@10':>9} {'nDCG@10':>9} {'MRR':>7} {'adversarial':>12} "
        f"{'asked':>6}"
    )
    async with Store() as store:
        users = []
        for conv in metrics.load(str(data)):
            users.append((conv, await store.user(conv.id, locomo.utterances(conv))))
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
            rows = [
                row
                for conv, user in users
                for row in await scored(metrics, conv.id, conv.qa, user.search)
            ]
            for name, value in kept.items():
                setattr(ranking, name, value)
            print(f"{'without ' + ', '.join(names) if names else 'whole':24} {figures(rows)}")


async def beside(metrics: Any, data: Path, names: list[str]) -> None:
    """By words alone, then with each embedder: what it gains or costs, by conversation and in all,
    for messages and passages.
    """
    convs = [(conv, locomo.utterances(conv)) for conv in metrics.load(str(data))]
    corpus = [u.text for _, found in convs for u in found]
    print(
        f"{'LoCoMo, by conversation':24} {'recall@10':>9} {'nDCG@10':>9} {'gained':>16}   the "
        "same as passages"
    )
    before: list[tuple[list[Row], list[Row]]] = []
    for name in ("", *names):
        async with Store(SemanticSearch(embedder(name, corpus)) if name else None) as store:
            both: list[tuple[list[Row], list[Row]]] = []
            for conv, found in convs:
                user = await store.user(conv.id, found)
                await user.keep(found)
                while await store.memory.retrieval.embed_scope(user.scope_id):
                    pass
                both.append(
                    (
                        await scored(metrics, conv.id, conv.qa, user.search),
                        await scored(metrics, conv.id, conv.qa, user.archival),
                    )
                )
        before = before or both
        for label, some, base in [
            *((conv.id, [b], [w]) for (conv, _), b, w in zip(convs, both, before, strict=True)),
            ("overall", both, before),
        ]:
            print(
                f"{name or 'words alone':12} {label:11}"
                + "  ".join(
                    gained([r for b in some for r in b[i]], [r for w in base for r in w[i]])
                    for i in (0, 1)
                ),
                flush=True,
            )


def gained(rows: list[Row], before: list[Row]) -> str:
    out = [
        (sum(s[key] for _, c, s in some if c != 5) / sum(c != 5 for _, c, _ in some))
        for key in ("recall@10", "ndcg@10")
        for some in (rows, before)
    ]
    return f"{out[0]:9.4f} {out[2]:9.4f} {out[0] - out[1]:+8.4f} {out[2] - out[3]:+7.4f}"


async def small(
    name: str,
    found: Sequence[Utterance],
    questions: Sequence[tuple[str, str]],
    embed: Embed | None = None,
) -> None:
    """A set of which each question has one answer."""
    async with Store(SemanticSearch(embed) if embed else None) as store:
        user, bare = await store.user(name, found), Plain(found)
        while await store.memory.retrieval.embed_scope(user.scope_id):
            pass
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=locomo.DATA, help="another file of LoCoMo's shape"
    )
    parser.add_argument(
        "--without", action="store_true", help="LoCoMo again without each part of the ranking"
    )
    parser.add_argument(
        "--embedder",
        action="append",
        help=f"{', '.join(STAND_INS)} or onnx:<folder of mnemogate fetch embedder>; may be given "
        "again",
    )
    parser.add_argument("--latency", action="store_true")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="of the largest store with --latency"
    )
    args = parser.parse_args(argv)
    if args.latency:
        asyncio.run(latency.report(args.messages))
        return 0
    metrics = locomo.metrics()
    if metrics is None or not args.data.exists():
        print(
            "LoCoMo is not beside the project (../shared/data and ../shared/bench/retrieval), "
            "so it is skipped."
        )
    elif args.without:
        asyncio.run(without(metrics, args.data))
        return 0
    elif args.embedder:
        asyncio.run(beside(metrics, args.data, args.embedder))
    else:
        asyncio.run(english(metrics, args.data))
    asyncio.run(own_sets(args.embedder or []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
