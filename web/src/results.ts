// Written by the test ResultTypes.OfThePagesAreThoseOfTheCode from the lists of members (VITRINE_MEMBERS) in src.

export interface TokenLogprob { token: number; piece: string | null; logprob: number; prob: number; }

export interface Prediction { position: number; top: TokenLogprob[]; }

export interface Composition { from_layer: number; from_head: number; to_layer: number; to_head: number; q: number; k: number; v: number; }

export interface StreamDifference { point: string; layer: number | null; cosine: number; distance: number; worst_position: number; relative: number; attention_mean: number; attention_most: number; attention_head: number; attention_query: number; }

export interface MetricValues { name: string; tokens: number[]; pieces: (string | null)[]; position: number | null; clean: number | null; corrupt: number | null; before: number | null; after: number | null; after_normalized: number | null; }

export interface LensReading { top: TokenLogprob[]; kl: number; rank: number; logprob: number; length: number; }

export interface UnitWrites { layer: number; position: number; d_ff: number; units: { unit: number; value: number; promoted: { token: number; piece: string | null; logit: number; }[]; suppressed: { token: number; piece: string | null; logit: number; }[]; }[]; }

export interface OneStep { target: { token: number; piece: string | null; logprob_before: number; logprob_after: number; }[]; rate: number; loss_before: number; loss_after: number; gradient_norm: number; layers: { name: string; gradient_norm: number; update_ratio: number; }[]; before: TokenLogprob[]; after: TokenLogprob[]; losses: number[]; followed: { token: number; piece: string | null; logprobs: number[]; }[]; }

export interface CircuitsData { heads: { layer: number; head: number; copying: number; qk_rank: number; ov_rank: number; }[]; composition: Composition[]; links: { score: number; words: string; }[]; }

export interface HeadsData { picture: "heads"; ids: number[]; prompt: string; repeated: number; queries: [number, number, number, number]; heads: [number, number][]; runs: { name: string; options: string; step: number | null; loss: number | null; loss_again: number | null; scores: [number | null, number | null, number | null, number | null][]; sentences: string[]; }[]; circuits: CircuitsData | null; }

export interface PatchData { picture: "patch"; clean: number[]; corrupt: number[]; runs_corrupt: boolean; kind: string; what: string; rows: number[]; column_axis: string; columns: string[]; positions: number[]; position: number; metric: MetricValues; before: number[]; clean_likely: number[]; recipe_head: string; cells: ({ value: number; share: number | null; likely: number[]; recipe: string; } | null)[]; }

export interface LossesData { picture: "losses"; paired: boolean; kl: (number | null)[]; runs: { name: string; facts: string[]; texts: { words: string[]; nll: (number | null)[]; likely: number[][]; left_out: number; }[]; pieces: Record<string, string>; }[]; }

export interface LayersData { picture: "layers"; points: StreamDifference[]; }

export interface CurvesData { picture: "curves"; title: string; axis: string; curves: { name: string; ranges: { from: number; to: number; tokens: number; value: number; }[]; }[]; }

export interface StudyHead { kicker: string; title: string; lines: string[]; command: string; }
