"""The benches are run by hand, so that nothing else tells when a name of theirs is gone."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in (ROOT / "tests" / "bench").rglob("*.py")
)


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_can_be_imported(name):
    import_module(name)
