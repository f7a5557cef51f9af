// Axes of the drawings: few ticks, units in the label, powers of ten on a log axis.

import { extent } from "d3-array";
import { scaleLinear, scaleLog } from "d3-scale";
import { number, power } from "./format";

export interface AxisSpec {
  label: string;
  domain: readonly [number, number];
  log?: boolean;
  /** Where the ticks stand; chosen from the domain where left out. */
  ticks?: readonly number[];
  /** A tick that it writes as "" is left out. */
  format?: (value: number) => string;
}

export interface Axis {
  (value: number): number;
  ticks: readonly number[];
  write: (value: number) => string;
  label: string;
}

/** A map from values to pixels between `from` and `to`, with about `room / 60` ticks. */
export function axis(spec: AxisSpec, from: number, to: number, spacing = 60): Axis {
  const wanted = Math.max(2, Math.floor(Math.abs(to - from) / spacing));
  const range = [from, to];
  const scale = spec.log ? scaleLog(spec.domain, range) : scaleLinear(spec.domain, range);
  const decades = spec.log === true && Math.log10(spec.domain[1] / spec.domain[0]) >= 4;
  const write = spec.format ?? ((v: number) => (decades && isPower(v) && v !== 1 ? power(Math.round(Math.log10(v))) : number(v)));
  const ticks = spec.ticks ?? (spec.log ? logTicks(spec.domain, wanted) : scale.ticks(wanted)).filter((tick) => write(tick) !== "");
  return Object.assign((value: number) => scale(value), { ticks, write, label: spec.label });
}

function isPower(value: number): boolean {
  return Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
}

/** Powers of ten, every nth where there are too many, with others between them where there are too few. */
function logTicks([low, high]: readonly [number, number], wanted: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(wanted, 2)));
  const ticks: number[] = [];
  for (let exponent = Math.ceil(first / every) * every; exponent <= last; exponent += every) ticks.push(10 ** exponent);
  if (ticks.length >= 3) return ticks;
  const between = (digits: readonly number[]) => {
    const fine: number[] = [];
    for (let exponent = first - 1; exponent <= last; ++exponent)
      for (const digit of digits) {
        const value = digit * 10 ** exponent;
        if (value >= low * 0.999 && value <= high * 1.001) fine.push(value);
      }
    return fine;
  };
  const few = between([1, 2, 5]);
  return few.length >= 4 ? few : between([1, 1.5, 2, 3, 4, 5, 7]);
}

/** A domain around `values` for a log axis, half a step wider; zeros and negative values are left out. */
export function logDomain(values: readonly number[], grow = 1.25): [number, number] {
  const [low, high] = extent(values.filter((v) => v > 0 && Number.isFinite(v)));
  return low === undefined ? [0.1, 10] : [low / grow, high * grow];
}

export function linearDomain(values: readonly number[], from?: number): [number, number] {
  const [least, high] = extent(values.filter(Number.isFinite));
  if (least === undefined) return [0, 1];
  const low = from ?? least;
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [from ?? low - pad, high + pad];
}

interface BottomProps {
  axis: Axis;
  /** The y of the axis line, and the x of its two ends. */
  y: number;
  from: number;
  to: number;
  grid?: number;
}

/** Every nth tick, so that their words stand apart. */
function apart(x: Axis): readonly number[] {
  const wide = Math.max(0, ...x.ticks.map((tick) => [...x.write(tick)].length)) * 7 + 6;
  const nearest = Math.min(...x.ticks.slice(1).map((tick, i) => Math.abs(x(tick) - x(x.ticks[i]!))));
  const every = Number.isFinite(nearest) && nearest > 0 ? Math.ceil(wide / nearest) : 1;
  return x.ticks.filter((_, i) => i % every === 0);
}

export function BottomAxis({ axis: x, y, from, to, grid }: BottomProps) {
  const long = x.label.length * 6.2 > to;  // it would begin left of the drawing
  return (
    <g class="axis">
      <line x1={from} x2={to} y1={y} y2={y} class="base" />
      {apart(x).map((tick) => (
        <g key={tick} transform={`translate(${x(tick)},0)`}>
          {grid !== undefined && <line y1={grid} y2={y} class="grid" />}
          <line y1={y} y2={y + 4} class="base" />
          <text y={y + 17} text-anchor="middle">{x.write(tick)}</text>
        </g>
      ))}
      <text class="axis-label" x={long ? 0 : to} y={y + 36} text-anchor={long ? "start" : "end"}>{x.label}</text>
    </g>
  );
}

interface LeftProps {
  axis: Axis;
  x: number;
  from: number;
  to: number;
}

/** Horizontal grid lines with their values; the label stands above the axis, unturned. */
export function LeftAxis({ axis: y, x, from, to }: LeftProps) {
  return (
    <g class="axis">
      {y.ticks.map((tick) => (
        <g key={tick} transform={`translate(0,${y(tick)})`}>
          <line x1={x} x2={to} class="grid" />
          <text x={x - 8} dy="0.32em" text-anchor="end">{y.write(tick)}</text>
        </g>
      ))}
      <text class="axis-label" x={0} y={from}>{y.label}</text>
    </g>
  );
}
