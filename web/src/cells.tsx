// A grid of words on colored cells (predictions by position). It scrolls sideways where it is wider than the page.

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useMemo, useState } from "preact/hooks";
import { Slider } from "./controls";
import { css, inkOn } from "./color";
import { usePrinting, useTheme, useWidth } from "./hooks";
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
  /** Where not all columns fit, the last ones are shown first. */
  fromEnd?: boolean;
  /** Width of a column in pixels. */
  column?: number;
}

const page = 24;
const columnWidth = 84;
/** Between columns, and around the grid: base.css. */
const [gap, padding] = [2, 3];
/** Of the text on A4: page.css. */
const paperWidth = 680;

export function Cells(props: Props) {
  const total = props.colNames.length;
  const [from, set] = useState(Math.max(0, total - page));
  const paper = usePrinting();
  if (paper) return <Sheets {...props} from={total <= page ? 0 : from} count={Math.min(total, page)} />;
  if (total <= page) return <Grid {...props} first={0} count={total} />;
  return (
    <>
      <Slider label="Positions" min={0} max={total - page} value={from} onChange={set} says={`${props.colNumbers?.[from] ?? from} to ${props.colNumbers?.[from + page - 1] ?? from + page - 1}`} />
      <Grid {...props} first={from} count={page} />
    </>
  );
}

/** On paper nothing scrolls: as many columns as fit beside the names of the rows, and the others in grids below. */
function Sheets({ from, count, ...props }: Props & { from: number; count: number }) {
  const each = Math.max(1, Math.floor((paperWidth - nameWidth(props.rowNames) - 6) / ((props.column ?? columnWidth) + 2)));
  const parts = Math.ceil(count / each);
  return <>{Array.from({ length: parts }, (_, i) => <Grid key={i} {...props} first={from + i * each} count={Math.min(each, count - i * each)} />)}</>;
}

function nameWidth(names: readonly string[]): number {
  return Math.max(0, ...names.map((name) => [...name].length)) * 8.6 + 26;
}

function Grid({ label, rowNames, colNames, colNumbers, cell, onPick, picks, column = columnWidth, fromEnd = false, first, count }: Props & { first: number; count: number }) {
  const [area, width] = useWidth<HTMLDivElement>();
  const shade = useTheme();
  const [at, set] = useState<readonly [number, number] | null>(null);
  const rows = rowNames.length;
  useLayoutEffect(() => {
    if (fromEnd && area.current !== null) area.current.scrollLeft = area.current.scrollWidth;
  }, [width]);
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
  const names = nameWidth(rowNames);
  // Where the grid scrolls, whole columns fit beside the names of the rows: at its end no sliver of one is left.
  const least = Math.round(column * 0.8) + gap;
  const room = width - 2 * padding - names;
  const scrolls = width > 0 && count * least > room;
  const columns = scrolls ? `${(room + gap) / Math.max(1, Math.floor(room / least)) - gap}px` : `minmax(${least - gap}px, ${column}px)`;
  return (
    <div
      ref={area}
      class="cells"
      role="application"
      aria-roledescription="grid of predictions"
      aria-label={`${label} ${rows} rows, ${count} columns. Arrow keys move from cell to cell${picks === undefined ? "" : `; Enter: ${picks}`}.`}
      tabIndex={0}
      style={{ gridTemplateColumns: `${names}px repeat(${count}, ${columns})` }}
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
      <div class="cells-corner" style={{ gridRow: 1, gridColumn: 1 }} />
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
