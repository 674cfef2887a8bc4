"""The result of one check of `mnemogate doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    note: not required, or worth knowing. failed: `serve` would not work.
    """

    what: str
    state: Literal["ok", "note", "failed"]
    told: str
