// Marks of a drawing that can be pointed at: the nearest one to the pointer is shown with its numbers, and once the drawing
// has the keyboard's focus the arrow keys walk from mark to mark. One behavior for every SVG picture of the page.

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useRef, useState } from "preact/hooks";
import { hideTip, showTip } from "./tip";

export interface Mark {
  x: number;
  y: number;
  /** Marks of one series follow each other under the left and right keys; up and down change the series. */
  series: number;
  /** What is shown and read aloud; the first line is a heading. */
  text: string;
}

interface Props {
  label: string;
  width: number;
  height: number;
  marks: readonly Mark[];
  children: ComponentChildren;
  /** How far in pixels a pointer may be from a mark; everywhere, where it is left out. */
  reach?: number;
  onPick?: (index: number) => void;
  /** Which mark is at a point, where the nearest one may be the wrong one. */
  find?: (x: number, y: number) => number | null;
  class?: string;
}

/** An SVG of `width` by `height` CSS pixels with marks that answer to pointer and keyboard. */
export function Drawing({ label, width, height, marks, children, reach = 60, onPick, find, class: kind = "" }: Props) {
  const svg = useRef<SVGSVGElement>(null);
  const [at, set] = useState<number | null>(null);
  const shown = at === null ? undefined : marks[at];

  const show = (index: number | null, aloud: boolean) => {
    set(index);
    const mark = index === null ? undefined : marks[index];
    if (mark === undefined || svg.current === null) {
      hideTip();
      return;
    }
    const box = svg.current.getBoundingClientRect();
    showTip(mark.text, box.left + mark.x, box.top + mark.y, aloud);
  };
  const nearest = (event: { clientX: number; clientY: number }): number | null => {
    if (svg.current === null) return null;
    const box = svg.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (find !== undefined) return find(x, y);
    let best: number | null = null;
    let least = reach * reach;
    marks.forEach((mark, index) => {
      const distance = (mark.x - x) ** 2 + (mark.y - y) ** 2;
      if (distance <= least) [best, least] = [index, distance];
    });
    return best;
  };
  const keys = (event: TargetedKeyboardEvent<SVGSVGElement>) => {
    if (event.key === "Enter" || event.key === " ") {
      if (at !== null && onPick !== undefined) {
        event.preventDefault();
        onPick(at);
      }
      return;
    }
    if (event.key === "Escape") return show(null, false);
    const next = step(marks, at, event.key);
    if (next === undefined) return;
    event.preventDefault();
    show(next, true);
  };
  return (
    <svg
      ref={svg}
      class={`drawing ${kind}`}
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      role="application"
      aria-roledescription="chart"
      aria-label={`${label} Arrow keys move through its values.`}
      tabIndex={0}
      onPointerMove={(event) => show(nearest(event), false)}
      onPointerLeave={() => show(null, false)}
      onPointerDown={(event) => show(nearest(event), false)}
      onClick={(event) => {
        const index = nearest(event);
        if (index !== null) onPick?.(index);
      }}
      onFocus={() => {
        if (at === null && marks.length > 0 && svg.current?.matches(":focus-visible")) show(0, true);
      }}
      onBlur={() => show(null, false)}
      onKeyDown={keys}
    >
      {children}
      {shown !== undefined && <circle class="ring" cx={shown.x} cy={shown.y} r={7} />}
    </svg>
  );
}

/** The mark that a key leads to from `at`, or nothing for other keys. */
function step(marks: readonly Mark[], at: number | null, key: string): number | undefined {
  if (marks.length === 0) return undefined;
  const here = marks[at ?? 0]!;
  const row = marks.map((_, i) => i).filter((i) => marks[i]!.series === here.series);
  const place = row.indexOf(at ?? 0);
  switch (key) {
    case "ArrowRight":
      return at === null ? 0 : row[Math.min(place + 1, row.length - 1)];
    case "ArrowLeft":
      return row[Math.max(place - 1, 0)];
    case "Home":
      return row[0];
    case "End":
      return row[row.length - 1];
    case "ArrowUp":
    case "ArrowDown": {
      const all = [...new Set(marks.map((mark) => mark.series))];
      const other = all[all.indexOf(here.series) + (key === "ArrowDown" ? 1 : -1)];
      if (other === undefined) return at ?? 0;
      let best = -1;
      marks.forEach((mark, i) => {
        if (mark.series === other && (best < 0 || Math.abs(mark.x - here.x) < Math.abs(marks[best]!.x - here.x))) best = i;
      });
      return best < 0 ? undefined : best;
    }
    default:
      return undefined;
  }
}
