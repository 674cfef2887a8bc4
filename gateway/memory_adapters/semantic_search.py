"""Builds the search by meaning, if one is configured."""

from __future__ import annotations

from importlib.util import find_spec

from gateway.auth.credential_cache import CredentialCache
from gateway.config.settings import ConfigError, Settings
from gateway.memory_adapters.embedder import UpstreamEmbedder
from gateway.routing.router import Router
from memory import ChromaIndex, OnnxEmbed, SemanticSearch, is_installed


def build_semantic_search(
    settings: Settings, router: Router, credentials: CredentialCache
) -> SemanticSearch | None:
    """Build the search by meaning; None if no embedder is configured.

    Raises ConfigError for an embedder that is unknown or not installed.
    """
    kind, _, model = settings.memory.embedder.partition(":")
    if kind == "none":
        return None
    if not (kind == "upstream" and model) and settings.memory.embedder != "onnx-minilm":
        raise ConfigError(
            f"memory.embedder is {settings.memory.embedder!r}; this version knows 'none', "
            "'onnx-minilm' and 'upstream:<model>'"
        )
    embed = (
        UpstreamEmbedder(model, router, credentials, own_key=settings.mode == "own-key")
        if model
        else _local_embedder(settings)
    )
    if find_spec("numpy") is None:
        raise ConfigError(
            "memory.embedder needs numpy: run pip install '.[chroma]' in the folder of "
            "Mnemogate's source"
        )
    vectors = settings.storage.vectors
    index = None
    if vectors != "none":
        index = ChromaIndex(vectors, settings.data / "chroma")
    return SemanticSearch(embed, index, settings.storage.exact_below)


def _local_embedder(settings: Settings) -> OnnxEmbed:
    """Build the local embedder.

    Raises ConfigError if a package or its model is missing.
    """
    if packages := [
        name for name in ("onnxruntime", "tokenizers", "numpy") if find_spec(name) is None
    ]:
        raise ConfigError(
            f'memory.embedder = "onnx-minilm" needs {" and ".join(packages)}: run pip install '
            "'.[onnx-minilm]' in the folder of Mnemogate's source"
        )
    if not is_installed(folder := settings.data / "embedder"):
        raise ConfigError(
            f'memory.embedder = "onnx-minilm" needs its model in {folder}: run `mnemogate '
            "fetch "
            "embedder`"
        )
    return OnnxEmbed(folder)
