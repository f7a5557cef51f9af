// What the charts of a report show, computed from its tensors. A value that is not known is NaN here.

import { short } from "../format";
import type { MergeDocument, MergeTensor } from "./data";

const nothing: MergeDocument = { format: 1, kind: "merge", version: "", title: "", method: "", methodTitle: "", paper: "", paperAddress: null, inputs: [], base: null, recipe: "", notes: [], tensors: [] };
/** Empty on the page of another document, where no part that asks for it is drawn. */
export const merge = "kind" in window.vitrine && window.vitrine.kind === "merge" ? (window.vitrine as MergeDocument) : nothing;

export type Kind = "attention" | "mlp" | "rest";
export const kinds: readonly { value: Kind; name: string; tone: string }[] = [
  { value: "attention", name: "attention", tone: "attention" },
  { value: "mlp", name: "MLP", tone: "mlp" },
  { value: "rest", name: "others", tone: "plain" },
];

/** Which part of a layer a tensor belongs to, by the names that Hugging Face's files and GGUF give it. */
export function kindOf(name: string): Kind {
  if (/norm|(^|[._])ln[._\d]/i.test(name)) return "rest";
  if (/attn|attention|\b[qkvo]_proj\b|c_attn/i.test(name)) return "attention";
  if (/mlp|ffn|feed_?forward|expert|\bfc\d|(gate|up|down)_proj|linear\d/i.test(name)) return "mlp";
  return "rest";
}

export const valueOf = (value: number | null | undefined): number => value ?? NaN;
export const known = (value: number): boolean => !Number.isNaN(value);

/** "child-1" of "models/child-1": the last part of a path. */
function tail(input: string): string {
  const parts = input.split(/[/\\]/).filter((part) => part !== "");
  return parts.at(-1) ?? input;
}
const tails = merge.inputs.map(tail);
/** Letters of an input's name that a chart has room for. */
const room = 14;
/** The last part of each input's name, numbered where their beginnings are the same. */
export const inputNames: readonly string[] = new Set(tails.map((name) => short(name, room))).size === tails.length ? tails : tails.map((name, i) => `${i}: ${name}`);

/** The pairs of inputs in the order of `cosines`. */
export const pairs: readonly (readonly [number, number])[] = merge.inputs.flatMap((_, i) => merge.inputs.slice(i + 1).map((_, k) => [i, i + 1 + k] as const));
/** "good · bad", or the numbers of the inputs where their names are longer. */
export const pairNames: readonly string[] = pairs.map(([i, j]) => (inputNames.every((name) => name.length <= room / 2) ? `${inputNames[i]!} · ${inputNames[j]!}` : `${i} · ${j}`));
export const pairTitles: readonly string[] = pairs.map(([i, j]) => `${inputNames[i]!} and ${inputNames[j]!}`);

/** Layers that have tensors, in order. */
export const layers: readonly number[] = [...new Set(merge.tensors.filter((t) => t.layer >= 0).map((t) => t.layer))].sort((a, b) => a - b);
const byLayer = new Map<number, MergeTensor[]>(layers.map((layer) => [layer, []]));
for (const tensor of merge.tensors) byLayer.get(tensor.layer)?.push(tensor);
export const outside: readonly MergeTensor[] = merge.tensors.filter((t) => t.layer < 0);

export type Part = Kind | "all";
/** The tensors of a layer, or of one part of it. */
export const tensorsOf = (layer: number, part: Part): readonly MergeTensor[] => (byLayer.get(layer) ?? []).filter((t) => part === "all" || kindOf(t.name) === part);

/** The L2 norm of several tensors taken as one vector; those without a norm are left out. */
export function jointNorm(tensors: readonly MergeTensor[], norm: (t: MergeTensor) => number): number {
  const squares = tensors.map((t) => norm(t) ** 2).filter(known);
  return squares.length === 0 ? NaN : Math.sqrt(squares.reduce((a, b) => a + b, 0));
}

/** The cosine of inputs i and j over several tensors taken as one vector. */
export function jointCosine(tensors: readonly MergeTensor[], pair: number): number {
  const [i, j] = pairs[pair]!;
  let [dot, a, b] = [0, 0, 0];
  for (const t of tensors) {
    const [x, y, cosine] = [valueOf(t.norms[i]), valueOf(t.norms[j]), valueOf(t.cosines[pair])];
    if (!known(x) || !known(y)) continue;
    // The cosine with a vector of zeros is not known, and changes nothing.
    if (!known(cosine) && x > 0 && y > 0) continue;
    if (known(cosine)) dot += cosine * x * y;
    a += x * x;
    b += y * y;
  }
  return a > 0 && b > 0 ? Math.max(-1, Math.min(1, dot / Math.sqrt(a * b))) : NaN;
}

/** The mean of a share over the elements of several tensors. */
export function meanShare(tensors: readonly MergeTensor[], share: (t: MergeTensor) => number): number {
  let [sum, elements] = [0, 0];
  for (const t of tensors) {
    const value = share(t);
    if (!known(value)) continue;
    sum += value * t.elements;
    elements += t.elements;
  }
  return elements > 0 ? sum / elements : NaN;
}

export const kept = (t: MergeTensor, input: number): number => valueOf(t.kept[input]);
export const norm = (t: MergeTensor, input: number): number => valueOf(t.norms[input]);

/** The names of the recipe's parameters, in the order in which they first appear. */
export const parameterNames: readonly string[] = [...new Set(merge.tensors.flatMap((t) => Object.keys(t.parameters)))];
/** The value of a parameter for one input; the one for all where there is only one. */
export function parameter(t: MergeTensor, name: string, input: number): number {
  const values = t.parameters[name] ?? [];
  return valueOf(values.length === 1 ? values[0] : values[input]);
}
/** Inputs for which a parameter has a value of its own; none where it has one value for all. */
export function inputsOf(name: string): readonly number[] {
  if (merge.tensors.every((t) => new Set((t.parameters[name] ?? []).filter((v) => v !== null)).size < 2)) return [];
  return merge.inputs.flatMap((_, i) => (merge.tensors.some((t) => known(parameter(t, name, i))) ? [i] : []));
}
/** The first input that has a value. */
export const anyInput = (name: string): number => Math.max(0, merge.inputs.findIndex((_, i) => merge.tensors.some((t) => known(parameter(t, name, i)))));
