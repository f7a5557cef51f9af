// The MLP: its activation curves, and a toy of it from two numbers to two as surfaces, regions and slices.

import { extent } from "d3-array";
import { useMemo, useState } from "preact/hooks";
import { axis, BottomAxis, linearDomain } from "../axes";
import { Slider } from "../controls";
import type { MlpSurfaces } from "../data";
import { floats } from "../decode";
import { exact, number, px } from "../format";
import { useTheme, useWidth } from "../hooks";
import { Drawing } from "../marks";
import { Surface, type Input } from "../surface";
import { theme } from "../theme";
import { XyChart, type Series } from "../xychart";

const titles = { linear: "linear", relu: "ReLU", reglu: "ReGLU", geglu: "GeGLU" } as const;

// One color for each set of hidden units above zero, from Okabe and Ito's palette, which survives every color vision.
const regionColors = {
  light: ["#9aa0a6", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#f0e442", "#c9d3e0"],
  dark: ["#6f757c", "#d99500", "#4a9fd0", "#00916a", "#bd6d9a", "#cf5a00", "#cfc43a", "#8d9db3"],
} as const;

function bits(region: number): string {
  return [0, 1, 2].map((i) => ((region >> i) & 1 ? "1" : "0")).join("");
}

function shaded(hex: string, light: number): string {
  const factor = 0.68 + 0.42 * light;
  return `rgb(${[1, 3, 5].map((at) => Math.min(255, Math.round(parseInt(hex.slice(at, at + 2), 16) * factor))).join(" ")})`;
}

export function Surfaces({ picture: p }: { picture: MlpSurfaces }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [turn, set] = useState(0.6);
  const [slice, cut] = useState(Math.min(3, p.sliceAt.length - 1));
  useTheme();
  const n = p.x.length;
  const content = useMemo(() => {
    const all = floats(p.surfaces);
    const kinds = p.kinds.map((_, k) => all.subarray(k * n * n, (k + 1) * n * n));
    return { kinds, ranges: kinds.map((z) => extent(z) as [number, number]) };
  }, [p, n]);
  const palette = regionColors[theme()];
  const size = Math.min(Math.floor((width - 12) / 2), 420);
  const painters = useMemo(() => p.kinds.map((kind) => (a: number, b: number, light: number) =>
    shaded(kind === "linear" ? palette[7] : palette[regionAt(p, a, b)]!, light)), [p, palette]);
  const split = useMemo(() => (polygon: readonly Input[]) => splitByGates(p, polygon), [p]);
  const at = p.sliceAt[slice]!;
  const along = p.x.reduce((best, x, j) => (Math.abs(x - at) < Math.abs(p.x[best]! - at) ? j : best), 0);
  const slices = useMemo(() => p.kinds.map((_, k) => ({
    x: { label: "x[0]", domain: [p.x[0]!, p.x.at(-1)!] as const, ticks: [-2, -1, 0, 1, 2] },
    y: { label: "y[0]", domain: linearDomain(p.slices[k]!.flat()) },
    series: p.slices[k]!.map((values, s): Series => ({
      name: number(p.sliceAt[s]),
      tone: s === slice ? "slice chosen" : "slice",
      draw: "line",
      points: values.map((y, i) => ({ x: p.x[i]!, y, text: `${titles[p.kinds[k]!]}\nx = (${exact(p.x[i])}, ${number(p.sliceAt[s])})\ny[0] = ${exact(y)}` })),
    })),
  })), [p, slice]);
  const gated = useMemo(() => {
    const line = (kind: "reglu" | "geglu", tone: string, dashed: boolean): Series => {
      const values = p.slices[p.kinds.indexOf(kind)]![slice]!;
      return { name: titles[kind], tone, dashed, draw: "line", points: values.map((y, i) => ({ x: p.x[i]!, y, text: `${titles[kind]}\nx = (${exact(p.x[i])}, ${number(at)})\ny[0] = ${exact(y)}` })) };
    };
    const series = [line("geglu", "attention strong", false), line("reglu", "mlp", true)];
    return { x: { label: "x[0]", domain: [p.x[0]!, p.x.at(-1)!] as const, ticks: [-2, -1, 0, 1, 2] }, y: { label: "y[0]", domain: linearDomain(series.flatMap((one) => one.points.map((point) => point.y))) }, series };
  }, [p, slice]);
  const degrees = Math.round(((((turn * 180) / Math.PI) % 360) + 360) % 360);
  return (
    <div ref={box}>
      {width > 0 && (
        <>
          <div class="planes centered">
            {p.kinds.map((kind, k) => {
              const z = content.kinds[k]!;
              const [low, high] = content.ranges[k]!;
              return (
                <div class="plane" key={kind} style={{ width: px(size) }}>
                  <p class="panel-title">{titles[kind]}</p>
                  <Surface
                    label={`The ${titles[kind]} toy: first output over two inputs.`}
                    name="y[0]"
                    x={p.x}
                    height={z}
                    color={painters[k]!}
                    size={size}
                    low={low}
                    high={high}
                    turn={turn}
                    onTurn={set}
                    line={along}
                    {...(kind === "linear" ? {} : { split })}
                    describe={(i, j) => `${titles[kind]}\nx = (${number(p.x[i])}, ${number(p.x[j])})\ny[0] = ${exact(z[i * n + j])}${kind === "linear" ? "" : `\nhidden units above zero: ${bits(regionAt(p, p.x[i]!, p.x[j]!))}`}`}
                  />
                </div>
              );
            })}
          </div>
          <Slider label="Turn" min={0} max={359} value={degrees} onChange={(value) => set((value * Math.PI) / 180)} says={`${degrees}°`} />
          <Slider label="Slice" min={0} max={p.sliceAt.length - 1} value={slice} onChange={cut} says={`x[1] = ${number(at)}: the thick line, on the surfaces and in the charts`} />
          <div class="beside">
            <Regions picture={p} palette={palette} />
            <div class="slices">
              <p class="row-title">Slices: y[0] along x[0], with x[1] held at the value written at each line</p>
              <div class="slice-grid">
                {p.kinds.map((kind, k) => (
                  <div class="slice-chart" key={kind}>
                    <p class="panel-title">{titles[kind]}</p>
                    <XyChart label={`Slices of the ${titles[kind]} toy.`} {...slices[k]!} height={190} right={34} />
                  </div>
                ))}
              </div>
              <p class="row-title">ReGLU and GeGLU on this slice: folds, and the same rounded off</p>
              <XyChart label="The chosen slice of ReGLU and of GeGLU." {...gated} height={230} right={64} />
            </div>
          </div>
        </>
      )}
    </div>
  );
}

type Point = Input;

/** What hidden unit i gets from an input: above zero it is on. */
function gateOf(p: MlpSurfaces, unit: number, [a, b]: Point): number {
  return a * p.weights.gate[0]![unit]! + b * p.weights.gate[1]![unit]!;
}

function regionAt(p: MlpSurfaces, a: number, b: number): number {
  return [0, 1, 2].reduce((set, unit) => set | (gateOf(p, unit, [a, b]) > 0 ? 1 << unit : 0), 0);
}

/** The part of a polygon on one side of the line on which a unit's input is zero (Sutherland and Hodgman). */
function clipped(polygon: readonly Point[], side: (at: Point) => number): Point[] {
  return polygon.flatMap((to, i) => {
    const from = polygon.at(i - 1)!;
    const [u, v] = [side(from), side(to)];
    const cross: Point[] = (u > 0) === (v > 0) ? [] : [[from[0] + ((to[0] - from[0]) * u) / (u - v), from[1] + ((to[1] - from[1]) * u) / (u - v)]];
    return v > 0 ? [...cross, to] : cross;
  });
}

/** A polygon of inputs, cut at every border that crosses it. */
function splitByGates(p: MlpSurfaces, polygon: readonly Point[]): readonly (readonly Point[])[] {
  let parts: readonly (readonly Point[])[] = [polygon];
  for (const unit of [0, 1, 2]) {
    const at = (point: Point) => gateOf(p, unit, point);
    parts = parts.flatMap((part) => {
      const on = part.filter((point) => at(point) > 0).length;
      return on === 0 || on === part.length ? [part] : [clipped(part, at), clipped(part, (point) => -at(point))].filter((one) => one.length > 2);
    });
  }
  return parts;
}

/** Every set of hidden units that are on together somewhere in the square of inputs, with the exact polygon where they are. */
export function regionPolygons(p: MlpSurfaces): { region: number; polygon: Point[]; center: Point }[] {
  const [low, high] = [p.x[0]!, p.x.at(-1)!];
  return Array.from({ length: 8 }, (_, region) => region).flatMap((region) => {
    let polygon: Point[] = [[low, low], [high, low], [high, high], [low, high]];
    for (const unit of [0, 1, 2]) polygon = clipped(polygon, (at) => gateOf(p, unit, at) * ((region >> unit) & 1 ? 1 : -1));
    let [area, cx, cy] = [0, 0, 0];
    polygon.forEach(([x, y], i) => {
      const [u, v] = polygon.at(i - 1)!;
      const cross = u * y - x * v;
      [area, cx, cy] = [area + cross / 2, cx + ((u + x) * cross) / 6, cy + ((v + y) * cross) / 6];
    });
    return Math.abs(area) < 1e-9 ? [] : [{ region, polygon, center: [cx / area, cy / area] as const }];
  });
}

/** What holds in a region, as lines of its note. */
function formulasOf(p: MlpSurfaces, region: number): string {
  const piece = p.pieces.find(({ mask }) => mask === region);
  return piece === undefined ? "" : `\nReLU: y[0] = ${piece.relu}\nReGLU: y[0] = ${piece.reglu}`;
}

function Regions({ picture: p, palette }: { picture: MlpSurfaces; palette: readonly string[] }) {
  const regions = useMemo(() => regionPolygons(p), [p]);
  const [box, width] = useWidth<HTMLDivElement>();
  const side = Math.min(width - 24, 320);
  const x = axis({ label: "x[0]", domain: [p.x[0]!, p.x.at(-1)!], ticks: [-2, 0, 2] }, 22, 22 + side);
  const y = axis({ label: "x[1]", domain: [p.x[0]!, p.x.at(-1)!], ticks: [-2, 0, 2] }, 22 + side, 22);
  const marks = regions.map(({ region, center }) => ({ x: x(center[0]), y: y(center[1]), series: 0, text: `hidden units above zero: ${bits(region)}\n${["x·gate₀", "x·gate₁", "x·gate₂"].map((name, unit) => `${name} ${(region >> unit) & 1 ? ">" : "<"} 0`).join(", ")}${formulasOf(p, region)}` }));
  const find = (px: number, py: number) => {
    const share = (v: number, from: number, to: number) => p.x[0]! + ((v - from) / (to - from)) * (p.x.at(-1)! - p.x[0]!);
    const found = regions.findIndex(({ region }) => region === regionAt(p, share(px, 22, 22 + side), share(py, 22 + side, 22)));
    return px < 22 || px > 22 + side || py < 22 || py > 22 + side || found < 0 ? null : found;
  };
  return (
    <div class="regions" ref={box}>
      <p class="row-title">Regions: which hidden units are above zero</p>
      {width > 0 && (
        <Drawing label="Regions of the toy's inputs." width={side + 30} height={side + 62} marks={marks} find={find}>
          {regions.map(({ region, polygon }) => <polygon key={region} class="region" fill={palette[region]} points={polygon.map(([a, b]) => `${x(a).toFixed(2)},${y(b).toFixed(2)}`).join(" ")} />)}
          {regions.map(({ region, center }) => <text key={region} class="region-name" x={x(center[0])} y={y(center[1])} dy="0.34em" text-anchor="middle">{bits(region)}</text>)}
          <BottomAxis axis={x} y={22 + side} from={22} to={22 + side} />
          <text class="axis-label" x={22} y={12}>x[1] ↑</text>
        </Drawing>
      )}
      <table class="region-list">
        <thead><tr><th scope="col">Units above zero</th><th scope="col">y[0] with ReLU</th><th scope="col">with ReGLU</th></tr></thead>
        <tbody>
          {p.pieces.map((piece) => (
            <tr key={piece.mask}>
              <th scope="row"><i class="swatch" style={{ background: palette[piece.mask] }} /> {piece.on} ({piece.units})</th>
              <td>{piece.relu}</td>
              <td>{piece.reglu}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="remark">A digit for each hidden unit: 1 above zero, 0 cut off. The borders are the lines on which one unit's input is zero.</p>
    </div>
  );
}
