// The document of pages for research, which src/app/picture/data/study.cpp writes into the pages of `vitrine circuits`, `intervene`,
// `compare` (--page) and `eval perplexity` (--out).

import type { CurvesData, HeadsData, LayersData, LossesData, PatchData, StudyHead } from "../results.js";

export interface StudyDocument extends StudyHead {
  /** Of this contract. It changes when a name or meaning changes. */
  format: 2;
  /** Tells this document from that of the walk-through, which has no kind. */
  kind: "study";
  /** Of the program: "0.1.0". */
  version: string;
  /** By id, as the vocabulary spells it: of the ids of the sections. */
  pieces: Record<string, string>;
  sections: Section[];
}

export type Section = HeadsData | PatchData | LossesData | LayersData | CurvesData;

/** The kinds of keys that heads are scored on, in the order of the scores. */
export const roles = ["previous", "duplicate", "induction", "first"] as const;

/** Token ids and their probabilities in turns: id, p, id, p, … most likely first. */
export type Likely = number[];
