"""Vectors as they are kept in SQL, and exact scoring of one scope's worth of them. Pure, over numpy (extra `chroma`)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence


def packed(vector: Sequence[float]) -> bytes:
    """A vector at unit length as little-endian float32."""
    import numpy as np

    array = np.asarray(vector, dtype="<f4")
    norm = float(np.linalg.norm(array))
    return bytes((array / norm if norm else array).tobytes())


def unpacked(data: bytes) -> list[float]:
    import numpy as np

    return [float(x) for x in np.frombuffer(data, dtype="<f4")]


def scored(query: Sequence[float], stored: Mapping[int, bytes], limit: int) -> dict[int, float]:
    """Row key to cosine similarity, of the `limit` nearest. Vectors of another length than the query's are left out."""
    import numpy as np

    wanted = np.frombuffer(packed(query), dtype="<f4")
    keys = [k for k, v in stored.items() if len(v) == wanted.nbytes]
    if not keys:
        return {}
    matrix = np.frombuffer(b"".join(stored[k] for k in keys), dtype="<f4").reshape(len(keys), -1)
    scores = matrix @ wanted
    best = np.argsort(-scores)[:limit]
    return {keys[i]: float(scores[i]) for i in best}
