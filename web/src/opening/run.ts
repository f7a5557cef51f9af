// What the opening draws of a run: for each of the last tokens, what the residual stream is worth at each depth (its length and the
// tokens that the model would find most likely if it ended there), and how much the tokens attend to each other.

import type { Attention, LogitLens } from "../data";
import { named, spelling, vitrine } from "../document";
import { largest, square } from "../pictures/attention-data";
import type { LensReading, TokenLogprob } from "../results";

/** So many tokens at most are drawn: the last ones. */
export const mostTokens = 32;

export interface Word {
  id: number;
  /** As the page spells it. */
  name: string;
  prob: number;
}

export function wordsOf(list: readonly TokenLogprob[]): Word[] {
  return list.map((one) => ({ id: one.token, name: named(one.piece, one.token), prob: one.prob }));
}

export interface Run {
  /** Position in the prompt of the first token that is drawn. */
  first: number;
  /** How many are drawn. */
  rows: number;
  layers: number;
  heads: number;
  /** Whether the model has a logit lens; otherwise only the last depth has words. */
  lens: boolean;
  /** Whether there are weights of attention. */
  attention: boolean;
  /** Of the residual stream of a token at a depth: 0 is the embedding, d is after layer d − 1. Null: not known. */
  length: (row: number, depth: number) => number | null;
  /** The most likely next tokens there, most likely first; the last depth is the prediction itself. */
  words: (row: number, depth: number) => readonly Word[];
  /** The weight with which a head attends from one row to another; of all heads, where `head` is null, their mean. */
  weight: (layer: number, head: number | null, target: number, source: number) => number;
}

/** Weights by layer, decoded when they are first asked for: [head, target, source] over the rows. */
function weights(layers: number, heads: number, rows: number, fill: (layer: number, head: number, out: Float32Array) => void): Run["weight"] {
  const known = new Map<number, Float32Array>();
  const of = (layer: number): Float32Array => {
    let all = known.get(layer);
    if (all === undefined) {
      all = new Float32Array((heads + 1) * rows * rows);
      const mean = all.subarray(heads * rows * rows);
      for (let head = 0; head < heads; ++head) {
        const one = all.subarray(head * rows * rows, (head + 1) * rows * rows);
        fill(layer, head, one);
        one.forEach((weight, i) => (mean[i]! += weight / heads));
      }
      known.set(layer, all);
    }
    return all;
  };
  return (layer, head, target, source) => (layer < layers ? of(layer)[((head ?? heads) * rows + target) * rows + source]! : 0);
}

/** Of the picture of attention; without it there are none. */
function weightsOf(patterns: Attention | null, layers: number, heads: number, rows: number, first: number): Run["weight"] {
  return weights(layers, patterns === null ? 0 : heads, rows, (layer, head, out) => {
    if (patterns === null) return;
    const cell = patterns.patterns === null ? null : square(patterns, layer, head);
    for (let target = 0; target < rows; ++target)
      if (cell !== null) for (let source = 0; source <= target; ++source) out[target * rows + source] = cell(first + target, first + source) ?? 0;
      else for (const one of largest(patterns, layer, head, first + target, rows)) if (one.source >= first) out[target * rows + one.source - first] = one.weight;
  });
}

/** The run of the page's document. */
export function runOfDocument(): Run | null {
  const { model, pictures, tokens } = vitrine;
  const next = pictures["next-tokens"];
  if (next?.available !== true || tokens.length === 0) return null;
  const lens = pictures["logit-lens"];
  const seen: LogitLens | null = lens?.available === true ? lens : null;
  const rows = Math.min(mostTokens, tokens.length);
  const first = tokens.length - rows;
  const at = (row: number): number => (seen === null ? -1 : seen.positions.indexOf(first + row));
  const attention = pictures.attention;
  const patterns: Attention | null = attention?.available === true && (attention.patterns !== null || attention.top !== null) ? attention : null;
  return {
    first, rows, layers: model.nLayers, heads: model.nHeads, lens: seen !== null, attention: patterns !== null,
    length: (row, depth) => seen?.lengths?.[at(row)]?.[depth] ?? null,
    words: (row, depth) => {
      const [ids, probs] = depth === model.nLayers
        ? [next.ids[first + row], next.probs[first + row]]
        : [seen?.ids[at(row)]?.[depth], seen?.probs[at(row)]?.[depth]];
      return (ids ?? []).map((id, i) => ({ id, name: spelling(id), prob: probs![i]! }));
    },
    weight: weightsOf(patterns, model.nLayers, model.nHeads, rows, first),
  };
}

/** The answer of the engine to `lens`. */
export interface LensAnswer {
  tokens: number[];
  layers: { name: string; positions: ({ position: number } & LensReading)[] }[];
}

/** The run of the changed model, beside that of the document; `attention`: its picture of attention. */
export function changedRun(plain: Run, lens: LensAnswer, attention: Attention | null): Run {
  const reading = (row: number, depth: number) => lens.layers[depth]?.positions.find((one) => one.position === plain.first + row);
  return {
    ...plain, lens: true,
    length: (row, depth) => reading(row, depth)?.length ?? null,
    words: (row, depth) => wordsOf(reading(row, depth)?.top ?? []),
    weight: attention === null || !plain.attention ? plain.weight : weightsOf(attention, plain.layers, plain.heads, plain.rows, plain.first),
  };
}
