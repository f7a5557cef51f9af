// The MLP: its activation curves, and a toy of it from two numbers to two as surfaces, regions and slices.

import { extent, rollup } from "d3-array";
import { useMemo, useState } from "preact/hooks";
import { linearDomain } from "../axes";
import { Slider } from "../controls";
import type { ActivationCurves, MlpSurfaces } from "../data";
import { floats, stored } from "../decode";
import { vitrine } from "../document";
import { exact, number, percent, px } from "../format";
import { Heat } from "../heat";
import { useTheme, useWidth } from "../hooks";
import { Surface } from "../surface";
import { theme } from "../theme";
import { XyChart, type Series } from "../xychart";
import type { Entry } from "./entry";

function Curves({ picture: p }: { picture: ActivationCurves }) {
  const series = useMemo(() => {
    const used = vitrine.model.activation;
    const line = (key: string, name: string, values: readonly number[]): Series => ({
      name: key === used ? `${name} (here)` : name,
      tone: key === used ? "attention strong" : "plain",
      draw: "line",
      dashed: key !== used,
      points: values.map((y, i) => ({ x: p.x[i]!, y, text: `${name}\nof ${exact(p.x[i])} is ${exact(y)}` })),
    });
    const same = used === "gelu_exact" ? line("gelu_exact", "GELU", p.geluExact) : line("gelu_tanh", "GELU", p.geluTanh);
    return [line("relu", "ReLU", p.relu), same, line("silu", "SiLU", p.silu)];
  }, [p]);
  const active = useMemo(() => ({
    x: { label: "layer", domain: [-0.5, p.active.length - 0.5] as const, format: (v: number) => (Number.isInteger(v) ? String(v) : "") },
    y: { label: "share of hidden units above zero", domain: [0, 1] as const, format: (v: number) => percent(v).replace(".0", "") },
    series: [{
      name: "active", tone: "mlp", draw: "both" as const, named: false,
      points: p.active.map((y, x) => ({ x, y, text: `layer ${x}\n${percent(y)} of the hidden units are above zero` })),
    }],
  }), [p]);
  return (
    <>
      <XyChart
        label="Activation functions from −4 to 4."
        x={useMemo(() => ({ label: "input a", domain: [-4, 4] as const }), [])}
        y={useMemo(() => ({ label: "output", domain: [-0.5, 4] as const }), [])}
        series={series}
        height={270}
        right={100}
      />
      <XyChart label="Share of hidden units above zero, by layer." {...active} height={200} right={20} />
    </>
  );
}

export const activationCurves: Entry<"activation-curves"> = {
  draw: Curves,
  table: (p) => ({ columns: ["a", "ReLU", "GELU, tanh form", "GELU, exact", "SiLU"], rows: p.x.map((x, i) => [x, p.relu[i]!, p.geluTanh[i]!, p.geluExact[i]!, p.silu[i]!]) }),
};

const titles = { linear: "linear", relu: "ReLU", reglu: "ReGLU", geglu: "GeGLU" } as const;

// One colour for each set of hidden units above zero, from Okabe and Ito's palette, which survives every colour vision.
const regionColours = {
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

function Surfaces({ picture: p }: { picture: MlpSurfaces }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [turn, set] = useState(0.6);
  useTheme();
  const n = p.x.length;
  const content = useMemo(() => {
    const all = floats(p.surfaces);
    const region = stored(p.regions);
    const kinds = p.kinds.map((_, k) => all.subarray(k * n * n, (k + 1) * n * n));
    return { region, kinds, ranges: kinds.map((z) => extent(z) as [number, number]) };
  }, [p, n]);
  const palette = regionColours[theme()];
  const perRow = width > 860 ? 4 : 2;
  const size = Math.min(Math.floor((width - 12 * (perRow - 1)) / perRow), 300);
  const painters = useMemo(() => p.kinds.map((kind) => (i: number, j: number, light: number) =>
    shaded(kind === "linear" ? palette[7] : palette[content.region[i * n + j]! & 7]!, light)), [p, content, palette, n]);
  const slices = useMemo(() => p.kinds.map((_, k) => ({
    x: { label: "x[0]", domain: [p.x[0]!, p.x.at(-1)!] as const, ticks: [-2, -1, 0, 1, 2] },
    y: { label: "y[0]", domain: linearDomain(p.slices[k]!.flat()) },
    series: p.slices[k]!.map((values, s): Series => ({
      name: number(p.sliceAt[s]),
      tone: `slice-${Math.round((4 * s) / Math.max(1, p.sliceAt.length - 1))}`,
      draw: "line",
      points: values.map((y, i) => ({ x: p.x[i]!, y, text: `${titles[p.kinds[k]!]}\nx = (${exact(p.x[i])}, ${number(p.sliceAt[s])})\ny[0] = ${exact(y)}` })),
    })),
  })), [p]);
  const degrees = Math.round(((((turn * 180) / Math.PI) % 360) + 360) % 360);
  return (
    <div ref={box}>
      {width > 0 && (
        <>
          <div class="planes">
            {p.kinds.map((kind, k) => {
              const z = content.kinds[k]!;
              const [low, high] = content.ranges[k]!;
              return (
                <div class="plane" key={kind} style={{ width: px(size) }}>
                  <p class="panel-title">{titles[kind]}</p>
                  <Surface
                    label={`The ${titles[kind]} toy: first output over two inputs.`}
                    x={p.x}
                    height={z}
                    colour={painters[k]!}
                    size={size}
                    low={low}
                    high={high}
                    turn={turn}
                    onTurn={set}
                    describe={(i, j) => `${titles[kind]}\nx = (${number(p.x[i])}, ${number(p.x[j])})\ny[0] = ${exact(z[i * n + j])}${kind === "linear" ? "" : `\nhidden units above zero: ${bits(content.region[i * n + j]!)}`}`}
                  />
                </div>
              );
            })}
          </div>
          <Slider label="Turn" min={0} max={359} value={degrees} onChange={(value) => set((value * Math.PI) / 180)} says={`${degrees}°`} />
          <div class="beside">
            <Regions picture={p} region={content.region} palette={palette} />
            <div class="slices">
              <p class="row-title">Slices: y[0] along x[0], with x[1] held at the value written at each line</p>
              <div class="slice-grid">
                {p.kinds.map((kind, k) => (
                  <div class="slice" key={kind}>
                    <p class="panel-title">{titles[kind]}</p>
                    <XyChart label={`Slices of the ${titles[kind]} toy.`} {...slices[k]!} height={190} right={34} />
                  </div>
                ))}
              </div>
            </div>
          </div>
        </>
      )}
    </div>
  );
}

function Regions({ picture: p, region, palette }: { picture: MlpSurfaces; region: ArrayLike<number>; palette: readonly string[] }) {
  const n = p.x.length;
  // Rows of the map go from x[1] = 2 at the top to −2, columns along x[0].
  const at = useMemo(() => (row: number, col: number) => region[col * n + (n - 1 - row)]!, [region, n]);
  // The single points where several regions meet have no name.
  const present = [...rollup(Array.from(region), (list) => list.length, (r) => r)].filter(([, count]) => count > (n * n) / 500).map(([r]) => r).sort();
  const centre = (wanted: number) => {
    let [sx, sy, found] = [0, 0, 0];
    for (let i = 0; i < n; ++i)
      for (let j = 0; j < n; ++j)
        if (region[i * n + j] === wanted) [sx, sy, found] = [sx + i, sy + (n - 1 - j), found + 1];
    return [sx / found, sy / found] as const;
  };
  return (
    <div class="regions">
      <p class="row-title">Regions: which hidden units are above zero</p>
      <Heat
        label="Regions of the toy's inputs."
        rows={n}
        cols={n}
        value={at}
        scale="sequential"
        most={7}
        palette={palette}
        rowNames={[]}
        colNames={[]}
        cell={8}
        bottomTicks={[{ at: 0, text: number(p.x[0]) }, { at: (n - 1) / 2, text: number(p.x[(n - 1) / 2]) }, { at: n - 1, text: number(p.x.at(-1)) }]}
        bottomTitle="x[0]"
        over={present.map((r) => ({ at: centre(r), text: bits(r) }))}
        describe={(row, col) => `x = (${number(p.x[col])}, ${number(p.x[n - 1 - row])})\nhidden units above zero: ${bits(at(row, col))}`}
      />
      <p class="remark">A digit for each hidden unit: 1 above zero, 0 cut off. x[1] grows upwards.</p>
    </div>
  );
}

export const mlpSurfaces: Entry<"mlp-surfaces"> = {
  draw: Surfaces,
  wide: true,
  table: (p) => ({
    columns: ["kind", "x[1]", ...p.x.map((x) => `x[0] = ${number(x)}`)],
    rows: p.kinds.flatMap((kind, k) => p.sliceAt.map((at, s) => [titles[kind], at, ...p.slices[k]![s]!])),
    note: "The slices. The JSON has the whole surfaces and the weights.",
  }),
};
