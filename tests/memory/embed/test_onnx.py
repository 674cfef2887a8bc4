"""The embedder that runs here, over a model of a few bytes made by the test in the published files'
shape.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import struct
import tarfile

import pytest
import tokenizers

from memory.embed.base import EmbedUnavailable
from memory.embed.onnx import OnnxEmbed, UnusableModel, is_installed, unpack

WORDS = ["[PAD]", "[UNK]", "tea", "green", "dog"]
# The padding's would show.
ROWS = [
    [9.0, 9.0, 9.0],
    [0.0, 0.0, 0.0],
    [1.0, 0.0, 0.0],
    [0.0, 1.0, 0.0],
    [0.0, 0.0, 1.0],
]


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def number(field: int, n: int) -> bytes:
    return varint(field << 3) + varint(n)


def part(field: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def value(name: str, kind: int, dims: list[str | int]) -> bytes:
    shape = b"".join(part(1, number(1, d) if isinstance(d, int) else part(2, d)) for d in dims)
    return part(1, name) + part(2, part(1, number(1, kind) + part(2, shape)))


def tiny_model() -> bytes:
    """ONNX by hand: each token's row of a table (Gather), with the inputs and the output of the
    published model.
    """
    node = (
        part(1, "table") + part(1, "input_ids") + part(2, "last_hidden_state") + part(4, "Gather")
    )
    raw = b"".join(struct.pack("<3f", *row) for row in ROWS)
    table = number(1, len(ROWS)) + number(1, 3) + number(2, 1) + part(8, "table") + part(9, raw)
    inputs = b"".join(
        part(11, value(n, 7, ["batch", "tokens"]))
        for n in ("input_ids", "attention_mask", "token_type_ids")
    )
    graph = (
        part(1, node)
        + part(2, "tiny")
        + part(5, table)
        + inputs
        + part(12, value("last_hidden_state", 1, ["batch", "tokens", 3]))
    )
    return number(1, 8) + part(7, graph) + part(8, part(1, "") + number(2, 13))


def archive(path, **files: bytes):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"onnx/{name.replace('__', '.')}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def tokenizer() -> bytes:
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made.to_str().encode()


@pytest.fixture
def folder(tmp_path):
    unpack(
        *_turned(
            archive(tmp_path / "a.tar.gz", model__onnx=tiny_model(), tokenizer__json=tokenizer()),
            tmp_path / "embedder",
        )
    )
    return tmp_path / "embedder"


def _turned(found, into):
    return found[0], into, found[1]


async def test_the_mean_of_a_texts_tokens_at_unit_length_without_its_padding(folder):
    assert is_installed(folder)
    made = await OnnxEmbed(folder)("t", ["tea", "green tea", "dog dog dog tea"])
    assert made[0] == pytest.approx([1, 0, 0])
    assert made[1] == pytest.approx([0.5**0.5, 0.5**0.5, 0])
    assert made[2] == pytest.approx([0.1**0.5, 0, 0.9**0.5], abs=1e-6)


async def test_many_texts_and_long_ones_come_back_in_order(folder):
    embed = OnnxEmbed(folder)
    made, other = await asyncio.gather(
        embed("t", ["tea " * 1000, *["dog"] * 30, "what"]), embed("t", ["green"])
    )
    assert made[0] == pytest.approx([1, 0, 0])
    assert made[-2] == pytest.approx([0, 0, 1])
    assert made[-1] == [0, 0, 0]
    assert other == [pytest.approx([0, 1, 0])]


async def test_a_file_that_was_changed_is_not_used(folder):
    (folder / "model.onnx").write_bytes(tiny_model() + b"\x00")
    with pytest.raises(EmbedUnavailable, match="changed"):
        await OnnxEmbed(folder)("t", ["tea"])


async def test_without_its_files_it_is_unavailable(tmp_path):
    assert not is_installed(tmp_path)
    with pytest.raises(EmbedUnavailable):
        await OnnxEmbed(tmp_path)("t", ["tea"])


def test_only_the_published_archive_is_unpacked(tmp_path):
    path, digest = archive(tmp_path / "a.tar.gz", model__onnx=b"m")
    with pytest.raises(UnusableModel, match="SHA-256"):
        unpack(path, tmp_path / "into")
    assert not (tmp_path / "into").exists()
    with pytest.raises(UnusableModel, match="cannot be read"):
        unpack(path, tmp_path / "into", digest)
    assert not is_installed(tmp_path / "into")
    (tmp_path / "b").write_bytes(b"no archive")
    with pytest.raises(UnusableModel, match="cannot be read"):
        unpack(tmp_path / "b", tmp_path / "into", hashlib.sha256(b"no archive").hexdigest())
