"""Sentence vectors from a local model: all-MiniLM-L6-v2 as published by Chroma for onnxruntime.

384 dimensions, 256 tokens. The files are only downloaded by `mnemogate fetch embedder`, and
verified before use. Needs onnxruntime, tokenizers and numpy (extra `onnx-minilm`), which are loaded
with the first text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.embed.base import EmbedUnavailable
from memory.embed.telemetry import hush

URL = "https://chroma-onnx-models.s3.amazonaws.com/all-MiniLM-L6-v2/onnx.tar.gz"
SHA256 = "913d7300ceae3b2dbc2c50d1de4baacab4be7b9380491c27fab7418616a16ec3"
FILES = ("model.onnx", "tokenizer.json")
# The digests of the files, noted when the archive they came from was verified.
CHECKED = "sha256.json"
TOKENS = 256
# Texts at a time, for which a query may have to wait.
BATCH = 8


class UnusableModel(ValueError):
    """The model's files are not what they should be."""


def is_installed(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (*FILES, CHECKED))


def unpack(archive: Path, folder: Path, sha256: str | None = None) -> None:
    """Verify the published archive and unpack it into `folder`.

    sha256: of another archive. Raises UnusableModel, having changed nothing.
    """
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != (sha256 or SHA256):
        raise UnusableModel(f"its SHA-256 is {digest}, not {sha256 or SHA256}")
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for name in FILES:
                member = tar.extractfile(f"onnx/{name}")
                if member is None:
                    raise UnusableModel(f"it holds no onnx/{name}")
                data = member.read()
                digests[name] = hashlib.sha256(data).hexdigest()
                part = folder / f".{name}.part"
                part.write_bytes(data)
                part.replace(folder / name)
    except (tarfile.TarError, KeyError) as e:
        raise UnusableModel(f"it cannot be read: {e}") from e
    (folder / CHECKED).write_text(json.dumps(digests))


class OnnxEmbed:
    """The local embedder. folder: where `unpack` put the files."""

    model = "onnx-minilm"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: tuple[Any, Any] | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, tenant: str, texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for i in range(0, len(texts), BATCH):
            async with self._turn:
                vectors += await asyncio.to_thread(self._embed_batch, list(texts[i : i + BATCH]))
        return vectors

    def _embed_batch(self, texts: list[str]) -> list[list[float]]:
        try:
            tokenizer, session = self._model = self._model or self._load()
            return _vectors(tokenizer, session, texts)
        except ImportError as e:
            raise EmbedUnavailable(
                "onnx-minilm needs onnxruntime and tokenizers: run pip install "
                f"'.[onnx-minilm]' in the folder of Mnemogate's source ({e})"
            ) from e
        except Exception as e:
            # onnxruntime and tokenizers raise their own exceptions, and Exception itself.
            raise EmbedUnavailable(f"onnx-minilm failed: {type(e).__name__}: {e}") from e

    def _load(self) -> tuple[Any, Any]:
        hush()
        import onnxruntime
        from tokenizers import Tokenizer

        checked_files = json.loads((self._folder / CHECKED).read_text())
        files = {name: (self._folder / name).read_bytes() for name in FILES}
        for name, data in files.items():
            if hashlib.sha256(data).hexdigest() != checked_files.get(name):
                raise UnusableModel(
                    f"{self._folder / name} was changed since it was fetched: run `mnemogate "
                    "fetch embedder` again"
                )
        tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
        tokenizer.enable_truncation(max_length=TOKENS)
        # the padding token, not a secret
        tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")  # noqa: S106
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return tokenizer, onnxruntime.InferenceSession(
            files["model.onnx"], options, providers=["CPUExecutionProvider"]
        )


def _vectors(tokenizer: Any, session: Any, texts: list[str]) -> list[list[float]]:
    """Return the mean of each text's token vectors, at unit length."""
    import numpy as np

    encodings = tokenizer.encode_batch(texts)
    ids = np.array([e.ids for e in encodings], dtype=np.int64)
    mask = np.array([e.attention_mask for e in encodings], dtype=np.int64)
    token_vectors = session.run(
        None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    )[0]
    token_mask = mask[:, :, None].astype(token_vectors.dtype)
    pooled = (token_vectors * token_mask).sum(1) / np.clip(token_mask.sum(1), 1e-9, None)
    lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
    return [[float(x) for x in row] for row in pooled / np.where(lengths == 0, 1e-12, lengths)]
