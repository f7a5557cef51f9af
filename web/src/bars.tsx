// Horizontal bars and dumbbells: one named row a value (or a pair of values).

import { useMemo } from "preact/hooks";
import { axis, BottomAxis, type AxisSpec } from "./axes";
import { px, short } from "./format";
import { useWidth } from "./hooks";
import { Drawing, type Mark } from "./marks";

export interface Bar {
  name: string;
  value: number;
  tone: string;
  /** Written at the end of the bar. */
  note: string;
  text: string;
}

interface BarsProps {
  label: string;
  bars: readonly Bar[];
  /** The value of a bar that fills the width. Negative values grow to the left where some are negative. */
  most: number;
  onPick?: (index: number) => void;
}

const line = 26;

function nameWidth(names: readonly string[], width: number): number {
  return Math.min(Math.max(...names.map((name) => [...name].length), 3) * 7.8 + 14, width * 0.36);
}

export function Bars({ label, bars, most, onPick }: BarsProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const content = useMemo(() => {
    const left = nameWidth(bars.map((bar) => bar.name), width);
    const longest = Math.max(...bars.map((bar) => bar.note.length)) * 7 + 12;
    const negative = bars.some((bar) => bar.value < 0);
    const sides = negative ? 2 : 1;
    // On a phone long notes stand below their bars.
    const below = width - left - longest * sides < 40;
    const notes = below ? 0 : longest;
    const room = width - left - notes * sides - (below ? 4 : 0);
    const step = below ? line + 16 : line;
    const zero = negative ? left + notes + room / 2 : left;
    const scale = (negative ? room / 2 : room) / most;
    const marks: Mark[] = bars.map((bar, i) => ({ x: zero + bar.value * scale, y: i * step + line / 2 + 2, series: 0, text: bar.text }));
    return { left, zero, scale, marks, below, step };
  }, [bars, most, width]);
  const height = bars.length * content.step + 6;
  return (
    <div ref={box} style={{ minHeight: px(height) }}>
      {width > 0 && (
        <Drawing label={label} width={width} height={height} marks={content.marks} find={(_, y) => (y < 0 || y >= height ? null : Math.min(bars.length - 1, Math.max(0, Math.floor((y - 2) / content.step))))} class="bars" {...(onPick === undefined ? {} : { onPick })}>
          <line class="base" x1={content.zero} x2={content.zero} y1={0} y2={height} />
          {bars.map((bar, i) => {
            const end = bar.value * content.scale;
            return (
              <g key={i} class={`bar ${bar.tone}`} transform={`translate(0,${i * content.step + 2})`}>
                <text class="bar-name" x={content.left - 8} y={line / 2} dy="0.34em" text-anchor="end">{short(bar.name, Math.max(3, Math.floor(content.left / 7.6) - 1))}</text>
                <rect x={content.zero + Math.min(end, 0)} y={4} width={Math.max(Math.abs(end), 1)} height={line - 8} rx={2} />
                {content.below
                  ? <text class="bar-note halo" x={Math.max(0, Math.min(content.left, width - bar.note.length * 6.4))} y={line + 4} dy="0.34em">{bar.note}</text>
                  : <text class="bar-note" x={content.zero + end + (end < 0 ? -6 : 6)} y={line / 2} dy="0.34em" text-anchor={end < 0 ? "end" : "start"}>{bar.note}</text>}
              </g>
            );
          })}
        </Drawing>
      )}
    </div>
  );
}

interface End {
  value: number;
  name: string;
  text: string;
}

interface DumbbellProps {
  label: string;
  axis: AxisSpec;
  rows: readonly { name: string; from: End; to: End }[];
}

/** Two dots a row and the way between them: before (hollow) and after (full). The row where they lie furthest apart names its ends. */
export function Dumbbells({ label, axis: spec, rows }: DumbbellProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const step = 30;
  const top = 26;
  const height = top + rows.length * step + 44;
  const content = useMemo(() => {
    const left = nameWidth(rows.map((row) => row.name), width);
    const x = axis(spec, left + 8, width - 20);
    const marks: Mark[] = rows.flatMap((row, i) => [row.from, row.to].map((end) => ({ x: x(end.value), y: top + (i + 0.5) * step, series: i, text: end.text })));
    const gaps = rows.map((row) => Math.abs(x(row.from.value) - x(row.to.value)));
    return { left, x, marks, named: gaps.indexOf(Math.max(...gaps)) };
  }, [rows, spec, width]);
  return (
    <div ref={box} style={{ minHeight: px(height) }}>
      {width > 0 && (
        <Drawing label={label} width={width} height={height} marks={content.marks} class="dumbbells">
          <BottomAxis axis={content.x} y={top + rows.length * step + 4} from={content.left + 8} to={width - 20} grid={top} />
          {rows.map((row, i) => {
            const [from, to] = [content.x(row.from.value), content.x(row.to.value)];
            const outward = from < to ? -1 : 1;
            const anchors = [end(from, outward, content.left, width), end(to, -outward, content.left, width)] as const;
            const close = anchors[0] === anchors[1] && Math.abs(from - to) < 8 * Math.max(row.from.name.length, row.to.name.length);
            return (
              <g key={i} transform={`translate(0,${top + (i + 0.5) * step})`}>
                <text class="bar-name" x={content.left - 8} dy="0.34em" text-anchor="end">{short(row.name, Math.max(3, Math.floor(content.left / 7.6) - 1))}</text>
                <line class="way" x1={from} x2={to} />
                <circle class="from" cx={from} r={5} />
                <circle class="to" cx={to} r={5} />
                {i === content.named && (
                  <>
                    <text class="end-name" x={from} y={-12} text-anchor={anchors[0]}>{row.from.name}</text>
                    <text class="end-name" x={to} y={close ? 22 : -12} text-anchor={anchors[1]}>{row.to.name}</text>
                  </>
                )}
              </g>
            );
          })}
        </Drawing>
      )}
    </div>
  );
}

/** Names of two ends lean away from each other, but not out of the drawing. */
function end(x: number, direction: number, left: number, width: number): "start" | "middle" | "end" {
  if (x > width - 110) return "end";
  if (x < left + 60) return "start";
  return direction < 0 ? "end" : "start";
}
