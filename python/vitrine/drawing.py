"""HTML for notebooks: tables, colored tokens, and drawings (SVG within the page, which has its colors of text): grids, curves and
graphs of nodes."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

BLUE, ORANGE = (38, 110, 205), (214, 96, 20)
_LINES = ("#2a6fc9", "#d6601f", "#2f9e5b", "#9350c4", "#b8901b", "#c43d63")
_CONTROL = {code: chr(0x2400 + code) for code in range(32)} | {0x7F: "\u2421"}


class Cell(NamedTuple):
    """A cell of a table, filled by `share` from 0 to 1; below 0 in the other color."""

    text: str
    share: float = 0.0


def escaped(text: object) -> str:
    """A text as HTML and XML can hold it: control characters as their pictures."""
    visible = str(text).translate(_CONTROL)
    return html.escape(re.sub("[\ud800-\udfff\ufffe\uffff]", "\ufffd", visible))


def fill(share: float) -> str:
    """A color for -1 to 1, see-through at 0."""
    share = 0.0 if math.isnan(share) else max(-1.0, min(1.0, share))
    red, green, blue = BLUE if share >= 0 else ORANGE
    return f"rgba({red},{green},{blue},{0.75 * abs(share):.2f})"


def table(header: Sequence[str], rows: Sequence[Sequence[Cell | str]], caption: str = "") -> str:
    """A table whose numbers are aligned at the right."""
    def cell(given: Cell | str) -> str:
        text, share = given if isinstance(given, Cell) else (given, 0.0)
        aligned = "right" if re.fullmatch(r"[-+]?[\d,.]+(e[-+]\d+)?%?", text) else "left"
        background = f";background:{fill(share)}" if share else ""
        return f'<td style="text-align:{aligned};white-space:pre{background}">{escaped(text)}</td>'

    head = "".join(f'<th style="text-align:left">{escaped(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{escaped(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def colored_tokens(pieces: Sequence[str], shares: Sequence[float], notes: Sequence[str]) -> str:
    """The pieces of a text, one after the other, each in the color of its share and with a note that the pointer shows."""
    spans = "".join(
        f'<span title="{escaped(note)}" style="background:{fill(share)};border-radius:3px;padding:1px 0">{_spaced(piece)}</span>'
        + ("<br/>" if piece.endswith("\n") else "<wbr/>")
        for piece, share, note in zip(pieces, shares, notes, strict=True))
    return f'<div style="line-height:1.9;font-family:monospace;white-space:pre-wrap">{spans}</div>'


def _spaced(piece: str) -> str:
    return escaped(piece.replace("\u2581", " ").replace("\u0120", " ").replace("\u010a", "\n"))


def grids(
    values: np.ndarray, titles: Sequence[str], rows: Sequence[str], columns: Sequence[str], *, largest: float | None = None, side: int = 0,
) -> str:
    """SVG: a grid of squares for each of values [grid, row, column], 4 grids beside each other, with labels at the outer ones.
    largest: the value of the full color; default the largest absolute one.
    """
    n, height, width = values.shape
    scale = largest or float(np.nanmax(np.abs(values), initial=0)) or 1.0
    side = side or max(3, min(18, 220 // max(height, width, 1)))
    labeled = side >= 9
    margin = 7 * max((len(label) for label in rows), default=0) + 8 if labeled else 8
    above = 7 * max((len(label) for label in columns), default=0) + 12 if labeled else 6
    beside, grid_height = min(n, 4), height * side + 24
    grid_width = max([width * side, *(6 * len(title) for title in titles)]) + 14
    parts = []
    for i in range(n):
        left, top = margin + (i % beside) * grid_width, above + (i // beside) * grid_height + 12
        parts.append(f'<text x="{left}" y="{top - 4}" font-size="11" fill="currentColor">{escaped(titles[i])}</text>')
        parts.append(f'<rect x="{left}" y="{top}" width="{width * side}" height="{height * side}" fill="none" stroke="currentColor" '
                     'stroke-opacity="0.25"/>')
        for y in range(height):
            for x in range(width):
                value = float(values[i, y, x])
                if abs(value) >= scale / 200:
                    note = f"{escaped(rows[y])}, {escaped(columns[x])}: {value:.3g}"
                    parts.append(f'<rect x="{left + x * side}" y="{top + y * side}" width="{side}" height="{side}" '
                                 f'fill="{fill(value / scale)}"><title>{note}</title></rect>')
        if labeled and i % beside == 0:
            parts += [f'<text x="{left - 4}" y="{top + (y + 0.75) * side}" font-size="10" text-anchor="end" fill="currentColor">'
                      f"{escaped(label)}</text>" for y, label in enumerate(rows)]
        if labeled and i < beside:
            parts += [f'<text transform="translate({left + (x + 0.7) * side},{top - 16}) rotate(-90)" font-size="10" '
                      f'fill="currentColor">{escaped(label)}</text>' for x, label in enumerate(columns)]
    lines = -(-n // beside) if n else 0
    return svg(margin + beside * grid_width, above + lines * grid_height + 12, parts)


def curves(series: Mapping[str, Sequence[tuple[float, float]]], title: str = "", size: tuple[int, int] = (640, 260)) -> str:
    """SVG: curves of (x, y) by name. Numbers that are not finite are left out."""
    points = {name: [(x, y) for x, y in line if math.isfinite(x) and math.isfinite(y)] for name, line in series.items()}
    every = [point for line in points.values() for point in line]
    width, height = size
    left, top, right, bottom = 56, 26, width - 12, height - 24
    parts = [f'<text x="{left}" y="16" font-size="12" fill="currentColor">{escaped(title)}</text>']
    if not every:
        return svg(width, height, [*parts, f'<text x="{left}" y="{height // 2}" font-size="12" fill="currentColor">nothing yet</text>'])
    x0, x1 = min(x for x, _ in every), max(x for x, _ in every)
    y0, y1 = min(y for _, y in every), max(y for _, y in every)
    x1, y1 = (x1 if x1 > x0 else x0 + 1), (y1 if y1 > y0 else y0 + 1)

    def place(x: float, y: float) -> str:
        return f"{left + (x - x0) / (x1 - x0) * (right - left):.1f},{bottom - (y - y0) / (y1 - y0) * (bottom - top):.1f}"

    parts.append(f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" fill="none" stroke="currentColor" '
                 'stroke-opacity="0.3"/>')
    for value, y in ((y1, top + 10), (y0, bottom)):
        parts.append(f'<text x="{left - 5}" y="{y}" font-size="11" text-anchor="end" fill="currentColor">{value:.4g}</text>')
    for value, x, anchor in ((x0, left, "start"), (x1, right, "end")):
        parts.append(f'<text x="{x}" y="{height - 8}" font-size="11" text-anchor="{anchor}" fill="currentColor">{value:.6g}</text>')
    for i, (name, line) in enumerate(points.items()):
        color = _LINES[i % len(_LINES)]
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.6" points="{" ".join(place(x, y) for x, y in line)}"/>')
        parts += [f'<circle cx="{place(*point).split(",")[0]}" cy="{place(*point).split(",")[1]}" r="2.5" fill="{color}"/>'
                  for point in (line if len(line) <= 40 else line[-1:])]
        last = f" {line[-1][1]:.4g}" if line else ""
        parts.append(f'<text x="{right}" y="{top - 10}" dx="{-130 * (len(points) - 1 - i)}" font-size="12" text-anchor="end" '
                     f'fill="{color}">{escaped(name)}{last}</text>')
    return svg(width, height, parts)


class Dot(NamedTuple):
    """A node of a graph."""

    x: float  # column
    y: float  # row, from below
    note: str
    share: float  # of the full color


def node_graph(dots: Sequence[Dot], edges: Sequence[tuple[int, int, float]], columns: Sequence[str], rows: Sequence[str]) -> str:
    """SVG: nodes in columns and rows, and edges (from, to, weight), the stronger the more visible; orange below 0."""
    left, step_x, step_y = 10 + 7 * max((len(label) for label in rows), default=0), 90, 34
    height = 30 + step_y * len(rows)

    def at(dot: Dot) -> tuple[float, float]:
        return left + 20 + step_x * dot.x, height - step_y * (dot.y + 0.5)

    strongest = max((abs(weight) for _, _, weight in edges), default=0) or 1.0
    parts = []
    for source, target, weight in edges:
        (x1, y1), (x2, y2) = at(dots[source]), at(dots[target])
        color = _LINES[0] if weight >= 0 else _LINES[1]
        strength = abs(weight) / strongest
        parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
                     f'stroke-width="{0.4 + 2 * strength:.2f}" stroke-opacity="{0.08 + 0.8 * strength:.2f}"/>')
    for dot in dots:
        x, y = at(dot)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill(max(dot.share, 0.15))}" stroke="currentColor" '
                     f'stroke-opacity="0.5"><title>{escaped(dot.note)}</title></circle>')
    parts += [f'<text x="{left}" y="{height - step_y * (y + 0.5) + 4}" font-size="11" text-anchor="end" fill="currentColor">'
              f"{escaped(label)}</text>" for y, label in enumerate(rows)]
    parts += [f'<text x="{left + 20 + step_x * x}" y="{height + 14}" font-size="11" text-anchor="middle" fill="currentColor">'
              f"{escaped(label)}</text>" for x, label in enumerate(columns)]
    return svg(left + 40 + step_x * len(columns), height + 24, parts)


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """The parts as one picture."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'font-family="sans-serif">{"".join(parts)}</svg>')
