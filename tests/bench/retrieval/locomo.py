"""LoCoMo: long chats of two people, with questions and the turns that answer them.

Read where it lies; never copied here.
"""

from __future__ import annotations

import importlib.util
from datetime import UTC
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.bench.retrieval.stored import Utterance

SHARED = Path(__file__).parents[4] / "shared"
DATA = SHARED / "data" / "locomo-dev.json"
METRICS = SHARED / "bench" / "retrieval" / "locomo.py"


def metrics() -> ModuleType | None:
    """The metrics that lie beside the project; None where they do not."""
    if not METRICS.exists():
        return None
    spec = importlib.util.spec_from_file_location("locomo_metrics", METRICS)
    assert spec is not None
    assert spec.loader is not None
    import sys

    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def utterances(conv: Any) -> list[Utterance]:
    """The first speaker as the user, the second as the assistant, both by name; each session a
    conversation of its date.
    """
    return [
        Utterance(
            t.id,
            f"{conv.id} session {t.session}",
            t.speaker,
            "user" if t.speaker == conv.speakers[0] else "assistant",
            t.body,
            t.when.replace(tzinfo=UTC).timestamp(),
        )
        for t in conv.turns
    ]
