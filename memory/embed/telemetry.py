"""Turns the telemetry of libraries off before they are imported.

So only hosts that the configuration or a command names are contacted.
"""

from __future__ import annotations

import os

# What each library reads when it is imported, or first used. There is no stricter value than these.
SWITCHES = {
    # onnxruntime: a device id in the home folder, and a vendor's host
    "ORT_DISABLE_TELEMETRY": "1",
    # Chroma.
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    # The hub that tokenizers can load from.
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def hush() -> None:
    """Disable telemetry; call this before importing any of these libraries."""
    os.environ.update(SWITCHES)
