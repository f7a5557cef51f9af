// The data of pages for research: what src/app/picture/data/study.cpp writes into the pages of `vitrine circuits`, `intervene`,
// `compare` (--page) and `eval perplexity` (--out). Numbers have 7 significant digits; null is what is not known.

/** The whole document. */
export interface StudyDocument {
  /** Of this contract. It changes when a name or meaning below changes. */
  format: 1;
  /** Tells this document from that of the walk-through, which has no kind. */
  kind: "study";
  /** Of the program: "0.1.0". */
  version: string;
  kicker: string;
  title: string;
  /** Sentences below the title; `code` between backquotes. */
  lines: string[];
  /** That made this page. */
  command: string;
  /** By id, as the vocabulary spells it: of the ids of the sections. */
  pieces: Record<string, string>;
  sections: Section[];
}

export type Section = HeadsData | PatchData | LossesData | LayersData | CurvesData;

/** The kinds of keys that heads are scored on, in the order of the scores. */
export const roles = ["previous", "duplicate", "induction", "first"] as const;

export interface HeadsData {
  picture: "heads";
  /** On which the heads were scored. */
  ids: number[];
  /** How a command is given them: "'a text'", "--repeat 50". */
  prompt: string;
  /** Tokens that come a second time, as the prompt's second half; 0: none. */
  repeated: number;
  /** By role: positions that have such keys. */
  queries: number[];
  /** [layer, head] */
  heads: [number, number][];
  /** At least one: models, or the checkpoints of a run by step. */
  runs: {
    name: string;
    /** What names this model in a command, with a space in front. */
    options: string;
    /** Of a checkpoint. */
    step: number | null;
    /** Mean of -ln p of the tokens, of those that are not repeated where some are. */
    loss: number | null;
    /** Of those that come again. */
    lossAgain: number | null;
    /** By head and role. */
    scores: (number | null)[][];
    /** Heads that do what is said stand between backquotes. */
    sentences: string[];
  }[];
  /** Of the last run. */
  circuits: CircuitsData | null;
}

export interface CircuitsData {
  heads: { layer: number; head: number; copying: number; qkRank: number; qk: number[]; ovRank: number; ov: number[] }[];
  /** [from layer, from head, to layer, to head, Q, K, V]: composition scores. Empty: none were computed, or too many. */
  pairs: [number, number, number, number, number, number, number][];
  /** The strongest, strongest first. */
  links: { score: number; words: string }[];
}

/** Token ids and their probabilities in turns: id, p, id, p, … likeliest first. */
export type Likely = number[];

export interface PatchData {
  picture: "patch";
  ids: number[];
  clean: number[];
  /** Empty: there is one prompt. */
  corrupt: number[];
  runsCorrupt: boolean;
  kind: "patch" | "ablate" | "path";
  /** "resid_pre", "z", …; "senders" */
  what: string;
  /** Layers. */
  rows: number[];
  columnAxis: "position" | "head" | "sender";
  columns: string[];
  /** Of each column, where columns are positions. */
  positions: number[];
  /** After which predictions and metric are taken. */
  position: number;
  metric: { name: string; tokens: number[] };
  metricBefore: number | null;
  metricClean: number | null;
  metricCorrupt: number | null;
  /** Of the run that is changed, as it is. */
  before: Likely;
  /** Of the clean prompt. */
  cleanLikely: Likely;
  /** What each cell's recipe begins with. */
  recipeHead: string;
  /** By row, then column; null: there is no such cell. */
  cells: ({ value: number | null; share: number | null; likely: Likely; recipe: string } | null)[];
}

export interface LossesData {
  picture: "losses";
  /** The words of all runs are the same. */
  paired: boolean;
  /** Between what two runs expect in the place of each word of the only text; may be empty. */
  kl: (number | null)[];
  /** One or two models. */
  runs: {
    name: string;
    facts: string[];
    pieces: Record<string, string>;
    /** leftOut: words behind these. */
    texts: { words: string[]; nll: (number | null)[]; likely: Likely[]; leftOut: number }[];
  }[];
}

export interface LayersData {
  picture: "layers";
  /** Of the residual stream: before the first layer (layer -1), and after each. */
  points: {
    name: string;
    layer: number;
    /** 1 - cosine, mean over the positions; the largest and where that is; |b - a| / |a|. */
    distance: number;
    largest: number;
    position: number;
    relative: number;
    /** Share of a query's attention that moved: mean, and the most with its head and query. */
    attention: number | null;
    attentionMost: number | null;
    head: number;
    query: number;
  }[];
}

/** Means of -ln p over ranges that double. */
export interface CurvesData {
  picture: "curves";
  title: string;
  axis: string;
  curves: { name: string; ranges: { from: number; to: number; tokens: number; value: number }[] }[];
}
