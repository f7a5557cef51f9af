// What each sub-layer adds to the residual stream, and how large the stream is with and without the norms.

import { useMemo, useState } from "preact/hooks";
import { logDomain } from "../axes";
import { Choice } from "../controls";
import type { ResidualScale, UpdateScale } from "../data";
import { place, tokenAt, vitrine } from "../document";
import { count, exact, number } from "../format";
import { Reproduce, type Reproduction } from "../recipe";
import { normsOff, sublayerOff } from "../recipes";
import { XyChart, type Series } from "../xychart";
import type { Entry } from "./entry";

function Updates({ picture: p }: { picture: UpdateScale }) {
  const [picked, pick] = useState<Reproduction | null>(null);
  const chart = useMemo(() => {
    const layers = Math.max(...p.sublayers.map((s) => s.layer));
    const dots = (part: "attention" | "mlp", name: string): Series => ({
      name,
      tone: part,
      draw: "dots",
      points: p.sublayers.filter((s) => s.part === part).map((s) => ({
        x: s.layer + (part === "attention" ? -0.12 : 0.12),
        y: s.scale,
        text: `layer ${s.layer}, ${name}\nupdate scale ${exact(s.scale)}\nσ of what it adds ${exact(s.sigmaUpdate)}\nσ of the stream ${exact(s.sigmaSkip)}\nclick or Enter: how to switch it off`,
        pick: () => pick(sublayerOff(s.layer, part)),
      })),
    });
    // The single tokens stand behind the dots of all of them, where there are few enough to be seen.
    const faint = (part: "attention" | "mlp", name: string): Series => ({
      name: `${name}, by token`,
      tone: `${part} faint`,
      draw: "dots",
      named: false,
      points: p.perToken === null || p.perToken.length * (p.perToken[0]?.length ?? 0) > 4000 ? [] : p.sublayers.flatMap((s, i) =>
        s.part !== part ? [] : p.perToken![i]!.map((y, position) => ({
          x: s.layer + (part === "attention" ? -0.12 : 0.12),
          y,
          text: `layer ${s.layer}, ${name}\nat ${place(position)}\nupdate scale ${exact(y)}\nclick or Enter: how to switch it off there`,
          pick: () => pick(sublayerOff(s.layer, part, { position })),
        }))),
    });
    const ticks = Array.from({ length: layers + 1 }, (_, i) => i).filter((i) => i % Math.ceil((layers + 1) / 20) === 0);
    return {
      x: { label: "layer", domain: [-0.5, layers + 0.5] as const, ticks, format: String },
      y: { label: "update scale", domain: [0, 1] as const },
      series: [faint("attention", "attention"), faint("mlp", "MLP"), dots("attention", "attention"), dots("mlp", "MLP")],
    };
  }, [p]);
  return (
    <>
      <XyChart label="Update scale of the attention and the MLP of each layer." {...chart} height={300} />
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
    </>
  );
}

export const updateScale: Entry<"update-scale"> = {
  made: ["run"],
  draw: Updates,
  table: (p) => ({
    columns: ["layer", "part", "update scale", "σ of the stream", "σ of the update", ...(p.perToken?.[0] ?? []).map((_, i) => `${i}: ${tokenAt(i)}`)],
    rows: p.sublayers.map((s, i) => [s.layer, s.part, s.scale, s.sigmaSkip, s.sigmaUpdate, ...(p.perToken?.[i] ?? [])]),
  }),
};

/** "4 attention" in words. */
function sublayer(label: string): string {
  const [layer = "", part = ""] = label.split(" ");
  return part === "" ? "the end" : `the ${part === "mlp" ? "MLP" : part} of layer ${layer}`;
}

/** How many of the first layers can do without norms before a norm after them meets numbers whose squares overflow. */
function survivors(p: ResidualScale): number | "all" {
  const limit = 1e15;
  const first = p.withoutNorms.findIndex((v) => v === null || v > limit);
  if (first < 0) return "all";
  const layer = Number.parseInt(p.labels[first]!, 10);  // none at "final"
  return Math.max(0, (Number.isNaN(layer) ? vitrine.model.nLayers : layer) - 1);
}

function Scales({ picture: p }: { picture: ResidualScale }) {
  const [what, choose] = useState<"run" | "toy">("run");
  const [picked, pick] = useState<Reproduction | null>(null);
  const run = useMemo(() => {
    const all = [...p.withNorms, ...p.withoutNorms.filter((v) => v !== null)];
    const line = (name: string, tone: string, values: readonly (number | null)[], dashed: boolean): Series => ({
      name, tone, dashed, draw: "both",
      points: values.map((y, x) => ({ x, y: y ?? NaN, text: `before ${sublayer(p.labels[x]!)}, ${name}\nσ of the stream ${exact(y)}${dashed ? "\nclick or Enter: how to run without norms" : ""}`, ...(dashed ? { pick: () => pick(normsOff(survivors(p))) } : {}) })),
    });
    const layerOf = (v: number) => (p.labels[v] ?? "").replace(" attention", "");
    const wanted = Math.ceil(p.labels.length / 2 / 12);
    return {
      x: {
        label: "layer (attention, then MLP)",
        domain: [0, p.labels.length - 1] as const,
        ticks: p.labels.flatMap((label, i) => (label.endsWith("attention") && Number.parseInt(label, 10) % wanted === 0 ? [i] : [])),
        format: layerOf,
      },
      y: { label: "σ of the residual stream, log", domain: logDomain(all), log: true },
      series: [line("with norms", "attention", p.withNorms, false), line("norms off", "mlp", p.withoutNorms, true)],
    };
  }, [p]);
  const toy = useMemo(() => {
    const line = (name: string, tone: string, values: readonly number[], dashed: boolean): Series => ({
      name, tone, dashed, draw: "both", points: values.map((y, x) => ({ x, y, text: `after ${x} steps of ${name}\n${count(y)}` })),
    });
    return {
      x: { label: "step", domain: [0, p.toy.with.length - 1] as const, ticks: [0, 3, 6, 9, 12, 15, 18], format: String },
      y: { label: "scale, log", domain: logDomain([...p.toy.with, ...p.toy.without]), log: true },
      series: [line("x + 2", "attention", p.toy.with, false), line("x + 2x", "mlp", p.toy.without, true)],
    };
  }, [p]);
  const lost = p.withoutNorms.findIndex((v) => v === null);
  return (
    <>
      <Choice label="Show" options={[{ value: "run", name: "this run" }, { value: "toy", name: "a toy: 18 steps" }]} value={what} onChange={choose} />
      {what === "run"
        ? <XyChart label="Scale of the residual stream before each sub-layer, with and without norms." {...run} height={300} />
        : <XyChart label="A scale that is multiplied by 3 against one that grows by 2, in 18 steps." {...toy} height={300} />}
      {what === "run" && lost >= 0 && <p class="remark">Without norms the numbers leave the range of 32-bit floats before {sublayer(p.labels[lost]!)}.</p>}
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
      {what === "toy" && <p class="remark">After 18 steps: {count(p.toy.without.at(-1)!)} against {number(p.toy.with.at(-1)!)}.</p>}
    </>
  );
}

export const residualScale: Entry<"residual-scale"> = {
  made: ["run", "toy"],
  draw: Scales,
  table: (p) => ({ columns: ["before", "σ with norms", "σ with norms off"], rows: p.labels.map((label, i) => [label, p.withNorms[i]!, p.withoutNorms[i] ?? null]) }),
};
