"""
Draw the growth of figures with the store: `python -m benchmarks.plot figures.json docs/images/growth.svg`.

The input is the output file of `benchmarks.large_store --out`. Both axes are logarithmic: a figure that grows with the store is a rising
line, one that does not is level. The picture is plain SVG, in colours for light and dark pages.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import cast

_WIDTH, _HEIGHT, _LEFT, _TOP, _BETWEEN = 360, 260, 56, 48, 40
_COLOURS = ("#2f6fd0", "#d0682f", "#2f9c6a", "#9a55c8", "#b8912a")


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: lines over the number of memories."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def main() -> None:
    """Read the figures, draw the panels and write the file."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=(__doc__ or "").strip().splitlines()[0])
    arguments.add_argument("figures", type=Path)
    arguments.add_argument("picture", type=Path)
    options = arguments.parse_args()
    figures = cast("dict[str, dict[str, object]]", json.loads(options.figures.read_text(encoding="utf-8")))
    options.picture.write_text(render_panels(panels(figures)), encoding="utf-8")


def panels(figures: Mapping[str, Mapping[str, object]]) -> list[Panel]:
    """Return the panels for the figures of each size."""
    sizes = sorted(int(name) for name in figures if name.isdigit())

    def line(*path: str) -> list[tuple[float, float]]:
        return [(size, value) for size in sizes if (value := _at(figures[str(size)], path)) is not None and value > 0]

    def recall(what: str) -> dict[str, list[tuple[float, float]]]:
        names = ("workspace, semantic", "workspace, hybrid", "org, hybrid", "project, hybrid", "agent, hybrid")
        return {name: line("recall", name, what) for name in names}

    return [
        Panel("Recall over HTTP, p50", "ms", recall("p50_ms")),
        Panel("Recall over HTTP, p99", "ms", recall("p99_ms")),
        Panel("Memory of the server", "MB", {"own": line("memory_mb", "own"), "mapped files": line("memory_mb", "mapped")}),
        Panel("Start", "s", {"second start": line("start_s")}),
    ]


def _at(figures: object, path: Sequence[str]) -> float | None:
    for name in path:
        if not isinstance(figures, dict):
            return None
        figures = cast("dict[str, object]", figures).get(name)
    return float(figures) if isinstance(figures, int | float) else None


def render_panels(panels_to_draw: Sequence[Panel]) -> str:
    """Return the panels side by side, two in a row."""
    columns = 2
    rows = -(-len(panels_to_draw) // columns)
    width, height = columns * (_WIDTH + _LEFT) + _BETWEEN, rows * (_HEIGHT + _TOP + _BETWEEN)
    label = "How recall, memory and the start grow with the number of memories"
    font = 'font-family="system-ui, sans-serif" font-size="12" fill="#6b7280"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font} role="img" aria-label="{label}">']
    for number, panel in enumerate(panels_to_draw):
        left_edge = _LEFT + (number % columns) * (_WIDTH + _LEFT)
        top = _TOP + (number // columns) * (_HEIGHT + _TOP + _BETWEEN)
        parts.append(f'<g transform="translate({left_edge} {top})">{_panel(panel)}</g>')
    return "".join(parts) + "</svg>\n"


def _panel(panel: Panel) -> str:
    points = [point for line in panel.lines.values() for point in line]
    least, most = _decades([y for _, y in points])
    first, last = _decades([x for x, _ in points])

    def x_of(value: float) -> float:
        return (math.log10(value) - first) / (last - first) * (_WIDTH - _BETWEEN)

    def y_of(value: float) -> float:
        return _HEIGHT - _BETWEEN - (math.log10(value) - least) / (most - least) * (_HEIGHT - _BETWEEN)

    parts = [f'<text y="-24" font-size="14" font-weight="600">{escape(panel.title)}, {escape(panel.unit)}</text>']
    for power in range(least, most + 1):
        y = y_of(10.0**power)
        parts.append(f'<path d="M0 {y:.1f}H{_WIDTH - _BETWEEN}" stroke="#9ca3af" stroke-opacity=".4"/>')
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{_format_value(10.0**power)}</text>')
    below = f'y="{_HEIGHT - _BETWEEN + 18}" text-anchor="middle"'
    parts += [f'<text x="{x_of(10.0**power):.1f}" {below}>{_format_value(10.0**power)}</text>' for power in range(first, last + 1)]
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        parts.append(f'<text x="8" y="{14 * number - 4}" fill="{colour}">{escape(name)}</text>')
    return "".join(parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return least, max(most, least + 1)


def _format_value(value: float) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value >= 1e4 else f"{value:g}"


if __name__ == "__main__":
    main()
