"""The geometry of charts, which templates draw as SVG. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Of a plot's coordinates.
WIDTH, HEIGHT = 600.0, 120.0
MAX_BARS = 60


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a stacked bar. x, width: in per cent. name: its class in the style sheet."""

    name: str
    title: str
    value: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class PlotBar:
    """One bar of a bar chart, in the plot's coordinates. name: below the axis. value: its own."""

    name: str
    value: float
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class LinePlot:
    """A line. points: for a polyline. top: the value at the upper edge."""

    points: str
    top: float


def stack(parts: Mapping[str, tuple[str, int]], full_value: int) -> list[BarPart]:
    """Return a stacked bar. parts: name to title and value. full_value: what fills the bar."""
    full_value = max(full_value, sum(value for _, value in parts.values()), 1)
    out = []
    offset = 0.0
    for name, (title, value) in parts.items():
        if value > 0:
            width = 100 * value / full_value
            out.append(BarPart(name, title, value, round(offset, 3), round(width, 3)))
            offset += width
    return out


def line(values: Sequence[float], top: float | None = None) -> LinePlot:
    """Return a line through values at equal distances. top: of the scale, else the largest."""
    top = max(top if top is not None else max(values, default=0.0), 1e-9)
    step = WIDTH / max(len(values) - 1, 1)
    points = (
        f"{i * step:.1f},{HEIGHT - min(value / top, 1) * HEIGHT:.1f}"
        for i, value in enumerate(values)
    )
    return LinePlot(" ".join(points), top)


def bars(values: Mapping[str, float]) -> list[PlotBar]:
    """Return a bar for each of the last values, by title."""
    shown_values = list(values.items())[-MAX_BARS:]
    top = max((value for _, value in shown_values), default=0.0) or 1.0
    step = WIDTH / max(len(shown_values), 1)
    return [
        PlotBar(
            title,
            value,
            f"{title}: {value:,.6g}",
            round(i * step + step * 0.1, 1),
            round(HEIGHT - HEIGHT * value / top, 1),
            round(min(step * 0.8, 40.0), 1),
            round(HEIGHT * value / top, 1),
        )
        for i, (title, value) in enumerate(shown_values)
    ]
