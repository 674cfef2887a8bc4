"""Times in pages: as UTC, with what lets a script show them in the viewer's time zone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from gateway.ui.texts import ago, moment


@dataclass(frozen=True, slots=True)
class ShownTime:
    """A time as an element of a page. at: ISO 8601. kind: tells the script what to replace."""

    at: str
    text: str
    kind: str

    def __str__(self) -> str:
        return self.text

    def __html__(self) -> str:
        """Return the element; templates do not escape what has this method."""
        at = escape(self.at)
        text = escape(self.text)
        kind = escape(self.kind)
        return f'<time datetime="{at}" data-time="{kind}">{text}</time>'


def render_time(at: str | float | None, kind: str = "moment") -> ShownTime | str:
    """Return a time. at: ISO 8601, or a Unix time. kind: `moment`, or `ago` for how long ago."""
    if at is None:
        return "never"
    if kind == "ago":
        text = ago(at)
    else:
        text = moment(at)
    if isinstance(at, str):
        iso = at
    else:
        iso = datetime.fromtimestamp(at, UTC).isoformat()
    return ShownTime(iso, text, kind)
