// The model run backward: the gradient of the loss on its way through the layers and at any hook, and what a prediction owes to
// each token of the prompt.

import { useMemo, useState } from "preact/hooks";
import { logDomain } from "../axes";
import { Bars } from "../bars";
import { Choice } from "../controls";
import type { GradientHooks, GradientNorms, InputAttribution } from "../data";
import { floats } from "../decode";
import { place, spelling, tokenAt } from "../document";
import { exact, number, percent } from "../format";
import { Heat, ScaleKey } from "../heat";
import { Reproduce, type Reproduction } from "../recipe";
import { gradientAt } from "../recipes";
import { XyChart, type Series } from "../xychart";
import type { Entry } from "./entry";

function ticksOf(layers: number): number[] {
  const every = Math.ceil((layers + 1) / 16);
  return Array.from({ length: layers }, (_, i) => i).filter((i) => i % every === 0);
}

/** Whether there is anything to draw: numbers that overflow are null. */
function drawn(values: readonly (number | null)[] | null): values is readonly (number | null)[] {
  return values !== null && values.some((v) => v !== null);
}

function Norms({ picture: p }: { picture: GradientNorms }) {
  const [picked, pick] = useState<Reproduction | null>(null);
  const layers = p.norms.length - 1;
  const stream = useMemo(() => {
    const line = (name: string, tone: string, values: readonly (number | null)[], own: boolean): Series => ({
      name, tone, dashed: !own, draw: "both",
      points: values.map((y, x) => ({
        x, y: y ?? NaN,
        text: `${x < layers ? `entering layer ${x}` : "leaving the last layer"}, ${name}\nlength of the gradient ${exact(y)}\nclick or Enter: how to write ${own ? "it" : "that with norms"} to a file`,
        pick: () => pick(gradientAt(x < layers ? `blocks.${x}.hook_resid_pre` : `blocks.${layers - 1}.hook_resid_post`)),
      })),
    });
    const without = drawn(p.withoutNorms) ? p.withoutNorms : [];
    return {
      x: { label: "layer that the stream enters", domain: [0, layers] as const, ticks: [...ticksOf(layers), layers], format: (v: number) => (v < layers ? String(v) : "end") },
      y: { label: "length of the gradient, log", domain: logDomain([...p.norms, ...without].filter((v) => v !== null)), log: true },
      series: [line("with norms", "attention", p.norms, true), ...(without.length === 0 ? [] : [line("norms off", "mlp", without, false)])],
    };
  }, [p]);
  const parameters = useMemo(() => {
    const all = p.parameters;
    if (all === null) return null;
    const dots = (name: string, tone: string, values: readonly (number | null)[], shift: number): Series => ({
      name, tone, draw: "dots",
      points: values.map((y, x) => ({ x: x + shift, y: y ?? NaN, text: `layer ${x}, parameters of the ${name}\nlength of the gradient ${exact(y)}` })),
    });
    return {
      x: { label: "layer", domain: [-0.5, layers - 0.5] as const, ticks: ticksOf(layers), format: String },
      y: { label: "length of the gradient, log", domain: logDomain([...all.attention, ...all.mlp].filter((v) => v !== null)), log: true },
      series: [dots("attention", "attention", all.attention, -0.12), dots("MLP", "mlp", all.mlp, 0.12)],
    };
  }, [p]);
  return (
    <>
      <p class="row-title">At the residual stream</p>
      <XyChart label="Length of the gradient at the stream that enters each layer." {...stream} height={300} />
      {p.withoutNorms?.includes(null) === true && (
        <p class="remark">
          {drawn(p.withoutNorms)
            ? "Where the second curve is missing, the gradient without norms has left the range of 32-bit floats."
            : "With norms off, this model's numbers leave the range of 32-bit floats on the way forward already, and no gradient comes back."}
        </p>
      )}
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
      {parameters !== null && (
        <>
          <p class="row-title">Of the parameters of each layer</p>
          <XyChart label="Length of the gradient of each layer's parameters." {...parameters} height={280} />
          <p class="remark">
            Outside the layers: {p.parameters!.rest.map((one, i) => <span key={one.name}>{i > 0 && ", "}<code>{one.name}</code> {number(one.norm)}</span>)}. All together {number(p.parameters!.all)}.
          </p>
        </>
      )}
    </>
  );
}

export const gradientNorms: Entry<"gradient-norms"> = {
  made: ["run"],
  draw: Norms,
  table: (p) => ({
    columns: ["entering layer", "at the stream", "with norms off", "of attention's parameters", "of the MLP's parameters"],
    rows: [
      ...p.norms.map((norm, i) => [i < p.norms.length - 1 ? String(i) : "end", norm, p.withoutNorms?.[i] ?? null, p.parameters?.attention[i] ?? null, p.parameters?.mlp[i] ?? null]),
      ...(p.parameters?.rest ?? []).map((one) => [one.name, null, null, one.norm, null]),
    ],
    note: `Loss ${number(p.loss, 5)}${p.lossWithoutNorms === null ? "" : `, with norms off ${number(p.lossWithoutNorms, 5)}`}. Parameters outside the layers stand below them by name.`,
  }),
};

/** "attn.hook_q" of "blocks.*.attn.hook_q". */
const shortName = (hook: string) => hook.replace("blocks.*.", "");

function Hooks({ picture: p }: { picture: GradientHooks }) {
  const [index, choose] = useState(Math.max(0, p.hooks.findIndex((one) => one.hook === "blocks.*.hook_resid_pre")));
  const [picked, pick] = useState<Reproduction | null>(null);
  const { hook, norms } = p.hooks[index]!;
  const [rows = 0, cols = 0] = norms.shape;
  const content = useMemo(() => {
    const cells = floats(norms);
    return { value: (row: number, col: number) => cells[row * cols + col]!, most: Math.max(...cells.filter(Number.isFinite), 1e-30) };
  }, [norms]);
  const named = hook.includes("*");
  const full = (row: number) => hook.replace("*", String(row));
  const names = useMemo(() => Array.from({ length: cols }, (_, i) => tokenAt(p.first + i)), [p, cols]);
  return (
    <>
      <Choice label="Gradient at" options={p.hooks.map((one, i) => ({ value: i, name: shortName(one.hook) }))} value={index} onChange={(i) => { choose(i); pick(null); }} />
      <Heat
        label={`Length of the gradient at ${hook}, by layer and token.`}
        rows={rows}
        cols={cols}
        value={content.value}
        scale="sequential"
        most={content.most}
        rowNames={Array.from({ length: rows }, (_, row) => (named ? `layer ${row}` : shortName(hook).split(".")[0]!))}
        colNames={cols <= 64 ? names : []}
        {...(cols <= 64 ? {} : { bottomTicks: [0, cols - 1].map((at) => ({ at, text: String(p.first + at) })), bottomTitle: "position" })}
        cell={58}
        tall={24}
        write={(v) => number(v, 2)}
        picks="how to write it to a file"
        onPick={(row) => pick(gradientAt(full(row)))}
        describe={(row, col) => `${full(row)}\nat ${place(p.first + col)}\nlength of the gradient ${exact(content.value(row, col))}\nclick: how to write it to a file`}
      />
      <ScaleKey scale="sequential" label="length" low="0" high={number(content.most)} />
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
    </>
  );
}

export const gradientHooks: Entry<"gradient-hooks"> = {
  made: ["run"],
  draw: Hooks,
  wide: true,
  table: (p) => ({
    columns: ["hook", ...Array.from({ length: p.hooks[0]?.norms.shape[1] ?? 0 }, (_, i) => `${p.first + i}: ${tokenAt(p.first + i)}`)],
    rows: p.hooks.flatMap(({ hook, norms }) => {
      const [rows = 0, cols = 0] = norms.shape;
      const cells = floats(norms);
      return Array.from({ length: rows }, (_, row) => [hook.replace("*", String(row)), ...cells.subarray(row * cols, (row + 1) * cols)]);
    }),
  }),
};

const shownTokens = 40;

function Attribution({ picture: p }: { picture: InputAttribution }) {
  type Way = "integrated" | "product" | "saliency";
  const ways: { value: Way; name: string; of: readonly (number | null)[] }[] = [
    ...(p.integrated === null ? [] : [{ value: "integrated" as const, name: "integrated gradients", of: p.integrated.parts }]),
    { value: "product", name: "gradient × embedding", of: p.gradientInput },
    { value: "saliency", name: "saliency", of: p.saliency },
  ];
  const [way, choose] = useState<Way>(ways[0]!.value);
  const values = ways.find((one) => one.value === way)!.of;
  const bars = useMemo(() => {
    const size = (i: number) => Math.abs(values[i] ?? 0);
    const largest = values.map((_, i) => i).sort((a, b) => size(b) - size(a)).slice(0, shownTokens);
    return largest.sort((a, b) => a - b).map((i) => {
      const value = values[i] ?? 0;
      return {
        name: `${i} ${tokenAt(i)}`, value, tone: value < 0 ? "negative" : "attention",
        note: value > 0 && way !== "saliency" ? `+${number(value)}` : number(value),
        text: `${place(i)}\nsaliency ${exact(p.saliency[i])}\ngradient × embedding ${exact(p.gradientInput[i])}${p.integrated === null ? "" : `\nintegrated gradients ${exact(p.integrated.parts[i])}`}`,
      };
    });
  }, [p, values]);
  const target = spelling(p.target.id);
  const gap = p.integrated?.gap ?? 0;
  return (
    <>
      <Choice label="Measured by" options={ways.map(({ value, name }) => ({ value, name }))} value={way} onChange={choose} />
      <Bars label={`What ${target} owes to each token, by ${ways.find((one) => one.value === way)!.name}.`} bars={bars} most={Math.max(...bars.map((bar) => Math.abs(bar.value)), 1e-30)} />
      {bars.length < values.length && <p class="remark">The {bars.length} tokens with the largest values, of {values.length}.</p>}
      <p class="remark">
        The answer is {target} after {place(p.position)}, with probability {percent(Math.exp(p.target.logprob))} (ln p = {number(p.target.logprob, 4)}).
        {way === "integrated" && p.integrated !== null && <> From the baseline, where its ln p is {number(p.integrated.baselineLogprob, 4)}, the parts sum to {number(p.target.logprob - p.integrated.baselineLogprob + gap, 4)}; complete would be {number(p.target.logprob - p.integrated.baselineLogprob, 4)}, so {number(Math.abs(gap), 2)} is missed.</>}
        {way === "saliency" && <> Saliency has no sign: it says how sensitive the answer is to a token.</>}
      </p>
    </>
  );
}

export const inputAttribution: Entry<"input-attribution"> = {
  made: ["run"],
  draw: Attribution,
  table: (p) => ({
    columns: ["position", "token", "saliency", "gradient × embedding", ...(p.integrated === null ? [] : ["integrated gradients"])],
    rows: p.saliency.map((value, i) => [i, tokenAt(i), value, p.gradientInput[i]!, ...(p.integrated === null ? [] : [p.integrated.parts[i]!])]),
    ...(p.integrated === null ? {} : { note: `ln p is ${number(p.target.logprob, 6)} here and ${number(p.integrated.baselineLogprob, 6)} at the baseline; the parts miss the difference by ${number(Math.abs(p.integrated.gap), 3)}.` }),
  }),
};
