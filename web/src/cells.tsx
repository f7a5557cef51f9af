// A grid of words on coloured cells (predictions by position). It scrolls sideways where it is wider than the page.

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { Slider } from "./controls";
import { css, inkOn } from "./colour";
import { useTheme } from "./hooks";
import { hideTip, scrollTip, showTip } from "./tip";

export interface Cell {
  word: string;
  /** Written small behind the word. */
  note?: string;
  /** 0 to 1 on the sequential scale. */
  share: number;
  /** Framed: what really follows. */
  framed?: boolean;
  text: string;
}

interface Props {
  label: string;
  rowNames: readonly string[];
  colNames: readonly string[];
  /** Above the names of the columns, one for each. */
  colNumbers?: readonly string[];
  cell: (row: number, col: number) => Cell;
  onPick?: (row: number, col: number) => void;
  /** What Enter and click do, for the description. */
  picks?: string;
  /** Width of a column in pixels. */
  column?: number;
}

const page = 24;

export function Cells(props: Props) {
  const total = props.colNames.length;
  const [from, set] = useState(Math.max(0, total - page));
  if (total <= page) return <Grid {...props} first={0} count={total} />;
  return (
    <>
      <Slider label="Positions" min={0} max={total - page} value={from} onChange={set} says={`${props.colNumbers?.[from] ?? from} to ${props.colNumbers?.[from + page - 1] ?? from + page - 1}`} />
      <Grid {...props} first={from} count={page} />
    </>
  );
}

function Grid({ label, rowNames, colNames, colNumbers, cell, onPick, picks, column = 84, first, count }: Props & { first: number; count: number }) {
  const area = useRef<HTMLDivElement>(null);
  const shade = useTheme();
  const [at, set] = useState<readonly [number, number] | null>(null);
  const rows = rowNames.length;
  const box = (row: number, col: number) => area.current?.querySelector<HTMLElement>(`[data-at="${row} ${col}"]`) ?? null;
  const show = (row: number, col: number, aloud: boolean) => {
    set([row, col]);
    const element = box(row, col);
    if (element === null) return;
    if (aloud) element.scrollIntoView({ block: "nearest", inline: "nearest" });
    const frame = element.getBoundingClientRect();
    showTip(cell(row, first + col).text, frame.left + frame.width / 2, frame.top, aloud);
  };
  const hide = () => {
    set(null);
    hideTip();
  };
  const under = (event: MouseEvent): readonly [number, number] | null => {
    const found = (event.target as HTMLElement).closest<HTMLElement>("[data-at]")?.dataset["at"]?.split(" ").map(Number);
    return found === undefined ? null : [found[0]!, found[1]!];
  };
  const keys = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const [row, col] = at ?? [0, 0];
    const moves: Record<string, readonly [number, number]> = {
      ArrowRight: [row, col + 1], ArrowLeft: [row, col - 1], ArrowDown: [row + 1, col], ArrowUp: [row - 1, col], Home: [row, 0], End: [row, count - 1],
    };
    const to = moves[event.key];
    if (to !== undefined) {
      event.preventDefault();
      show(Math.min(Math.max(to[0], 0), rows - 1), Math.min(Math.max(to[1], 0), count - 1), true);
    } else if ((event.key === "Enter" || event.key === " ") && at !== null && onPick !== undefined) {
      event.preventDefault();
      onPick(row, first + col);
    } else if (event.key === "Escape") hide();
  };
  const body: ComponentChildren = useMemo(() => Array.from({ length: rows * count }, (_, i) => {
    const [row, col] = [Math.floor(i / count), i % count];
    const one = cell(row, first + col);
    return (
      <div
        key={i}
        class={one.framed ? "cell framed" : "cell"}
        data-at={`${row} ${col}`}
        style={{ gridRow: row + 2, gridColumn: col + 2, background: css("sequential", one.share, 1), color: inkOn("sequential", one.share, 1) }}
      >
        <bdi>{one.word}</bdi>
        {one.note !== undefined && <small>{one.note}</small>}
      </div>
    );
  }), [cell, first, rows, count, shade]);
  const names = Math.max(0, ...rowNames.map((name) => [...name].length)) * 8.6 + 26;
  return (
    <div
      ref={area}
      class="cells"
      role="application"
      aria-roledescription="grid of predictions"
      aria-label={`${label} ${rows} rows, ${count} columns. Arrow keys move from cell to cell${picks === undefined ? "" : `; Enter: ${picks}`}.`}
      tabIndex={0}
      style={{ gridTemplateColumns: `${names}px repeat(${count}, ${column}px)` }}
      onPointerMove={(event) => {
        const found = under(event);
        if (found === null) hide();
        else if (at === null || at[0] !== found[0] || at[1] !== found[1]) show(found[0], found[1], false);
      }}
      onPointerLeave={hide}
      onScroll={scrollTip}
      onClick={(event) => {
        const found = under(event);
        if (found !== null) onPick?.(found[0], first + found[1]);
      }}
      onFocus={(event) => {
        if (at === null && event.currentTarget.matches(":focus-visible")) show(0, 0, true);
      }}
      onBlur={hide}
      onKeyDown={keys}
    >
      {Array.from({ length: count }, (_, col) => (
        <div key={`name ${col}`} class="cell-name" style={{ gridRow: 1, gridColumn: col + 2 }}>
          {colNumbers !== undefined && <small>{colNumbers[first + col]}</small>}
          <bdi>{colNames[first + col]}</bdi>
        </div>
      ))}
      {rowNames.map((name, row) => <div key={`row ${row}`} class="row-name" style={{ gridRow: row + 2, gridColumn: 1 }}>{name}</div>)}
      {body}
      {at !== null && <div class="cell-at" style={{ gridRow: at[0] + 2, gridColumn: at[1] + 2 }} />}
    </div>
  );
}
