// Attention weights at the level of detail that the document holds.

import type { Attention } from "../data";
import { stored, triangle } from "../decode";
import { exact, percent } from "../format";

export interface Source {
  source: number;
  weight: number;
}

/** Side of the square that is drawn for a head: tokens, or bins of tokens. */
export function side(p: Attention): number {
  return p.level === "full" ? p.nTokens : p.tiles!.bins;
}

/** The drawn square of one head: the weight of each pair of tokens, or the largest of each pair of bins. */
export function square(p: Attention, layer: number, head: number): (target: number, source: number) => number | null {
  return triangle(p.level === "full" ? p.patterns![layer]! : p.tiles!.max[layer]!, head);
}

/** The same square, reduced to at most `most` rows by taking the largest of each block. */
export function reduced(p: Attention, layer: number, head: number, most: number): { n: number; value: (row: number, col: number) => number | null } {
  const full = side(p);
  const value = square(p, layer, head);
  const block = Math.ceil(full / most);
  if (block <= 1) return { n: full, value };
  const n = Math.ceil(full / block);
  const out = new Float32Array(n * n).fill(-1);
  for (let target = 0; target < full; ++target)
    for (let source = 0; source <= target; ++source) {
      const at = Math.floor(target / block) * n + Math.floor(source / block);
      out[at] = Math.max(out[at]!, value(target, source)!);
    }
  return { n, value: (row, col) => (out[row * n + col]! < 0 ? null : out[row * n + col]!) };
}

/** The largest weights of one row, largest first: at most k of them where the document holds only those. */
export function largest(p: Attention, layer: number, head: number, target: number, k: number): Source[] {
  if (p.level === "full") {
    const value = square(p, layer, head);
    const row = Array.from({ length: target + 1 }, (_, source) => ({ source, weight: value(target, source)! }));
    return row.sort((a, b) => b.weight - a.weight).slice(0, k);
  }
  const top = p.top!;
  const [sources, weights] = [top.sources[layer]!, top.weights[layer]!];
  const [rawSources, rawWeights] = [stored(sources), stored(weights)];
  const start = (head * p.nTokens + target) * top.k;
  return Array.from({ length: Math.min(k, top.k) }, (_, i) => ({
    source: sources.offset + sources.scale * rawSources[start + i]!,
    weight: weights.offset + weights.scale * rawWeights[start + i]!,
  })).filter((one) => one.weight > 0);
}

/** A window of `size` tokens of a long prompt: weights where they are among the row's largest, nothing elsewhere. */
export function zoomed(p: Attention, layer: number, head: number, fromTarget: number, fromSource: number, size: number): (row: number, col: number) => number | null {
  const out = new Float32Array(size * size).fill(-1);
  for (let row = 0; row < size && fromTarget + row < p.nTokens; ++row)
    for (const { source, weight } of largest(p, layer, head, fromTarget + row, p.top!.k)) {
      const col = source - fromSource;
      if (col >= 0 && col < size) out[row * size + col] = weight;
    }
  return (row, col) => (fromSource + col > fromTarget + row ? null : out[row * size + col]! < 0 ? 0 : out[row * size + col]!);
}

/** A weight of a token that is seen: one that steps of 1/65535 cannot hold is small, not nothing. */
export const weightText = (weight: number) => weight === 0 ? "below 0.00001" : exact(weight);
export const weightShare = (weight: number) => percent(weight === 0 ? 1e-6 : weight);
