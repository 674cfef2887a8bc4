"""Vectors as stored in SQL, and the exact similarity of one scope's vectors.

Pure, with numpy (extras `chroma`, `onnx-minilm`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from memory.search.ranking import EQUAL, SimilarityScores

# Fewest rows that share words to judge an embedder, and most.
JUDGES = (
    10,
    30,
)
# Standard deviations above chance.
SURE_DEVIATIONS = 6.0
# Of identical texts.
SAME_VECTOR_SIMILARITY = 0.9999
# Most rows of a sample.
SAMPLE = 120


def pack_vector(vector: Sequence[float]) -> bytes:
    """Return a vector, scaled to unit length, as little-endian float32."""
    import numpy as np

    array = np.asarray(vector, dtype="<f4")
    norm = float(np.linalg.norm(array))
    return bytes((array / norm if norm else array).tobytes())


def unpack_vector(data: bytes) -> list[float]:
    import numpy as np

    return [float(x) for x in np.frombuffer(data, dtype="<f4")]


def near(query: Sequence[float], vector_bytes: Mapping[int, bytes]) -> SimilarityScores:
    """Return the cosine similarity of every row.

    Vectors with another length than the query's are left out.
    """
    import numpy as np

    query_vector = np.frombuffer(pack_vector(query), dtype="<f4")
    keys = sorted(k for k, v in vector_bytes.items() if len(v) == query_vector.nbytes)
    if not keys:
        return SimilarityScores()
    matrix = np.frombuffer(b"".join(vector_bytes[k] for k in keys), dtype="<f4").reshape(
        len(keys), -1
    )
    scores = matrix @ query_vector
    return SimilarityScores(
        dict(zip(keys, scores.tolist(), strict=True)),
        float(np.median(scores)),
        lambda hits: _tells(matrix, [bisect_left(keys, k) for k in hits[: JUDGES[1]]]),
    )


def _tells(matrix: Any, hits: Sequence[int]) -> bool:
    """Tell whether the vectors say something about their rows.

    They do if adjacent rows, or rows that share words, are more similar than any two rows. One
    proof is enough: a list of facts has no order, and few hits prove nothing. Rows with identical
    words prove nothing. hits: indexes of rows that share words.
    """
    import numpy as np

    sample_indexes = range(0, len(matrix) - 1, -(-len(matrix) // SAMPLE))
    if not sample_indexes:
        return False
    sample_vectors = matrix[list(sample_indexes)]
    following = matrix[[i + 1 for i in sample_indexes]]
    if _above_chance(
        np.einsum("ij,ij->i", sample_vectors, following), sample_vectors @ following.T
    ):
        return True
    other_indexes = [i for i in sample_indexes if i not in hits]
    if len(hits) < JUDGES[0] or not other_indexes:
        return False
    hit_vectors = matrix[list(hits)]
    return _above_chance(
        (hit_vectors @ hit_vectors.T)[np.triu_indices(len(hits), 1)],
        hit_vectors @ matrix[other_indexes].T,
    )


def _above_chance(similarities: Any, chance: Any) -> bool:
    """Tell whether similarities are, on average, clearly higher than those of any two rows."""
    similarities = similarities[similarities < SAME_VECTOR_SIMILARITY]
    return bool(
        len(similarities)
        and similarities.mean() - chance.mean()
        > SURE_DEVIATIONS * chance.std() / math.sqrt(len(similarities)) + EQUAL
    )
