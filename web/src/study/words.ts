// What the numbers of a head say, in words.

import { exact, number, percent } from "../format";
import type { CircuitsData, HeadsData } from "./data";
import { roles } from "./data";

export const roleNames = ["the previous token", "earlier copies of the same token", "what followed the last time (induction)", "the first token"] as const;
export const roleTitles = ["previous token", "duplicate", "induction", "first token"] as const;

export const headName = (layer: number, head: number): string => `${layer}.${head}`;

/** Lines of what a head of one run looks at, writes and reads; the first names it. */
export function headWords(heads: HeadsData, run: number, index: number): string[] {
  const [layer, head] = heads.heads[index]!;
  const scores = heads.runs[run]!.scores[index]!;
  const lines = [`head ${headName(layer, head)}`];
  roles.forEach((_, role) => {
    if (heads.queries[role]! > 0) lines.push(`${percent(scores[role] ?? 0)} on ${roleNames[role]!}`);
  });
  const circuits = run === heads.runs.length - 1 ? heads.circuits : null;
  const own = circuits?.heads.find((one) => one.layer === layer && one.head === head);
  if (own === undefined) return lines;
  lines.push(copyingWords(own.copying));
  return [...lines, ...linkWords(circuits!, layer, head)];
}

export function copyingWords(copying: number): string {
  const says = copying > 0.3 ? "copies what it looks at" : copying < -0.3 ? "suppresses what it looks at" : "neither copies nor suppresses clearly";
  return `${says} (copying ${copying > 0 ? "+" : ""}${number(copying)})`;
}

const kinds = ["queries", "keys", "values"] as const;

/** The strongest way in which the head reads another, and in which another reads it. */
function linkWords(circuits: CircuitsData, layer: number, head: number): string[] {
  let reads = { score: 0, words: "" };
  let read = { score: 0, words: "" };
  for (const [fromLayer, fromHead, toLayer, toHead, ...scores] of circuits.pairs)
    scores.forEach((score, kind) => {
      if (toLayer === layer && toHead === head && score > reads.score) reads = { score, words: `its ${kinds[kind]!} read what ${headName(fromLayer, fromHead)} writes (${number(score)})` };
      if (fromLayer === layer && fromHead === head && score > read.score) read = { score, words: `the ${kinds[kind]!} of ${headName(toLayer, toHead)} read what it writes (${number(score)})` };
    });
  return [reads, read].flatMap(({ score, words }) => (score > 0 ? [words] : []));
}

export const pairWords = (pair: CircuitsData["pairs"][number], kind: number): string => `the ${kinds[kind]!} of ${headName(pair[2], pair[3])} read what ${headName(pair[0], pair[1])} writes: ${exact(pair[4 + kind])}`;
