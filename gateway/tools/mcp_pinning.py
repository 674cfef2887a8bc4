"""Which definitions of a server hold: those that were accepted, while the server still lists them.

A server that was reached once cannot change what a tool says of itself, or bring another one,
without a person who looks. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Literal

from gateway.storage.tool_pins import ToolPin
from gateway.tools.mcp_definitions import ListedTool

PinMode = Literal["ask", "strict", "off"]
Pins = Mapping[str, ToolPin]


class ChangedAgain(Exception):
    """What is to be accepted is no longer what was looked at."""


def merge_listing(
    pins: Pins | None, listing: Mapping[str, ListedTool], mode: PinMode
) -> dict[str, ToolPin]:
    """Return the pins after a server listed its tools.

    pins: None for a server that is reached for the first time. What it lists then is accepted,
    unless the mode is `strict`.
    """
    accepts = mode == "off" or (mode == "ask" and pins is None)
    earlier_pins = pins or {}
    merged_pins: dict[str, ToolPin] = {}
    for name in sorted({*earlier_pins, *listing}):
        earlier_pin = earlier_pins.get(name, ToolPin(name))
        tool = listing.get(name)
        if tool is None:
            if earlier_pin.accepted_hash is not None and mode != "off":
                merged_pins[name] = ToolPin(name, earlier_pin.accepted_hash, earlier_pin.accepted)
            continue
        pin = ToolPin(name, earlier_pin.accepted_hash, earlier_pin.accepted, tool.digest, tool.text)
        if accepts:
            merged_pins[name] = pin.accept()
        else:
            merged_pins[name] = pin
    return merged_pins


def accept_listed(
    pins: Pins, names: Collection[str] | None = None, digest: str | None = None
) -> dict[str, ToolPin]:
    """Return the pins with what waits accepted.

    names: of tools, as the server has them; None for all that wait. digest: of the one definition
    that was looked at, or of all of them (see `waiting_digest`). Raises ChangedAgain, KeyError for
    a name that does not wait.
    """
    waiting_pins = {name: pin for name, pin in pins.items() if pin.status in ("new", "changed")}
    chosen_names = sorted(waiting_pins if names is None else names)
    if missing_name := next((name for name in chosen_names if name not in waiting_pins), None):
        raise KeyError(missing_name)
    if digest is not None and digest != waiting_digest(
        [waiting_pins[name] for name in chosen_names]
    ):
        raise ChangedAgain
    return {name: pin.accept() if name in chosen_names else pin for name, pin in pins.items()}


def waiting_digest(pins: Collection[ToolPin]) -> str:
    """Return what names definitions that wait: the hash of one, of several the hash of theirs."""
    digests = [pin.listed_hash or "" for pin in pins]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
