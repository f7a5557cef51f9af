// Merging: what lies between two rows of weights, and their task vectors with the line back to the start.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { linearDomain } from "../axes";
import { Choice, Slider } from "../controls";
import type { Interpolation, TaskVectors } from "../data";
import { exact, number, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";
import { XyChart, type Series } from "../xychart";

type Point = readonly [number, number];

const degrees = (radians: number) => (radians * 180) / Math.PI;
const between = (a: Point, b: Point, t: number): Point => [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])];

interface PlaneProps {
  label: string;
  /** What has to be in view beside the origin. */
  points: readonly Point[];
  marks: readonly { at: Point; series: number; text: string }[];
  children: (at: (p: Point) => Point, parts: { arrow: (to: Point, tone: string, name: string) => ComponentChildren }) => ComponentChildren;
}

/** The plane of two vectors from one origin, at one scale in both directions. */
function Plane({ label, points, marks, children }: PlaneProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const most = 260;
  const place = useMemo(() => {
    const [low, high] = [Math.min(0, ...points.map((p) => p[0])), Math.max(1e-12, ...points.map((p) => p[0]))];
    const up = Math.max(1e-12, ...points.map((p) => p[1]));
    const unit = Math.min(Math.max(width - 90, 60) / (high - low), most / up);
    // No higher than what it shows: two vectors on one line leave nothing above it.
    const height = Math.max(40, up * unit) + 62;
    const origin: Point = [45 - low * unit + (Math.max(width - 90, 60) - (high - low) * unit) / 2, height - 30];
    return { height, origin, at: (p: Point): Point => [origin[0] + p[0] * unit, origin[1] - p[1] * unit] };
  }, [points, width]);
  const { origin, at } = place;
  const arrow = (to: Point, tone: string, name: string) => {
    const [x, y] = at(to);
    const out = Math.max(Math.hypot(x - origin[0], y - origin[1]), 1);
    const [dx, dy] = [(x - origin[0]) / out, (y - origin[1]) / out];
    const angle = Math.atan2(dy, dx);
    const corner = (turned: number) => `${x - 10 * Math.cos(angle + turned)},${y - 10 * Math.sin(angle + turned)}`;
    return (
      <g key={name}>
        <line class={`vector ${tone}`} x1={origin[0]} y1={origin[1]} x2={x - 6 * dx} y2={y - 6 * dy} />
        {out > 12 && <polygon class={`arrow ${tone}`} points={`${x},${y} ${corner(0.36)} ${corner(-0.36)}`} />}
        <text x={x + dx * 14} y={y + dy * 14 + (dy > -0.15 ? 16 : 0)} dy="0.2em" text-anchor="middle">{name}</text>
      </g>
    );
  };
  return (
    <div ref={box} style={{ minHeight: px(place.height) }}>
      {width > 0 && (
        <Drawing label={label} width={width} height={place.height} marks={marks.map((mark): Mark => ({ x: at(mark.at)[0], y: at(mark.at)[1], series: mark.series, text: mark.text }))} class="plane" reach={90}>
          {children(at, { arrow })}
        </Drawing>
      )}
    </div>
  );
}

const drawn = (points: readonly Point[], at: (p: Point) => Point) => points.map((p) => at(p).map((v) => v.toFixed(1)).join(",")).join(" ");

const kinds = { alike: "the most alike", first: "the first two", opposed: "the most opposed" } as const;

export function Between({ picture: p }: { picture: Interpolation }) {
  const [which, choose] = useState(0);
  const [step, slide] = useState(p.t.length >> 1);
  const pair = p.pairs[which] ?? p.pairs[0]!;
  const [i, j] = pair.rows;
  const lengths = useMemo(() => {
    const line = (name: string, tone: string, values: readonly number[]): Series => ({
      name, tone, draw: "line", points: p.t.map((t, at) => ({ x: t, y: values[at]!, text: `${name}, t = ${exact(t)}\nlength ${exact(values[at]!)}` })),
    });
    return {
      x: { label: "t", domain: [0, 1] as const, ticks: [0, 0.25, 0.5, 0.75, 1] },
      y: { label: "length", domain: linearDomain([...pair.linearLengths, ...pair.slerpLengths], 0) },
      series: [line("SLERP", "attention", pair.slerpLengths), line("linear", "mlp", pair.linearLengths)],
    };
  }, [p, pair]);
  const points = useMemo(() => [pair.a, pair.b, ...pair.arc], [pair]);
  const marks = useMemo(() => [
    { at: pair.a, series: 0, text: `a: row ${i}\nlength ${exact(pair.lengths[0])}` },
    { at: pair.b, series: 0, text: `b: row ${j}\nlength ${exact(pair.lengths[1])}\nangle to a ${number(degrees(pair.angle), 4)}°` },
    ...p.t.map((t, at) => ({ at: pair.arc[at]!, series: 1, text: `SLERP, t = ${exact(t)}\nlength ${exact(pair.slerpLengths[at]!)}` })),
    ...p.t.map((t, at) => ({ at: between(pair.a, pair.b, t), series: 2, text: `linear, t = ${exact(t)}\nlength ${exact(pair.linearLengths[at]!)}` })),
  ], [p, pair, i, j]);
  const t = p.t[step]!;
  return (
    <>
      {p.pairs.length > 1 && <Choice label="Rows" options={p.pairs.map((one, at) => ({ value: at, name: `${kinds[one.kind]}: ${one.rows[0]} and ${one.rows[1]}` }))} value={which} onChange={choose} />}
      <div class="beside">
        <div class="half">
          <Plane label={`Rows ${i} and ${j} in their plane, the straight line and the arc between them.`} points={points} marks={marks}>
            {(at, { arrow }) => {
              const [line, arc] = [at(between(pair.a, pair.b, t)), at(pair.arc[step]!)];
              return (
                <>
                  <g class="series mlp"><polyline class="line" points={drawn([pair.a, pair.b], at)} /></g>
                  <g class="series attention"><polyline class="line" points={drawn(pair.arc, at)} /></g>
                  {arrow(pair.a, "plain", "a")}
                  {arrow(pair.b, "plain", "b")}
                  <g class="series mlp"><circle cx={line[0]} cy={line[1]} r={5} /></g>
                  <g class="series attention"><circle cx={arc[0]} cy={arc[1]} r={5} /></g>
                </>
              );
            }}
          </Plane>
        </div>
        <div class="half"><XyChart label="Length of what lies between the two rows, on the line and on the arc." {...lengths} height={260} right={62} /></div>
      </div>
      <Slider label="From a to b" min={0} max={p.t.length - 1} value={step} onChange={slide} says={`t = ${number(t)}: linear ${number(pair.linearLengths[step]!)}, SLERP ${number(pair.slerpLengths[step]!)}`} />
      <p class="remark">
        Ω = {number(degrees(pair.angle), 4)}°, so the average of two vectors of one length would keep cos(Ω/2) = {number(pair.cosHalf)} of it. This average keeps {number((2 * pair.averageLength) / (pair.lengths[0] + pair.lengths[1]))} of the two rows' mean length.
        {pair.straight && " The two are so nearly on one line that SLERP goes straight."}
      </p>
    </>
  );
}

export function Tasks({ picture: p }: { picture: TaskVectors }) {
  const { eta, distances, lengths } = p.liti;
  const [step, slide] = useState(eta.length >> 1);
  const points = useMemo(() => [p.a, p.b, ...p.arc], [p]);
  const marks = useMemo(() => [
    { at: p.a, series: 0, text: `θ₁: row ${p.rows[0]}\nlength of its task vector ${exact(p.taskLengths[0])}` },
    { at: p.b, series: 0, text: `θ₂: row ${p.rows[1]}\nlength of its task vector ${exact(p.taskLengths[1])}\nangle between the two ${number(degrees(p.taskAngle), 4)}°` },
    { at: p.average, series: 1, text: `average of the task vectors\nlength ${exact(p.averageLength)}` },
    ...eta.map((e, i) => ({ at: between([0, 0], p.slerp, e), series: 2, text: `LITI, η = ${exact(e)}\ndistance from the start ${exact(distances[i]!)}\nlength of the row ${exact(lengths[i]!)}` })),
  ], [p, eta, distances, lengths]);
  return (
    <>
      <Plane label="Two task vectors from the start, their average, their SLERP and the line back to the start." points={points} marks={marks}>
        {(at, { arrow }) => {
          const [origin, average, merged, chosen] = [at([0, 0]), at(p.average), at(p.slerp), at(between([0, 0], p.slerp, eta[step]!))];
          return (
            <>
              <g class="series mlp"><polyline class="line" points={drawn([p.a, p.b], at)} /></g>
              <g class="series attention"><polyline class="line" points={drawn(p.arc, at)} /></g>
              {arrow(p.a, "plain", "θ₁")}
              {arrow(p.b, "plain", "θ₂")}
              <text x={origin[0]} y={origin[1] + 18} text-anchor="middle">θ₀</text>
              <line class="guide" x1={origin[0]} y1={origin[1]} x2={merged[0]} y2={merged[1]} />
              <g class="series mlp"><circle cx={average[0]} cy={average[1]} r={5} /></g>
              <g class="series attention">
                {eta.map((e) => <circle key={e} cx={at(between([0, 0], p.slerp, e))[0]} cy={at(between([0, 0], p.slerp, e))[1]} r={2.5} />)}
                <circle cx={chosen[0]} cy={chosen[1]} r={6} />
              </g>
            </>
          );
        }}
      </Plane>
      <Slider label="Back to the start" min={0} max={eta.length - 1} value={step} onChange={slide} says={`η = ${number(eta[step]!)}: ${number(distances[step]!)} from θ₀, the row has length ${number(lengths[step]!)}`} />
      <p class="remark">
        The task vectors are {number(degrees(p.taskAngle), 4)}° apart, their lengths {number(p.taskLengths[0])} and {number(p.taskLengths[1])}. Orange, their average: {number(p.averageLength)}. Blue, the middle of the arc: {number(p.slerpLength)}.
        {p.straight && " They are so nearly on one line that SLERP goes straight."}
      </p>
    </>
  );
}
