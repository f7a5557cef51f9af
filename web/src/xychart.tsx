// Lines and dots over two axes, with names written at the lines themselves.

import { useMemo } from "preact/hooks";
import { axis, BottomAxis, LeftAxis, type AxisSpec } from "./axes";
import { px } from "./format";
import { useWidth } from "./hooks";
import { Drawing, type Mark } from "./marks";

export interface Point {
  x: number;
  y: number;
  text: string;
  /** What a click or Enter on it does. */
  pick?: () => void;
}

export interface Series {
  name: string;
  /** A class that sets the color: attention, mlp, plain, third, faint. */
  tone: string;
  draw: "line" | "dots" | "both";
  dashed?: boolean;
  points: readonly Point[];
  /** False for a series whose name stands elsewhere. */
  named?: boolean;
}

export interface Rule {
  y: number;
  label: string;
}

interface Props {
  label: string;
  x: AxisSpec;
  y: AxisSpec;
  series: readonly Series[];
  rules?: readonly Rule[];
  height?: number;
  /** Room at the right for the names of the lines. */
  right?: number;
}

const left = 52;
const top = 30;
const bottom = 44;

export function XyChart({ label, x: xSpec, y: ySpec, series, rules = [], height = 280, right = 96 }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const content = useMemo(() => {
    if (width === 0) return null;
    const x = axis(xSpec, left, width - right);
    const y = axis(ySpec, height - bottom, top, height < 220 ? 26 : 40);
    const [low, high] = ySpec.domain;
    const inside = (value: number) => y(Math.min(high, Math.max(low, value)));
    const shown = series.flatMap((one, index) => one.points.filter((p) => Number.isFinite(p.y)).map((point) => ({ point, index })));
    const marks: Mark[] = shown.map(({ point, index }) => ({ x: x(point.x), y: inside(point.y), series: index, text: point.text }));
    return { x, y, inside, marks, shown };
  }, [width, xSpec, ySpec, series, height, right]);
  return (
    <div ref={box} style={{ minHeight: px(height) }}>
      {content !== null && (
        <Drawing label={label} width={width} height={height} marks={content.marks} onPick={(index) => content.shown[index]?.point.pick?.()}>
          <LeftAxis axis={content.y} x={left} from={14} to={width - right} />
          <BottomAxis axis={content.x} y={height - bottom} from={left} to={width - right} />
          {rules.map((rule) => (
            <g key={rule.label} class="rule">
              <line x1={left} x2={width - right} y1={content.y(rule.y)} y2={content.y(rule.y)} />
              <text x={left + 6} y={content.y(rule.y) - 6}>{rule.label}</text>
            </g>
          ))}
          {series.map((one) => (
            <g key={one.name} class={`series ${one.tone}`}>
              {one.draw !== "dots" && (
                <path class="line" d={path(one.points, content.x, content.inside)} stroke-dasharray={one.dashed ? "5 4" : undefined} />
              )}
              {one.draw !== "line" && one.points.filter((p) => Number.isFinite(p.y)).map((p) => (
                <circle key={p.x} cx={content.x(p.x)} cy={content.inside(p.y)} r={one.draw === "both" ? 3 : 4} />
              ))}
            </g>
          ))}
          {right > 30 && names(series.filter((one) => reaches(one, xSpec)), content.inside, top, height - bottom).map(({ one, y }) => (
            <text key={one.name} class={`name ${one.tone}`} x={width - right + 8} y={y} dy="0.32em">{one.name}</text>
          ))}
          {series.filter((one) => one.named !== false && !reaches(one, xSpec)).map((one) => {
            const end = one.points.filter((p) => Number.isFinite(p.y)).at(-1);
            return end !== undefined && <text key={one.name} class={`name ${one.tone}`} x={content.x(end.x) + 9} y={content.inside(end.y)} dy="0.32em">{one.name}</text>;
          })}
        </Drawing>
      )}
    </div>
  );
}

/** A line that goes on to the right end has its name there, as dots always have; one that stops earlier has it where it stops. */
function reaches(one: Series, x: AxisSpec): boolean {
  if (one.draw === "dots") return true;
  const end = one.points.filter((p) => Number.isFinite(p.y)).at(-1)?.x ?? x.domain[1];
  return end > x.domain[1] - 0.15 * (x.domain[1] - x.domain[0]);
}

function path(points: readonly Point[], x: (v: number) => number, y: (v: number) => number): string {
  let pen = "M";
  let out = "";
  for (const point of points) {
    if (!Number.isFinite(point.y)) {
      pen = "M";
      continue;
    }
    out += `${pen}${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`;
    pen = "L";
  }
  return out;
}

/** The names at the ends of their lines, pushed apart where they would touch. */
function names(series: readonly Series[], y: (v: number) => number, low: number, high: number): { one: Series; y: number }[] {
  const placed = series
    .filter((one) => one.named !== false && one.points.length > 0)
    .map((one) => ({ one, y: y(one.points.filter((p) => Number.isFinite(p.y)).at(-1)?.y ?? 0) }))
    .sort((a, b) => a.y - b.y);
  const gap = 16;
  for (let i = 1; i < placed.length; ++i) placed[i]!.y = Math.max(placed[i]!.y, placed[i - 1]!.y + gap);
  let limit = high;
  for (let i = placed.length - 1; i >= 0; --i) {
    placed[i]!.y = Math.min(placed[i]!.y, limit);
    limit = placed[i]!.y - gap;
  }
  for (const place of placed) place.y = Math.max(place.y, low);
  return placed;
}
