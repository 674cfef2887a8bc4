"""The places beside a user's own memory that a request reads: project, teams, tenant. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec

# Those that a user's policy may leave out.
LAYER_KINDS = ("tenant", "team", "project")
TENANT, TEAM, PROJECT = LAYER_KINDS
# The layer of a user's own memory.
OWN = "user"
NEAREST_FIRST = (PROJECT, TEAM, TENANT)
# Of a layer whose best hit has no word of the query, by its vector alone.
UNKNOWN_COVERAGE = 0.5
# Of a score.
DIGITS = 4
Hit = dict[str, Any]


def layer_label(kind: str, name: str) -> str:
    """Return a layer as it is shown, and as a model names it."""
    if name:
        return f"{kind}:{name}"
    return kind


class Layer(msgspec.Struct, frozen=True):
    """A layer that a memory reads. write: it may also put passages there.

    scope_id: the row of what it holds, None while that is nothing. edits: counts changes from
    outside, which begin new epochs.
    """

    kind: str
    name: str
    write: bool
    scope_id: int | None
    edits: int = 0

    @property
    def label(self) -> str:
        return layer_label(self.kind, self.name)

    @property
    def takes_shares(self) -> bool:
        """Whether passages may be put there by the argument `share`."""
        return self.write and self.kind != OWN


def mix_layers(edits: int, layers: Sequence[Layer]) -> int:
    """Return what a count of edits and the layers are together."""
    if not layers:
        return edits
    layer_keys = sorted(f"{layer.label} {layer.write:d} {layer.edits}" for layer in layers)
    return (edits + crc32("\n".join(layer_keys).encode("utf-8", "surrogatepass"))) % (1 << 31)


def merge_hits(hits_by_layer: Sequence[tuple[str, Sequence[Hit]]], max_hits: int) -> list[Hit]:
    """Return the best hits of several layers, each with its layer; of equal ones the nearer.

    hits_by_layer: of each layer, best first, the nearest layer first. Without a score the newest
    are the best.
    """
    all_hits = [hit for label, hits in hits_by_layer for hit in _comparable(label, hits)]
    if any(hit["score"] for hit in all_hits):
        all_hits.sort(key=lambda hit: hit["score"], reverse=True)
    else:
        all_hits.sort(key=lambda hit: hit["created_at"], reverse=True)
    return all_hits[:max_hits]


def _comparable(label: str, hits: Sequence[Hit]) -> Iterator[Hit]:
    """Yield hits with scores that compare to those of another layer.

    A score says how good a hit is beside the best of its layer; the share of the query that this
    one covers says how good that is.
    """
    best_coverage = max((hit.get("coverage") or 0.0 for hit in hits), default=0.0)
    share = min(best_coverage, 1.0) or UNKNOWN_COVERAGE
    for hit in hits:
        score = round((hit.get("score") or 0.0) * share, DIGITS)
        yield {**hit, "score": score, "layer": label}
