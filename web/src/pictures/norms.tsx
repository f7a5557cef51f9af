// Norms: what one does to a vector of two numbers, and what enters and leaves every norm of this run.

import { useMemo, useState } from "preact/hooks";
import { axis, logDomain } from "../axes";
import { Dumbbells } from "../bars";
import { Choice } from "../controls";
import type { FinalNorm, NormGeometry, NormStatistics } from "../data";
import { floats } from "../decode";
import { place, tokenAt, vitrine } from "../document";
import { exact, number, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing } from "../marks";
import { Reproduce, type Reproduction } from "../recipe";
import { normOff } from "../recipes";
import { XyChart, type Series } from "../xychart";
import type { Entry } from "./entry";

type Pair = readonly [number, number];

interface Stage {
  title: string;
  /** From where to where the vector goes at this stage. */
  from: Pair | null;
  to: Pair;
}

/** One plane with the vector, the way it came, and what the stage leaves fixed. */
function Plane({ stage, size, low, high, circle }: { stage: Stage; size: number; low: number; high: number; circle: boolean }) {
  const margin = 18;
  const x = axis({ label: "", domain: [low, high] }, margin, size - margin);
  const y = axis({ label: "", domain: [low, high] }, size - margin, margin);
  const at = (v: Pair) => [x(v[0]), y(v[1])] as const;
  const [tx, ty] = at(stage.to);
  const from = stage.from === null ? null : at(stage.from);
  const say = `(${number(stage.to[0], 4)}, ${number(stage.to[1], 4)})`;
  const leftward = stage.to[0] < 0 && tx > 64;  // away from the axis, where there is room
  const under = ty < 30 || (from !== null && from[0] < tx && from[1] < ty);  // the way comes from above
  const radius = x(Math.SQRT2) - x(0);
  const marks = [
    { x: tx, y: ty, series: 0, text: `${stage.title}\n(${exact(stage.to[0])}, ${exact(stage.to[1])})` },
    ...(from === null ? [] : [{ x: from[0], y: from[1], series: 0, text: `before\n(${exact(stage.from![0])}, ${exact(stage.from![1])})` }]),
  ];
  return (
    <div class="plane" style={{ width: px(size) }}>
      <p class="panel-title">{stage.title}</p>
      <Drawing label={`${stage.title}: ${say}.`} width={size} height={size} marks={marks} reach={400}>
        <line class="base" x1={x(low)} x2={x(high)} y1={y(0)} y2={y(0)} />
        <line class="base" x1={x(0)} x2={x(0)} y1={y(low)} y2={y(high)} />
        <line class="guide" x1={x(low)} y1={y(-low)} x2={x(-low)} y2={y(low)} />
        {circle && <circle class="guide" cx={x(0)} cy={y(0)} r={radius} />}
        {from !== null && <line class="way" x1={from[0]} y1={from[1]} x2={tx} y2={ty} />}
        {from !== null && <circle class="from" cx={from[0]} cy={from[1]} r={4} />}
        <line class="vector attention" x1={x(0)} y1={y(0)} x2={tx} y2={ty} />
        <circle class="to" cx={tx} cy={ty} r={5} />
        <text class="halo" x={leftward ? tx - 9 : stage.to[0] < 0 ? Math.max(tx - 22, 2) : tx + 9} y={under ? ty + 18 : ty - 9} text-anchor={leftward ? "end" : "start"}>{say}</text>
      </Drawing>
    </div>
  );
}

function Geometry({ picture: p }: { picture: NormGeometry }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const rows: { name: string; model: boolean; stages: Stage[] }[] = [
    {
      name: "LayerNorm",
      model: p.model === "layer_norm",
      stages: [
        { title: "x", from: null, to: p.x },
        { title: `x − mean, mean ${number(p.mean)}`, from: p.x, to: p.centered },
        { title: `÷ σ, σ ${number(p.sigma)}`, from: p.centered, to: p.scaled },
        { title: "× weight + bias", from: p.scaled, to: p.layerNorm },
      ],
    },
    {
      name: "RMSNorm",
      model: p.model === "rms_norm",
      stages: [
        { title: "x", from: null, to: p.x },
        { title: `÷ rms, rms ${number(p.rms)}`, from: p.x, to: p.rmsScaled },
        { title: "× weight", from: p.rmsScaled, to: p.rmsNorm },
      ],
    },
  ];
  rows.sort((a, b) => Number(b.model) - Number(a.model));
  const all = [...p.x, ...p.centered, ...p.layerNorm, ...p.rmsNorm];
  const [low, high] = [Math.floor(Math.min(...all)) - 0.5, Math.ceil(Math.max(...all)) + 0.5];
  const perRow = width > 600 ? 4 : 2;
  const size = Math.floor((width - (perRow - 1) * 12) / perRow);
  return (
    <div ref={box}>
      {width > 0 && rows.map((row) => (
        <div key={row.name}>
          <p class="row-title">{row.name}{row.model && <em> · in this model</em>}</p>
          <div class="planes">{row.stages.map((stage, i) => <Plane key={i} stage={stage} size={size} low={low} high={high} circle={i >= (row.name === "RMSNorm" ? 1 : 2)} />)}</div>
        </div>
      ))}
      <p class="remark">
        weight ({p.weight.map((v) => number(v)).join(", ")}), bias ({p.bias.map((v) => number(v)).join(", ")}). The dashed diagonal holds all vectors of mean 0, the dashed
        circle all of root mean square 1. In three numbers: ({p.three.x.map((v) => number(v)).join(", ")}) has mean {number(p.three.mean)} and variance {number(p.three.variance, 4)}, and
        becomes ({p.three.scaled.map((v) => number(v, 5)).join(", ")}).
      </p>
    </div>
  );
}

export const layerNorm: Entry<"layer-norm"> = {
  made: ["toy"],
  draw: Geometry,
  wide: true,
  table: (p) => ({
    columns: ["", "first", "second"],
    rows: [["x", ...p.x], ["x − mean", ...p.centered], ["÷ σ", ...p.scaled], ["LayerNorm, with weight and bias", ...p.layerNorm], ["x ÷ rms", ...p.rmsScaled], ["RMSNorm, with weight", ...p.rmsNorm], ["weight", ...p.weight], ["bias", ...p.bias]],
    note: `mean ${exact(p.mean)}, σ ${exact(p.sigma)}, rms ${exact(p.rms)}`,
  }),
};

type Statistic = "rms" | "sigma" | "mean" | "weight";

/** What the norms of one name do, in words. */
function kindTitle(kind: string): string {
  const part = kind.startsWith("ln1") ? "attention" : kind.startsWith("ln2") ? "the MLP" : null;
  if (kind === "ln_final") return "final norm";
  if (part === null) return kind;
  if (kind.endsWith("_post")) return `on what ${part} adds (${kind})`;
  return `${vitrine.model.normPlace === "after" ? "behind" : "in front of"} ${part} (${kind})`;
}

/** Norms of one kind, with their layers; the final norm has none. */
function kindsOf(norms: readonly string[]): { kind: string; at: { index: number; layer: number }[] }[] {
  const kinds = new Map<string, { index: number; layer: number }[]>();
  norms.forEach((name, index) => {
    const [, layer = "", kind = name] = /^blocks\.(\d+)\.(.*)$/.exec(name) ?? [];
    kinds.set(kind, [...(kinds.get(kind) ?? []), { index, layer: layer === "" ? -1 : Number(layer) }]);
  });
  return [...kinds].map(([kind, at]) => ({ kind, at }));
}

function Statistics({ picture: p }: { picture: NormStatistics }) {
  const [what, choose] = useState<Statistic>("rms");
  const [picked, pick] = useState<Reproduction | null>(null);
  const charts = useMemo(() => {
    const lines: Record<Statistic, readonly { name: string; tone: string; values: readonly number[]; dashed: boolean }[]> = {
      rms: [{ name: "enters", tone: "mlp", values: p.inRms, dashed: true }, { name: "leaves", tone: "attention", values: p.outRms, dashed: false }],
      sigma: [{ name: "enters", tone: "mlp", values: p.inSigma, dashed: true }, { name: "leaves", tone: "attention", values: p.outSigma, dashed: false }],
      mean: [{ name: "enters", tone: "mlp", values: p.inMean, dashed: true }, { name: "leaves", tone: "attention", values: p.outMean, dashed: false }],
      weight: [{ name: "largest", tone: "plain", values: p.weightMax, dashed: true }, { name: "mean", tone: "attention", values: p.weightMean, dashed: false }, { name: "smallest", tone: "plain", values: p.weightMin, dashed: true }],
    };
    const all = lines[what].flatMap((line) => line.values);
    const log = what === "rms" || what === "sigma";
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const pad = (high - low || 1) * 0.08;
    const titles = { rms: "root mean square, log", sigma: "standard deviation, log", mean: "mean", weight: "weight of the norm" };
    const y = { label: titles[what], domain: log ? logDomain(all) : ([low - pad, high + pad] as const), log };
    const layers = vitrine.model.nLayers;
    const ticks = Array.from({ length: layers }, (_, i) => i).filter((i) => i % Math.ceil(layers / 10) === 0);
    const kinds = kindsOf(p.norms);
    return {
      panels: kinds.filter(({ at }) => at[0]!.layer >= 0).map(({ kind, at }) => ({
        kind,
        x: { label: "layer", domain: [0, Math.max(1, layers - 1)] as const, ticks, format: String },
        y,
        series: lines[what].map(({ name, tone, values, dashed }): Series => ({
          name, tone, dashed, draw: "both",
          points: at.map(({ index, layer }) => ({ x: layer, y: values[index]!, text: `${p.norms[index]}\n${name} ${exact(values[index])}\nclick or Enter: how to switch it off`, pick: () => pick(normOff(p.norms[index]!)) })),
        })),
      })),
      alone: kinds.filter(({ at }) => at[0]!.layer < 0).map(({ kind, at }) => `${kindTitle(kind)}: ${lines[what].map(({ name, values }) => `${name} ${number(values[at[0]!.index])}`).join(", ")}`),
    };
  }, [p, what]);
  return (
    <>
      <Choice
        label="Statistic"
        options={[{ value: "rms", name: "RMS" }, { value: "sigma", name: "σ" }, { value: "mean", name: "mean" }, { value: "weight", name: "weights" }]}
        value={what}
        onChange={choose}
      />
      <div class="slice-grid">
        {charts.panels.map(({ kind, ...chart }) => (
          <div key={kind}>
            <p class="panel-title">{kindTitle(kind)}</p>
            <XyChart label={`Statistics entering and leaving each norm ${kindTitle(kind)}.`} {...chart} height={210} right={60} />
          </div>
        ))}
      </div>
      {charts.alone.map((words) => <p class="remark" key={words}>The {words}.</p>)}
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
    </>
  );
}

export const normStatistics: Entry<"norm-statistics"> = {
  made: ["run"],
  draw: Statistics,
  table: (p) => {
    const tokens = p.perToken === null ? null : floats(p.perToken);
    const n = p.perToken?.shape[2] ?? 0;
    return {
      columns: ["norm", "mean in", "σ in", "RMS in", "mean out", "σ out", "RMS out", "weight: mean", "smallest", "largest", ...Array.from({ length: n }, (_, i) => `RMS in, ${i}: ${tokenAt(i)}`)],
      rows: p.norms.map((name, i) => [name, p.inMean[i]!, p.inSigma[i]!, p.inRms[i]!, p.outMean[i]!, p.outSigma[i]!, p.outRms[i]!, p.weightMean[i]!, p.weightMin[i]!, p.weightMax[i]!,
        ...(tokens === null ? [] : Array.from(tokens.subarray(i * 2 * n, i * 2 * n + n)))]),
    };
  },
};

const fewTokens = 40;

function Final({ picture: p }: { picture: FinalNorm }) {
  const domain = logDomain([...p.before, ...p.after]);
  if (p.before.length <= fewTokens)
    return (
      <Dumbbells
        label="Root mean square of each token before and after the final norm."
        axis={{ label: "RMS, log", domain, log: true }}
        rows={p.before.map((before, i) => ({
          name: tokenAt(i),
          from: { value: before, name: "before", text: `${place(i)}\nRMS before the final norm ${exact(before)}` },
          to: { value: p.after[i]!, name: "after", text: `${place(i)}\nRMS after the final norm ${exact(p.after[i])}` },
        }))}
      />
    );
  const line = (name: string, tone: string, values: readonly number[], dashed: boolean): Series => ({
    name, tone, dashed, draw: "line", points: values.map((y, x) => ({ x, y, text: `${place(x)}\nRMS ${name} ${exact(y)}` })),
  });
  return (
    <XyChart
      label="Root mean square of each token before and after the final norm."
      x={{ label: "position", domain: [0, p.before.length - 1] }}
      y={{ label: "RMS, log", domain, log: true }}
      series={[line("before", "mlp", p.before, true), line("after", "attention", p.after, false)]}
    />
  );
}

export const finalNorm: Entry<"final-norm"> = {
  made: ["run"],
  draw: Final,
  table: (p) => ({ columns: ["position", "token", "RMS before", "RMS after"], rows: p.before.map((before, i) => [i, tokenAt(i), before, p.after[i]!]) }),
};
