// A grid of colored cells on a canvas: the numbers of the cell under the pointer, or of the one the arrow keys lead to.

import type { TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { css, inkOn, step, table, type Scale } from "./color";
import { px, short } from "./format";
import { useTheme, useWidth } from "./hooks";
import { hideTip, showTip } from "./tip";

export interface HeatProps {
  label: string;
  rows: number;
  cols: number;
  /** Nothing where there is no cell (a masked pair). */
  value: (row: number, col: number) => number | null;
  scale: Scale;
  most: number;
  rowNames: readonly string[];
  colNames: readonly string[];
  rowTitle?: string;
  colTitle?: string;
  describe: (row: number, col: number) => string;
  onPick?: (row: number, col: number) => void;
  /** What Enter and click do, for the description of the grid. */
  picks?: string;
  /** Writes the values into cells that have room for them. */
  write?: (value: number) => string;
  /** Width and height of a cell where there is room; cells are square unless `tall` gives a height of its own. */
  cell?: number;
  tall?: number;
  /** Ticks under the grid, at columns. */
  bottomTicks?: readonly { at: number; text: string }[];
  bottomTitle?: string;
}

/** Fills one pixel per cell and lets the canvas enlarge it: exact edges, and quick for hundreds of thousands of cells. */
export function paint(canvas: HTMLCanvasElement, rows: number, cols: number, value: (row: number, col: number) => number | null, scale: Scale, most: number): void {
  canvas.width = cols;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  if (context === null) return;
  const image = context.createImageData(cols, rows);
  const rgb = table(scale);
  for (let row = 0, out = 0; row < rows; ++row)
    for (let col = 0; col < cols; ++col, out += 4) {
      const v = value(row, col);
      if (v === null) continue;
      const at = step(scale, v, most) * 3;
      image.data[out] = rgb[at]!;
      image.data[out + 1] = rgb[at + 1]!;
      image.data[out + 2] = rgb[at + 2]!;
      image.data[out + 3] = 255;
    }
  context.putImageData(image, 0, 0);
}

/** How many characters the longest number of the grid has: in a narrower cell it would stand on its neighbor's. */
function longestNumber({ rows, cols, value, write }: HeatProps): number {
  let longest = 0;
  for (let i = 0; i < rows * cols; ++i) {
    const one = value(Math.floor(i / cols), i % cols);
    if (one !== null) longest = Math.max(longest, write!(one).length);
  }
  return longest;
}

/** The width of the reading column in pixels: --column of base.css. */
function readingColumn(): number {
  return 42.5 * Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
}

export function Heat(props: HeatProps) {
  const { label, rows, cols, value, scale, most, rowNames, colNames, rowTitle, colTitle, describe, onPick, picks, write, bottomTicks = [], bottomTitle } = props;
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const [at, set] = useState<readonly [number, number] | null>(null);

  const longest = Math.max(0, ...rowNames.map((name) => [...name].length));
  // The title of the rows stands above their names, beside the names of the columns.
  const titled = rowTitle === undefined ? 0 : rowTitle.length * 6.6 + 8;
  const left = longest === 0 ? 1 : Math.max(titled, Math.min(Math.max(longest, 2) * 7.6 + 12, Math.max(96, width * 0.3)));
  const colLongest = Math.max(0, ...colNames.map((name) => [...name].length));
  // Slanted names of the last columns reach beyond the grid; a cell too narrow for its name slants all of them.
  const fitted = Math.min((width - left - 2) / cols, props.cell ?? 40);
  const slanted = colLongest * 7.6 > fitted - 4;
  const lean = slanted ? Math.min(colLongest, 14) * 4.4 : 0;
  const cell = Math.max(Math.min((width - left - 2 - lean) / cols, props.cell ?? 40), 0.25);
  const tall = props.tall ?? cell;
  const top = (colTitle === undefined ? 0 : 20) + (colNames.length === 0 ? 0 : slanted ? Math.min(colLongest, 14) * 6 + 18 : 22) + (rowTitle !== undefined && colNames.length === 0 ? 20 : 0);
  const bottom = (bottomTicks.length > 0 ? 22 : 0) + (bottomTitle === undefined ? 0 : 18);
  const [wide, high] = [cell * cols, tall * rows];
  const every = Math.max(1, Math.ceil(15 / cell));
  const everyRow = Math.max(1, Math.ceil((tall < 12 ? 40 : 13) / tall));
  const letters = Math.floor((left - 12) / 7.4);

  useLayoutEffect(() => {
    if (canvas.current !== null) paint(canvas.current, rows, cols, value, scale, most);
  }, [width > 0, rows, cols, value, scale, most, theme]);

  const locate = (event: PointerEvent | MouseEvent): readonly [number, number] | null => {
    const area = canvas.current!.getBoundingClientRect();
    const col = Math.floor(((event.clientX - area.left) / area.width) * cols);
    const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
    return row >= 0 && row < rows && col >= 0 && col < cols ? [row, col] : null;
  };
  const show = (place: readonly [number, number] | null, aloud: boolean) => {
    set(place);
    if (place === null || canvas.current === null) return hideTip();
    const area = canvas.current.getBoundingClientRect();
    showTip(describe(place[0], place[1]), area.left + (place[1] + 0.5) * cell, area.top + place[0] * tall, aloud);
  };
  const keys = (event: TargetedKeyboardEvent<HTMLElement>) => {
    const [row, col] = at ?? [0, 0];
    const to = (r: number, c: number) => {
      event.preventDefault();
      show(at === null ? [0, 0] : [Math.min(Math.max(r, 0), rows - 1), Math.min(Math.max(c, 0), cols - 1)], true);
    };
    switch (event.key) {
      case "ArrowRight": return to(row, col + 1);
      case "ArrowLeft": return to(row, col - 1);
      case "ArrowDown": return to(row + 1, col);
      case "ArrowUp": return to(row - 1, col);
      case "Home": return to(row, 0);
      case "End": return to(row, cols - 1);
      case "PageDown": return to(row + 10, col);
      case "PageUp": return to(row - 10, col);
      case "Escape": return show(null, false);
      case "Enter":
      case " ":
        if (at !== null && onPick !== undefined) {
          event.preventDefault();
          onPick(row, col);
        }
    }
  };
  // In a wide figure the grid stands over the reading column, or at its left edge where it is narrower.
  const column = width > 0 ? readingColumn() : 0;
  const shift = width <= column ? 0 : Math.floor((width - Math.max(column, left + wide + lean)) / 2);
  const numbers = write !== undefined && cell >= 34 && tall >= 18 && rows * cols <= 2000 && cell >= 6.1 * longestNumber(props) + 3;
  return (
    <div ref={box} class="heat" style={width > 0 ? { height: px(top + high + bottom + 2) } : {}}>
      {width > 0 && (
        <>
          <svg class="heat-names" style={{ left: px(shift) }} width={Math.max(width - shift, 1)} height={top + high + bottom} aria-hidden="true">
            {colTitle !== undefined && <text class="axis-label" x={left} y={11}>{colTitle}</text>}
            {rowTitle !== undefined && <text class="axis-label" x={0} y={Math.max(top - 8, 11)}>{rowTitle}</text>}
            {rowNames.map((name, row) => row % everyRow === 0 && (
              <text key={row} class={at?.[0] === row ? "here" : undefined} x={left - 7} y={top + (row + 0.5) * tall} dy="0.34em" text-anchor="end">{short(name, letters)}</text>
            ))}
            {colNames.map((name, col) => col % every === 0 && (
              <text
                key={col}
                class={at?.[1] === col ? "here" : undefined}
                transform={`translate(${left + (col + 0.5) * cell + (slanted ? 4 : 0)},${top - 7})${slanted ? " rotate(-50)" : ""}`}
                text-anchor={slanted ? "start" : "middle"}
              >{short(name, 14)}</text>
            ))}
            {bottomTicks.map((tick) => (
              <text key={tick.at} x={left + (tick.at + 0.5) * cell} y={top + high + 16} text-anchor={tick.at === 0 ? "start" : tick.at >= cols - 2 ? "end" : "middle"}>{tick.text}</text>
            ))}
            {bottomTitle !== undefined && <text class="axis-label" x={left + wide} y={top + high + bottom - 4} text-anchor="end">{bottomTitle}</text>}
          </svg>
          <div
            class="heat-area"
            style={{ left: px(shift + left), top: px(top), width: px(wide), height: px(high) }}
            role="application"
            aria-roledescription="grid of values"
            aria-label={`${label} ${rows} rows, ${cols} columns. Arrow keys move from cell to cell${picks === undefined ? "" : `; Enter: ${picks}`}.`}
            tabIndex={0}
            onPointerMove={(event) => show(locate(event), false)}
            onPointerDown={(event) => show(locate(event), false)}
            onPointerLeave={() => show(null, false)}
            onClick={(event) => {
              const place = locate(event);
              if (place !== null) onPick?.(place[0], place[1]);
            }}
            onFocus={(event) => {
              if (at === null && event.currentTarget.matches(":focus-visible")) show([0, 0], true);
            }}
            onBlur={() => show(null, false)}
            onKeyDown={keys}
          >
            <canvas ref={canvas} />
            {numbers && (
              <svg width={wide} height={high} class="heat-numbers">
                {Array.from({ length: rows * cols }, (_, i) => {
                  const [row, col] = [Math.floor(i / cols), i % cols];
                  const v = value(row, col);
                  return v === null ? null : (
                    <text key={i} x={(col + 0.5) * cell} y={(row + 0.5) * tall} dy="0.34em" text-anchor="middle" fill={inkOn(scale, v, most)}>{write(v)}</text>
                  );
                })}
              </svg>
            )}
            {at !== null && <div class="heat-at" style={{ left: px(at[1] * cell), top: px(at[0] * tall), width: px(cell), height: px(tall) }} />}
          </div>
        </>
      )}
    </div>
  );
}

/** The key of a scale: a strip from its low end to its high end, with the numbers at both. */
export function ScaleKey({ scale, low, high, label }: { scale: Scale; low: string; high: string; label: string }) {
  useTheme();
  const stops = Array.from({ length: 17 }, (_, i) => css(scale, scale === "sequential" ? i / 16 : i / 8 - 1, 1)).join(", ");
  return (
    <div class="scale-key">
      <span class="scale-label">{label}</span>
      <span>{low}</span>
      <span class="scale-strip" style={{ background: `linear-gradient(to right, ${stops})` }} aria-hidden="true" />
      <span>{high}</span>
    </div>
  );
}
