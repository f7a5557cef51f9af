// What the numbers of a head say, in words.

import { exact, number, percent } from "../format";
import type { CircuitsData, Composition, HeadsData } from "../results";
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
  return [...lines, ...linkWords(circuits!, headName(layer, head))];
}

export function copyingWords(copying: number): string {
  const says = copying > 0.3 ? "copies what it looks at" : copying < -0.3 ? "suppresses what it looks at" : "neither copies nor suppresses clearly";
  return `${says} (copying ${copying > 0 ? "+" : ""}${number(copying)})`;
}

export const kinds = [{ key: "q", name: "queries" }, { key: "k", name: "keys" }, { key: "v", name: "values" }] as const;

/** The heads of a pair, which are in the order of the layers. */
export const writer = (pair: Composition): string => headName(pair.from_layer, pair.from_head);
export const reader = (pair: Composition): string => headName(pair.to_layer, pair.to_head);

/** The strongest way in which the head reads another, and in which another reads it. */
function linkWords(circuits: CircuitsData, own: string): string[] {
  let reads = { score: 0, words: "" };
  let read = { score: 0, words: "" };
  for (const pair of circuits.composition)
    for (const { key, name } of kinds) {
      const score = pair[key];
      if (reader(pair) === own && score > reads.score) reads = { score, words: `its ${name} read what ${writer(pair)} writes (${number(score)})` };
      if (writer(pair) === own && score > read.score) read = { score, words: `the ${name} of ${reader(pair)} read what it writes (${number(score)})` };
    }
  return [reads, read].flatMap(({ score, words }) => (score > 0 ? [words] : []));
}

export const pairWords = (pair: Composition, kind: (typeof kinds)[number]["key"]): string => `the ${kinds.find(({ key }) => key === kind)!.name} of ${reader(pair)} read what ${writer(pair)} writes: ${exact(pair[kind])}`;
