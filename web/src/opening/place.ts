// Where things stand in the opening's drawing, in CSS pixels: depths go right, tokens go down.

import type { Run } from "./run";

/** Which depths the drawing shows from edge to edge. */
export type View = readonly [from: number, to: number];

export interface Place {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  row: number;
  /** Pixels between two depths. */
  column: number;
  x: (depth: number) => number;
  y: (row: number) => number;
}

export const narrow = 620;

/** Names of layers and their heads stand above the rows. */
const head = 38;

export function place(width: number, run: Run, view: View): Place {
  const wide = width >= narrow;
  const [left, right] = [wide ? 104 : 82, width - (wide ? 104 : 82)];
  const row = Math.round(Math.max(15, Math.min(wide ? 36 : 30, 430 / run.rows)));
  const column = (right - left) / (view[1] - view[0]);
  return {
    width, height: head + run.rows * row + 6, left, right, top: head, row, column,
    x: (depth) => left + (depth - view[0]) * column,
    y: (at) => head + row * (at + 0.5),
  };
}

/** The whole model, or one layer with a little of its neighbors. */
export function viewOf(run: Run, layer: number | null): View {
  return layer === null ? [0, run.layers] : [layer - 0.12, layer + 1.12];
}

export interface Square {
  layer: number;
  head: number;
  x: number;
  y: number;
  side: number;
}

/** The squares of the heads that are in sight, above their layers; none where they would be too small to tell apart. */
export function squares(p: Place, run: Run, view: View): Square[] {
  const side = Math.min(view[1] - view[0] < 2 ? 16 : 12, Math.floor((p.column - 6) / run.heads) - 2);
  if (side < 3) return [];
  const all: Square[] = [];
  for (let layer = 0; layer < run.layers; ++layer) {
    const middle = p.x(layer + 0.5);
    if (layer + 0.5 < view[0] || layer + 0.5 > view[1]) continue;
    const from = middle - (run.heads * (side + 2) - 2) / 2;
    for (let one = 0; one < run.heads; ++one) all.push({ layer, head: one, x: from + one * (side + 2), y: 18, side });
  }
  return all;
}
