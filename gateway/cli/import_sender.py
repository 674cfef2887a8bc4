"""Sends what is brought along to the gateway, as imports of a few thousand lines each.

A conversation is sent whole. A part that the gateway refuses is sent again bundle by bundle, so
that one bad conversation does not keep the others out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.client import GatewayRefused
from gateway.cli.formatting import printable
from gateway.cli.memory import UserMemory
from memory import export_format

if TYPE_CHECKING:
    from memory.formats.files import Broken
    from memory.formats.records import Bundle, BundleCount

# Of one part.
LINES = 2000
BYTES = 4 << 20
# Until an import of somebody else may be done.
WAIT_SECONDS = 5.0
WAITS = 60
# Lines between two reports of progress, where the output is no terminal.
TICK = 10_000
# Characters of a bundle's name.
TOLD = 100
# For one part: a conversation of 100,000 messages is one.
PART_SECONDS = 600.0
NDJSON = {"content-type": "application/x-ndjson"}


@dataclass(slots=True)
class Outcome:
    """What came of an import.

    imported: new rows by kind. present_count: conversations that were there. skipped_items: what
    the gateway did not change, with its reason.
    """

    imported: dict[str, int] = field(default_factory=dict)
    present_count: int = 0
    skipped_items: list[dict[str, Any]] = field(default_factory=list)
    broken_records: list[Broken] = field(default_factory=list)

    def add(self, receipt: dict[str, Any]) -> None:
        for kind, count in receipt["imported"].items():
            self.imported[kind] = self.imported.get(kind, 0) + count
        for skipped_item in receipt["skipped"]:
            if skipped_item["reason"] == "already there":
                self.present_count += 1
            else:
                self.skipped_items.append({k: v for k, v in skipped_item.items() if k != "line"})

    def report(self) -> dict[str, Any]:
        return {
            "object": "import",
            "imported": self.imported,
            "already_there": self.present_count,
            "skipped": self.skipped_items[:100],
        }

    def summary(self) -> str:
        """Return the outcome as a sentence or two."""
        counts = [f"{count} {kind}" for kind, count in self.imported.items() if count]
        out = "Nothing was new."
        if counts:
            out = f"New: {', '.join(counts)}."
        if self.present_count:
            out += f" Conversations that were there already: {self.present_count}."
        for skipped_item in self.skipped_items[:10]:
            name = f"{skipped_item['object']} {skipped_item['id']}"
            line = f"Not changed: {name} ({skipped_item['reason']})."
            out += f"\n{printable(line)}"
        return out


class ImportSender:
    """Collects bundles to parts and sends them. count: of what is to come, for the progress."""

    def __init__(self, person: UserMemory, count: BundleCount) -> None:
        self._person = person
        self._total = count.messages + count.passages + count.blocks
        self._done_bundles = self._reported_bundles = self._size = self._lines = 0
        self._bundles: list[tuple[str, bytes]] = []
        self._outcome = Outcome()

    def send_all(self, bundles: Iterable[Bundle]) -> Outcome:
        """Send every bundle, and return what came of it. Raises CommandFailed."""
        for bundle in bundles:
            body = b"".join(map(export_format.encode_line, bundle.lines))
            if self._bundles and (
                self._lines + len(bundle.lines) > LINES or self._size + len(body) > BYTES
            ):
                self._flush()
            self._bundles.append((_name(bundle.lines), body))
            self._size += len(body)
            self._lines += len(bundle.lines)
        self._flush()
        self._progress(end=True)
        return self._outcome

    def _flush(self) -> None:
        part = self._bundles
        self._bundles = []
        self._size = self._lines = 0
        if not part:
            return
        try:
            self._outcome.add(self._post(b"".join(body for _, body in part)))
        except GatewayRefused as e:
            if e.status not in (400, 413):
                raise
            self._send_apart(part, e)
        self._done_bundles += sum(
            body.count(b'"object":"message"') + body.count(b'"object":"passage"')
            for _, body in part
        )
        self._progress()

    def _send_apart(self, part: Sequence[tuple[str, bytes]], refusal: GatewayRefused) -> None:
        """Send the bundles of a refused part one by one; those refused again are left out."""
        from memory.formats.files import Broken

        for name, body in part:
            try:
                if len(part) == 1:
                    raise refusal
                self._outcome.add(self._post(body))
            except GatewayRefused as e:
                if e.status not in (400, 413):
                    raise
                self._outcome.broken_records.append(Broken(name, e.message))

    def _post(self, body: bytes) -> Any:
        """Import a part; wait while another import of the tenant is under way."""
        for waits_left in range(WAITS, -1, -1):
            try:
                return import_part(self._person, body)
            except GatewayRefused as e:
                if e.code != "import_running" or not waits_left:
                    raise
                time.sleep(WAIT_SECONDS)
        return None

    def _progress(self, *, end: bool = False) -> None:
        """Tell how far it is, on standard error: on one line of a terminal, else now and then."""
        if sys.stderr.isatty():
            click.echo(f"\r{self._done_bundles} of {self._total}", nl=end, err=True)
        elif self._done_bundles - self._reported_bundles >= TICK:
            self._reported_bundles = self._done_bundles
            click.echo(f"{self._done_bundles} of {self._total}", err=True)


def import_part(person: UserMemory, body: bytes) -> Any:
    """Import lines, as one; return the receipt. Raises CommandFailed."""
    return person.call("POST", "import", content=body, headers=NDJSON, timeout=PART_SECONDS)


def _name(lines: Sequence[export_format.ExportLine]) -> str:
    """Return how a bundle is named in a message."""
    first_line = lines[0]
    name = getattr(first_line, "id", None) or getattr(first_line, "label", None) or "unnamed"
    return f"{first_line.__struct_config__.tag} {name}"[:TOLD]
