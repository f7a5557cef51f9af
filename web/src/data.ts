// The data of a page: what `vitrine explain` writes into it, and what `vitrine picture NAME --json` prints. This file is the
// contract between src/app/picture (which computes and writes it) and the page (which shows it): every name, unit, axis and order.
//
// How the page gets it. The HTML holds, in this order:
//   <style>page.css</style>  <div id="vitrine">…</div>
//   <script id="vitrine-data" type="application/json">{…}</script>
//   <script>window.vitrine = JSON.parse(document.getElementById("vitrine-data").textContent)</script>
//   <script>page.js</script>            a classic script (IIFE), run after the data is there; it renders into #vitrine
// Nothing is fetched; the page opens from the file system. Inside #vitrine there is a <noscript> with the prompt and the
// prediction as plain text, which rendering replaces.
//
// Conventions
//   numbers     JSON numbers are rounded to 7 significant digits. What is NaN or infinite is null: wherever a comment says
//               "may overflow" the type is (number | null)[]. Angles are radians, wavelengths tokens, logs natural.
//   indices     layers, heads, positions, components count from 0. A "token" in a shape is a position of the prompt.
//   σ           standard deviations are the population's (divided by n), over the stated axes.
//   text        text, title, caption, alt, reason and notes are plain text in Unicode (no HTML, no Markdown except `code`).
//   pieces      shown as the vocabulary spells them ("▁want", "Ġwant", "<0x0A>"); any string may come: quotes, markup, emoji.
//   ids         wherever a picture lists token ids, `pieces` of the document has the spelling of each.
//   colors     one sequential and one diverging scale everywhere; SEQUENTIAL and DIVERGING below, as the SVG files use them.
//   sizes       12 tokens, 18 layers × 8 heads: below 5 MB in all; 2,000 tokens: at most 30 MB. Level of detail is the writer's
//               business: a picture says which `level` it has, and absent levels are null.

/** The whole document. */
export interface Vitrine {
  /** Of this contract. It changes when a name or meaning below changes. */
  format: 2;
  /** Of the program: "0.1.0". */
  version: string;
  model: Model;
  prompt: Prompt;
  /** One per position of the prompt, in order. */
  tokens: Token[];
  /** Spelling of every token id that any picture mentions, by the id as a decimal string. Empty without a tokenizer. */
  pieces: Record<string, string>;
  /** The walk-through from the string to the prediction, in reading order. One step alone for `vitrine picture`: []. */
  steps: Step[];
  /** Of the book; a document without steps has none. */
  chapter?: { name: string; number: number; title: string; summary: string };
  /** Every picture name is present in a page; `vitrine picture` has the one it was asked for. */
  pictures: Partial<Pictures> & Record<PictureName, Head<string> | Absent<string> | undefined>;
}

export interface Model {
  /** As it was given to --model; "" is the shipped model. */
  name: string;
  /** As it was given to --adapter; "" is none. */
  adapter: string;
  /** "gpt2", "gemma", "gemma2", "llama", "mistral", "qwen2", "classic_decoder". */
  family: string;
  /** The same for people: "GPT-2", "Gemma 2", … */
  familyTitle: string;
  dModel: number;
  nLayers: number;
  nHeads: number;
  nKvHeads: number;
  headDim: number;
  dFf: number;
  vocabSize: number;
  /** 0: no limit (sinusoidal positions). */
  contextLength: number;
  /** The embedding is also the output projection. */
  tied: boolean;
  parameters: number;
  /** Numbers of the embedding table alone: vocabSize * dModel. */
  embeddingParameters: number;
  norm: "rms_norm" | "layer_norm";
  /** before: norm(x) enters the sub-layer; after: norm(x + sub-layer); both: one before and one on the sub-layer's output. */
  normPlace: "before" | "after" | "both" | "written";
  positions: "rotary" | "learned" | "sinusoidal" | "none";
  heads: "MHA" | "GQA" | "MQA";
  mlp: "gated" | "plain";
  /** Of the MLP: "relu", "gelu_tanh", "gelu_exact", "silu". */
  activation: string;
  /** "GeGLU", "SwiGLU", "ReGLU", "GELU", "ReLU", … : mlp and activation in one word. */
  mlpTitle: string;
  /** Factor on the embeddings, or null: sqrt(dModel) for Gemma. */
  embeddingScale: number | null;
  /** 0: none. */
  attentionSoftcap: number;
  finalSoftcap: number;
  /** Of each layer; 0: the layer sees the whole context. */
  windows: number[];
  /** Element types of the stored matrices: ["bf16"], ["q4_0", "q8_0"]. */
  dtypes: string[];
}

export interface Prompt {
  /** null if ids were given with --tokens. */
  text: string | null;
  ids: number[];
  /** The text was encoded with BOS and EOS where the tokenizer adds them; false with --no-special. */
  special: boolean;
  /** The tail of a command line that runs this prompt and model again, quoted for a POSIX shell:
   *  `"'I want to move' --model gemma-2b"`. Put `vitrine predict ` or `vitrine trace --out values.safetensors ` in front of it;
   *  behind it no option may stand, for it ends in `-- '- said'` where the text begins with a dash. */
  shell: string;
}

export interface Token {
  id: number;
  /** null without a tokenizer. */
  piece: string | null;
  /** Bytes [begin, end) of prompt.text (UTF-8) that it stands for; equal for BOS and the like; null without a text. */
  offsets: [number, number] | null;
  /** BOS, EOS and other control tokens. */
  control: boolean;
}

export interface Step {
  /** Stable: "prompt", "dot-product", "tokens", "embedding", "positions", "embedding-scale", "residual", "norm", "attention",
   *  "soft-cap", "rope", "mlp", "post-norm", "final-norm", "output", "attribution", "input-attribution", "reach",
   *  "back-propagation". Those that the model lacks are left out. */
  id: string;
  title: string;
  /** What a learner would ask, and the step answers: "How does a computer read a text?" */
  question: string;
  /** Paragraphs in our words, true for this model. */
  text: string[];
  guesses: Guess[];
  /** One formula a line, in Unicode: "x ← x + attention(norm(x))". May be empty. */
  formula: string[];
  /** The lines of the model's definition that do this step, as they stood when the program was built. */
  source: SourceExcerpt[];
  /** Shapes of this run, in the order they appear. */
  shapes: StepShape[];
  /** Names in `pictures`, in the order they should stand beside the text. An absent picture gives its reason. */
  pictures: PictureName[];
  /** What a reader of a live page can try at this step. */
  experiments: ExperimentName[];
  /** What stands in the fold for engineers, beside source and shapes. */
  engineers: { text: string[]; formula: string[]; pictures: PictureName[] };
}
export type ExperimentName = "row" | "stream" | "units" | "next" | "off" | "patch" | "train";

/** A question that the reader answers before the page does; the answer is that of this run. */
export interface Guess {
  question: string;
  /** Empty: the reader writes. */
  choices: string[];
  /** One of the choices, where there are some. */
  answer: string;
  /** What is shown then. */
  reveal: string;
  /** It stands behind so many paragraphs of the step's text. */
  after: number;
}
export interface SourceExcerpt {
  /** In the source tree: "src/engine/model/gemma2.cpp". */
  file: string;
  /** Of the first line, from 1. */
  line: number;
  /** Lines joined with "\n", common indentation removed. */
  code: string;
}
export interface StepShape {
  /** "q" */
  name: string;
  /** The hook that holds it ("blocks.*.attn.hook_q"; `vitrine trace --hooks` takes it), or null. */
  hook: string | null;
  /** [5, 8, 256] */
  shape: number[];
  /** ["token", "head", "component"]; as long as shape. */
  axes: string[];
}

/** Many numbers as little-endian bytes in base64. value[i] = offset + scale * stored[i]. */
export interface Packed {
  type: "u8" | "u16" | "f32";
  /** Outermost first; row-major. */
  shape: number[];
  /** dense: every number. causal: the last two axes are square [target, source] and only source <= target is stored, row after
   *  row: within one square, cell (t, s) is at t * (t + 1) / 2 + s; the others are masked and are 0. */
  layout: "dense" | "causal";
  /** f32: 1 and 0. u8 and u16 of numbers in [0, 1]: 1/255 and 1/65535, and the error is at most half of that. */
  scale: number;
  offset: number;
  base64: string;
}

/** A table of a picture's data, for the terminal, CSV files and the page. Paths and texts: src/app/picture/data/paths.h. Tables
 *  without rows, and columns whose path leads nowhere, are left out. */
export interface TableSpec {
  /** Only where this path leads to a value. */
  if?: string;
  /** What it tells, in a line. */
  note?: string;
  /** Which of many rows a terminal shows; "first" where it is left out. */
  keep?: "last" | "spread";
  /** Rows that a terminal shows, and how many the data has beside those of the table (or the path of that number). */
  most?: number;
  beside?: number | string;
  /** Rows stand by the absolute values at this path, largest first. */
  largest?: string;
  /** Not for the terminal. */
  detail?: true;
  /** One row for each combination of places of the path with the most wildcards. */
  columns?: Column[];
  /** Instead of columns: numbers at a path with two wildcards, and the names of rows and columns. */
  grid?: {
    corner: string;
    rows: string;
    columns: string;
    values: string;
    /** Colors go from middle − reach to middle + reach; 0 and 1 where they are left out. */
    middle?: number;
    reach?: number | string;
    /** The first wildcard goes across. */
    across?: true;
    /** A terminal keeps as many columns as rows. */
    square?: true;
    /** null is no cell; otherwise a number that is not known. */
    blank?: true;
    as?: "%";
  };
}
/** Its name; the path of its cells, or one for each cell, or cells that are nowhere else; how they are written. */
export type Column = [name: string, cells: string | string[] | { cells: (string | number | null)[] }, as?: string];

/** A drawing of a picture's data, for SVG files and the page. Texts hold paths between braces; `if`: only where this path leads
 *  to a value. */
export type Chart = XySpec | BarsSpec | PairsSpec | GridSpec | BesideSpec | Remark | Choose;
interface ChartHead<K extends string> {
  kind: K;
  if?: string;
  title?: string;
  /** Where its numbers come from, if charts of a picture differ in that. */
  made?: "run" | "model" | "toy" | "log" | "sizes";
  /** What it is, read aloud. */
  label: string;
}
/** What a picked mark offers: a recipe, the texts that it is given, and what a reader is told. */
export interface Pick {
  do: "sublayer" | "norm" | "norms" | "head" | "gradient";
  with: string[];
  says: string;
}
export interface ChartAxis {
  label: string;
  log?: boolean;
  domain?: [number, number];
  /** From 0 on. */
  zero?: boolean;
  /** Ticks at whole numbers, from the first value to the last, and so much beyond both. */
  whole?: boolean;
  pad?: number;
  /** What places count as along x; 1. */
  step?: number;
  as?: "%";
}
/** Lines and dots over two axes. */
export interface XySpec extends ChartHead<"xy"> {
  height?: number;
  x: ChartAxis;
  y: ChartAxis;
  series: {
    name: string;
    /** False: it is not written at the line. */
    named?: boolean;
    tone: string;
    draw: "line" | "dots" | "both";
    dashed?: boolean;
    /** Path of the numbers; along x they stand at the last place, or at x; moved by shift. */
    y: string;
    x?: string;
    shift?: number;
    /** With more points it is left out. */
    most?: number;
    hint: string;
    pick?: Pick;
  }[];
  /** Lines across, or the path of a list of them. */
  rules?: string | { y: string | number; label: string }[];
}
/** Horizontal bars, one below the other. */
export interface BarsSpec extends ChartHead<"bars"> {
  name: string;
  value: string;
  hint: string;
  /** Behind the bar; the number if it is left out. */
  note?: string;
  /** Value of a full bar; the largest if it is left out. */
  most?: number;
  /** Path: true for bars that stand back. */
  faint?: string;
  /** Only so many, those of the largest absolute values. */
  largest?: number;
}
/** Two values a row, and the way from one to the other. */
export interface PairsSpec extends ChartHead<"pairs"> {
  name: string;
  axis: ChartAxis;
  from: { name: string; value: string; hint: string };
  to: { name: string; value: string; hint: string };
}
/** Colored cells; values: a path with two wildcards, rows and columns. */
export interface GridSpec extends ChartHead<"grid"> {
  values: string;
  rows: string;
  columns?: string;
  /** Where a column stands, for the ends of many. */
  place?: string;
  columnTitle?: string;
  /** Below the columns: path of [{at, text}]. */
  ticks?: string;
  bottomTitle?: string;
  scale: "sequential" | "diverging";
  /** The end of the scale; the largest absolute value if it is left out. */
  most?: number;
  hint: string;
  /** How values are written into cells with room for them. */
  write?: string;
  /** Width and height of a cell where there is room. */
  cell?: number;
  tall?: number;
  pick?: Pick;
  key: { label: string; low?: string; high?: string; as?: "%" };
}
/** The same chart for each place of a path, which are #0 in its paths; small, side by side. */
export interface BesideSpec {
  kind: "beside";
  if?: string;
  each: string;
  chart: XySpec;
}
export interface Remark {
  kind: "remark";
  if?: string;
  text: string;
}
/** Alternatives, of which a reader chooses one: options, or one for each place of a path. */
export interface Choose {
  choose: string;
  if?: string;
  /** Path of the one that is shown first. */
  at?: string;
  options?: { if?: string; name: string; charts: Chart[] }[];
  each?: string;
  name?: string;
  charts?: Chart[];
}

/** What every picture has, and all there is to know of one that is drawn from its declaration: its other fields are what the
 *  paths of that lead to. */
export interface Head<N extends string> {
  name: N;
  title: string;
  available: true;
  /** One or two sentences: what is drawn, with its definition and units. */
  caption: string;
  /** Text alternative: what the picture shows for this prompt, with its main numbers. */
  alt: string;
  /** Where its numbers come from. */
  made: ("run" | "model" | "toy" | "log" | "sizes")[];
  /** Breaks out of the reading column. */
  wide: boolean;
  tables: TableSpec[];
  /** Of pictures that are drawn from their declaration alone. */
  charts?: Chart[];
}
/** A picture that this model or prompt cannot have. */
export interface Absent<N extends string> {
  name: N;
  title: string;
  available: false;
  /** "This model has no rotary positions: it adds a learned vector to each embedding." */
  reason: string;
}
export type PictureName = string;

/** Those with fields that the page itself reads, by name. */
export interface Pictures {
  "dot-product": DotProduct | Absent<"dot-product">;
  "norm-statistics": NormStatistics | Absent<"norm-statistics">;
  tokens: TokensPicture | Absent<"tokens">;
  merges: Merges | Absent<"merges">;
  splits: Splits | Absent<"splits">;
  "layer-norm": NormGeometry | Absent<"layer-norm">;
  "head-grouping": HeadGrouping | Absent<"head-grouping">;
  softmax: SoftmaxRow | Absent<"softmax">;
  attention: Attention | Absent<"attention">;
  "rope-rotation": RopeRotation | Absent<"rope-rotation">;
  "mlp-surfaces": MlpSurfaces | Absent<"mlp-surfaces">;
  experts: Experts | Absent<"experts">;
  "next-tokens": NextTokens | Absent<"next-tokens">;
  "logit-lens": LogitLens | Absent<"logit-lens">;
  "logit-attribution": LogitAttribution | Absent<"logit-attribution">;
  reach: Reach | Absent<"reach">;
  interpolation: Interpolation | Absent<"interpolation">;
  "task-vectors": TaskVectors | Absent<"task-vectors">;
  designs: Designs | Absent<"designs">;
  "head-sharing": HeadSharing | Absent<"head-sharing">;
  "vocabulary-growth": VocabularyGrowth | Absent<"vocabulary-growth">;
  "training-film": TrainingFilm | Absent<"training-film">;
  "beam-search": BeamSearch | Absent<"beam-search">;
  "block-diagram": BlockDiagram | Absent<"block-diagram">;
  permutations: Permutations | Absent<"permutations">;
  "sinusoid-wheel": SinusoidWheel | Absent<"sinusoid-wheel">;
}

// -- GPT-2 ----------------------------------------------------------------------------------------------------------------

/** A passage, and the beginning of the prompt, cut by ever more of the tokenizer's pairs. */
export interface VocabularyGrowth extends Head<"vocabulary-growth"> {
  /** known: how many pairs, this one the last. times: how often the whole vocabulary joins it in the passage. tokens: of the
   *  passage. pieces: of the prompt. */
  steps: { known: number; left: string; right: string; piece: string; times: number; tokens: number; tokensPerByte: number; pieces: string[] }[];
}

/** The log of a training run that ships (models/book/gpt2-tales/story.json), told checkpoint by checkpoint. */
export interface TrainingFilm extends Head<"training-film"> {
  /** The text that every sample continues. */
  beginning: string;
  /** The head whose attention is shown, and the text that it reads. */
  watched: { layer: number; head: number; ids: number[]; pieces: string[] };
  words: { id: number; word: string; group: string }[];
  /** Shares of the variance of the trained embeddings along the two directions of the plane. */
  planeShares: [number, number];
  /** [up to which step, mean loss] of stretches that grow with the steps. */
  losses: [number, number][];
  checkpoints: {
    step: number;
    tokens: number;
    valLoss: number;
    sample: string;
    /** Row t has the weights on 0 … t. */
    attention: number[][];
    /** Mean weight on the token before. */
    previous: number;
    /** Of each word, on the plane. */
    embeddings: [number, number][];
    /** Root mean square and mean of each kind of parameter, over all layers. */
    parts: Record<string, [number, number]>;
  }[];
}

/** What a beam search looked at. */
export interface BeamSearch extends Head<"beam-search"> {
  beams: number;
  /** Tokens that were written. */
  length: number;
  /** Parents stand before their children. total: sum of ln p up to this token. */
  nodes: { step: number; id: number; parent: number | null; text: string; logprob: number; total: number; kept: boolean; best: boolean }[];
  /** The beams at the end, best first; score: total / tokens. */
  found: { ids: number[]; text: string; tokens: number; score: number; total: number }[];
  greedy: { ids: number[]; text: string; tokens: number; score: number; total: number };
  /** Whether greedy decoding wrote the best beam. */
  same: true | null;
}

// -- A head is A·x·S ------------------------------------------------------------------------------------------------------

/** The parts of one block in the model's order. Lengths are those of vectors at the last token. */
export interface BlockDiagram extends Head<"block-diagram"> {
  layer: number;
  /** Of the stream: at the top and behind each part. */
  lengths: (number | null)[];
  parts: {
    id: "attention" | "mlp";
    title: string;
    /** Of attention: how many. */
    heads: number | null;
    /** "RMSNorm" where one stands there: in front of the part, on what it wrote, on the stream behind the sum. */
    normBefore: string | null;
    normBehind: string | null;
    normAfter: string | null;
    /** What the update is multiplied by. */
    factor: number | null;
    /** False: what the part computes takes the place of the stream. */
    adds: boolean;
    hook: string;
    length: number | null;
    streamLength: number | null;
    /** "RMSNorm, 4 heads, +" */
    words: string;
  }[];
}
/** A head's formula on the first n vectors of the prompt, in other orders. */
export interface Permutations extends Head<"permutations"> {
  n: number;
  layer: number;
  head: number;
  /** Row i of Px is row order[i] of x. inverse: largest entry of PᵀP − 1; mlp: of MLP(Px) − P MLP(x). */
  shuffles: { name: string; order: number[]; inverse: number; mlp: number | null }[];
  /** A: A(x) [n, n]. For each shuffle: A(Px), the largest entries of A(Px) − P A(x) Pᵀ and, over that of h, of h(Px) − P h(x). */
  conditions: { id: string; name: string; A: Packed; most: number; shuffles: { pattern: number; output: number; A: Packed }[] }[];
}
/** Pairs of sine and cosine: the hand of pair j at position k stands at the angle k · frequency. */
export interface SinusoidWheel extends Head<"sinusoid-wheel"> {
  E: number;
  N: number;
  C: number;
  wheels: { pair: number; frequency: number; turn: number }[];
  /** The first positions: sine and cosine of each pair. */
  positions: number[][];
}

// -- Preliminaries and tokens ---------------------------------------------------------------------------------------------

/** Vectors x around the origin and their dot products with a. The same for every model. */
export interface DotProduct extends Head<"dot-product"> {
  a: [number, number];
  /** dot: x·a. label: "2", "1/√2", "0", "−1/√2", "−1". */
  vectors: { x: [number, number]; dot: number; label: string }[];
}

/** The prompt cut into pieces. Draw from the document's `tokens` with these. */
export interface TokensPicture extends Head<"tokens"> {
  /** UTF-8 bytes of the prompt, as numbers 0-255; null without a text. At most the first 4096 (`bytesTotal` says how many). */
  bytes: number[] | null;
  bytesTotal: number;
  /** Distinct words of the vocabulary the model can choose from. */
  vocabSize: number;
  /** What the tokenizer is, with its BOS rule, as `vitrine tokenize` describes it. */
  tokenizer: string;
}

/** Byte-pair merges that led to the tokens, one at a time. */
export interface Merges extends Head<"merges"> {
  /** The parts before the first merge: characters or bytes, in order. Control tokens are not among them. */
  start: MergePart[];
  /** steps[i] joins two neighbors of the list that steps[0..i) have made: list positions `at` and `at + 1`. */
  /** parts: the two as they were spelled. */
  steps: { at: number; left: number; right: number; id: number; piece: string; parts: [string, string]; order: number }[];
  /** Tokens at the end (ids), control tokens not among them; equals the list after the last step. */
  end: number[];
  /** Parts beyond the limit (the first 256 tokens are traced) are left out; true if some were. */
  cut: boolean;
  /** "order: rank of the merge in the file, 0 is the first that training found", or what else decides. */
  orderNote: string;
}
export interface MergePart {
  /** -1: the vocabulary has no such token by itself. */
  id: number;
  piece: string;
}

/** Other ways to cut the same string with the same vocabulary. */
export interface Splits extends Head<"splits"> {
  /** The string that is cut, as the vocabulary spells it (the pieces of the traced tokens joined). */
  spelled: string;
  /** log10 of how many splits there are. */
  log10Count: number;
  /** Most likely first. The tokenizer's own has chosen: true. */
  splits: {
    ids: number[];
    pieces: string[];
    chosen: boolean;
    /** ln p of these tokens under the model, BOS given if the tokenizer adds one; without BOS the first token is given. */
    logprob: number;
    /** logprob over the number of bits it stands for: -logprob / ln 2 / bytes of `spelled` in UTF-8. */
    bitsPerByte: number;
  }[];
}

// -- Embeddings -----------------------------------------------------------------------------------------------------------

// -- The residual stream --------------------------------------------------------------------------------------------------

// -- Norms ----------------------------------------------------------------------------------------------------------------

/** What a norm does to a vector of two numbers. */
export interface NormGeometry extends Head<"layer-norm"> {
  /** Which of the two this model uses. */
  model: "rms_norm" | "layer_norm";
  /** (1, 5) */
  x: [number, number];
  mean: number;
  /** x − mean: (−2, 2) */
  centered: [number, number];
  /** sqrt of the population variance: 2 */
  sigma: number;
  /** (−1, 1) */
  scaled: [number, number];
  weight: [number, number];
  bias: [number, number];
  /** scaled · weight + bias */
  layerNorm: [number, number];
  /** sqrt(mean(x²)) and x over it: the direction stays. */
  rms: number;
  rmsScaled: [number, number];
  /** rmsScaled · weight */
  rmsNorm: [number, number];
  /** All with eps 0. In three numbers: x (2, 4, 6), mean 4, variance 8/3, result (−1.2247, 0, 1.2247). */
  three: { x: number[]; mean: number; variance: number; scaled: number[] };
}

export interface NormStatistics extends Head<"norm-statistics"> {
  /** Norms of one name, by layer. */
  kinds: { norms: { name: string; layer: number }[] }[];
}

// -- Attention ------------------------------------------------------------------------------------------------------------

export interface HeadGrouping extends Head<"head-grouping"> {
  kind: "MHA" | "GQA" | "MQA";
  /** groups[g]: query heads that read key and value head g. */
  groups: number[][];
  headDim: number;
  /** Numbers in each projection of one layer. */
  parameters: { q: number; k: number; v: number; o: number };
  /** Keys and values of one position in all layers, as kept (f32): with this grouping, and with one key head per query head. */
  cacheBytesPerPosition: number;
  cacheBytesPerPositionMha: number;
}

/** From scores to weights: the source's pair, and the last token's row in one head of this run. */
export interface SoftmaxRow extends Head<"softmax"> {
  /** scores (0, −0.693) → weights (2/3, 1/3) */
  pair: { scores: [number, number]; weights: [number, number] };
  layer: number;
  head: number;
  target: number;
  /** Positions that it may see (the 32 with the highest weight if there are more, in order), their scores and weights. */
  sources: number[];
  scores: number[];
  weights: number[];
  /** Of models whose heads have a sink: its score, and the share of the softmax that it takes. The weights sum to the rest. */
  sink: { score: number; weight: number } | null;
}

/** Attention weights of every layer and head: source (key) on x, target (query) on y, each row sums to 1, or to less where heads
 *  have a sink. Stronger is more. */
export interface Attention extends Head<"attention"> {
  nTokens: number;
  nLayers: number;
  nHeads: number;
  /** full: patterns holds every cell. tiles: too long for that; tiles holds an overview and top the largest of each row. */
  level: "full" | "tiles";
  /** By layer: u16 causal [head, target, source]. */
  patterns: Packed[] | null;
  tiles: {
    /** Bin b covers tokens b * tokensPerBin up to the next bin's; the last may be shorter. */
    bins: number;
    tokensPerBin: number;
    /** The first token of each. */
    from: number[];
    /** By layer: u8 causal [head, bin, bin]: the largest weight in the bin. */
    max: Packed[];
  } | null;
  top: {
    k: number;
    /** By layer: u16 dense [head, target, k]: the sources of the k largest weights of the row, largest first. */
    sources: Packed[];
    /** By layer: u16 dense [head, target, k]: those weights; 0 where the row sees fewer than k. */
    weights: Packed[];
  } | null;
  /** [layer][head]: mean over targets that see n > 1 positions of the entropy of the weights over
   *  their sum, / ln n. 1: flat, 0: spiky. null: no target sees two. */
  flatness: (number | null)[][];
  /** [layer]: heads from flat to spiky; behind them, by number, those without flatness. */
  flatToSpiky: number[][];
  /** [layer][head]: mean weight on position 0, on the position before, on itself (over targets from 1 on; null: one token). */
  onFirst: (number | null)[][];
  onPrevious: (number | null)[][];
  onSelf: (number | null)[][];
}

// -- Rotary positions -----------------------------------------------------------------------------------------------------

/** The vector (1, 0) turned as positions 0, 1, 2, … turn a key, at two frequencies. */
export interface RopeRotation extends Head<"rope-rotation"> {
  components: {
    /** Which pair of components, and of how many. */
    component: number;
    of: number;
    frequency: number;
    wavelength: number;
    /** By position, from 0. */
    points: [number, number][];
  }[];
  /** dot[i][j] of the first component's points: the same wherever j − i is the same. */
  dot: number[][];
}

// -- MLP ------------------------------------------------------------------------------------------------------------------

/** A toy MLP from two numbers to two through three hidden units, fixed weights; the four kinds over a square of inputs. */
export interface MlpSurfaces extends Head<"mlp-surfaces"> {
  /** Inputs along each axis, from −2 to 2. */
  x: number[];
  /** linear: y = x · proj. Others: y = z · down with z = relu(x·gate), relu(x·gate) ⊙ (x·up), gelu(x·gate) ⊙ (x·up).
   *  proj [2][2], gate and up [2][3], down [3][2]. gelu is the tanh form. */
  weights: { proj: number[][]; gate: number[][]; up: number[][]; down: number[][] };
  kinds: ["linear", "relu", "reglu", "geglu"];
  /** f32 dense [kind, x0, x1]: the first output y[0]. */
  surfaces: Packed;
  /** u8 dense [x0, x1]: bit i is set where hidden unit i is above zero. Six regions occur. */
  regions: Packed;
  /** The six, once around the origin: their bits; "110", unit 0 first; "0, 1" ("all", "none"); y[0] with ReLU and with ReGLU as text
   *  and as factors of x[0], x[1] and of x[0]², x[0] x[1], x[1]². */
  pieces: { mask: number; on: string; units: string; relu: string; reglu: string; linear: [number, number]; quadratic: [number, number, number] }[];
  /** Values of x[1] at which slices are taken, and slices[kind][slice][x0]. */
  sliceAt: number[];
  slices: number[][][];
}

/** Which experts each token goes through. Absent where the layers have no experts. */
export interface Experts extends Head<"experts"> {
  /** Experts of a layer, and those that a token goes through. */
  count: number;
  perToken: number;
  /** What each has of all that the router gives: "probability", or "share of the sigmoids". */
  share: string;
  /** The position of the first token here; earlier ones are left out of long prompts. */
  first: number;
  /** Of those tokens. */
  positions: number[];
  /** Those that have experts. */
  layers: {
    layer: number;
    /** u16 [token, choice]: numbers of experts, the heaviest first. */
    chosen: Packed;
    /** u16 [token, choice] */
    weights: Packed;
    /** u16 [token, expert]: softmax of the router's scores over all experts, or shares of their sigmoids; null for long prompts. */
    probabilities: Packed | null;
  }[];
}

// -- Prediction -----------------------------------------------------------------------------------------------------------

/** The most likely next tokens after every position. */
export interface NextTokens extends Head<"next-tokens"> {
  k: number;
  /** [position][k], most likely first. */
  ids: number[][];
  probs: number[][];
  /** Of the token that really follows in the prompt, null at the last position: its probability and rank (1: most likely). */
  actual: { id: number; prob: number; rank: number }[] | null;
}

/** What the head would predict from the stream after each layer (final norm and head applied to it). */
export interface LogitLens extends Head<"logit-lens"> {
  /** Positions shown: all up to 32, else the last 32. */
  positions: number[];
  /** "embedding", "layer 0", …, "layer n-1". The last is the model's prediction. */
  depths: string[];
  k: number;
  /** [position][depth][k] */
  ids: number[][][];
  probs: number[][][];
  /** [position][depth]: KL(the model's prediction || this depth's) in nats, 0 at the last depth; and this depth's probability
   *  and rank (1: most likely) of the token that the model finds most likely. */
  kl: number[][];
  finalProb: number[][];
  finalRank: number[][];
  /** [position][depth]: length of the residual stream there. */
  lengths: number[][];
}

/** The logit of a token as a sum over what wrote to the stream (norm scales as in this run, before the final cap). */
export interface LogitAttribution extends Head<"logit-attribution"> {
  /** The position whose prediction is taken apart. */
  position: number;
  components: {
    kind: "embedding" | "position" | "head" | "attention-bias" | "convolution" | "mlp" | "norm-bias" | "output-bias";
    /** -1 where it belongs to none. */
    layer: number;
    head: number;
    label: string;
  }[];
  /** The most likely tokens at that position, most likely first. */
  targets: {
    id: number;
    prob: number;
    /** After and before the final cap (equal without one). */
    logit: number;
    uncapped: number;
    /** Aligned with components. uncapped = sum of parts + remainder. */
    parts: number[];
    remainder: number;
  }[];
}

/** Which positions each layer can see, and what the cache keeps. */
export interface Reach extends Head<"reach"> {
  /** Positions in this picture: those of the prompt. */
  nTokens: number;
  contextLength: number;
  /** Windows are chunks: a token sees those of its own chunk. */
  chunked: boolean;
  layers: {
    layer: number;
    /** 0: global. */
    window: number;
    /** First position that the last token sees directly in this layer. */
    sees: number;
    /** First position whose content can have come to the last token in this layer or a layer before it. */
    receives: number;
    /** Positions whose keys and values the next token can still use. */
    cached: number;
    /** Positions there is room for: in a ring of whole pages, or the whole context. 0: no limit. */
    room: number;
    /** Of the cached ones, f32. */
    bytes: number;
  }[];
  /** At the full context (at 8192 where there is no limit): what the cache allocates, and what it would if every layer were global. */
  bytesAtContext: number;
  bytesAtContextGlobal: number;
}

// -- The way back ---------------------------------------------------------------------------------------------------------

// -- Merging --------------------------------------------------------------------------------------------------------------

/** What two pictures of merging share: rows of one weight matrix stand for the same weights of two models. */
export interface MergedRows {
  /** By our name: "blocks.4.mlp.W_in". */
  matrix: string;
  layer: number;
  /** [rows, components] of the matrix. */
  shape: [number, number];
  /** So many rows, from the first on, were compared with each other. */
  read: number;
}

/** What lies between two rows a and b: (1 − t) a + t b, and SLERP, sin((1 − t)Ω) / sin Ω · a + sin(tΩ) / sin Ω · b. */
export interface Interpolation extends Head<"interpolation">, MergedRows {
  /** 0 … 1, an odd number of them; the middle one is 0.5. */
  t: number[];
  /** The rows that are most alike, rows 0 and 1, the rows that are most opposed; none twice. */
  pairs: {
    kind: "alike" | "first" | "opposed";
    rows: [number, number];
    /** |a|, |b| */
    lengths: [number, number];
    cosine: number;
    /** Ω, radians. */
    angle: number;
    degrees: number;
    /** |cosine| above 0.9995: SLERP goes straight, as mergekit's does. */
    straight: boolean;
    /** a and b in the plane that they span, a along x; the straight line runs from one to the other. */
    a: [number, number];
    b: [number, number];
    /** [t]: SLERP in that plane. */
    arc: [number, number][];
    /** [t]: lengths on the line and on the arc. */
    linearLengths: number[];
    slerpLengths: number[];
    /** Both at t = 0.5. */
    averageLength: number;
    slerpLength: number;
    /** cos(Ω/2): what the average keeps of the length of two vectors of one length. */
    cosHalf: number;
  }[];
}

/** Two rows as weights θ₁, θ₂ of models that were trained from one start θ₀: their task vectors τ = θ − θ₀ and merges of these. */
export interface TaskVectors extends Head<"task-vectors">, MergedRows {
  /** θ₁ and θ₂: the rows that are most alike. */
  rows: [number, number];
  /** θ₀ is the mean of so many rows: those read that are not zero. */
  averaged: number;
  /** |θ₀| */
  initialLength: number;
  /** |θ₁|, |θ₂| and their cosine. */
  lengths: [number, number];
  cosine: number;
  /** |τ₁|, |τ₂|, their cosine and angle (radians). */
  taskLengths: [number, number];
  taskCosine: number;
  taskAngle: number;
  /** As in Interpolation, of τ₁ and τ₂. */
  straight: boolean;
  /** In the plane of the task vectors, θ₀ at (0, 0), τ₁ along x. average and slerp are the merges at t = 0.5. */
  a: [number, number];
  b: [number, number];
  average: [number, number];
  slerp: [number, number];
  arc: [number, number][];
  /** Of the merged task vectors. */
  averageLength: number;
  slerpLength: number;
  /** |θ₀ + merged task vector| */
  mergedLengths: { average: number; slerp: number };
  /** θ(η) = θ₀ + η · slerp(τ₁, τ₂, 0.5) for η = 0, 0.1, …, 1: its distance from θ₀, and its own length. */
  liti: { eta: number[]; distances: number[]; lengths: number[] };
}

// -- Colors --------------------------------------------------------------------------------------------------------------

/** 0 … 1, light page: one hue from paper to ink, so that dark is high. In dark mode: the same list for a dark page. */
export const SEQUENTIAL = {
  light: ["#f7fbff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"],
  dark: ["#14181f", "#173a5e", "#2171b5", "#6baed6", "#deebf7"],
} as const;
/** −1 … 1, orange to blue through the page's own color: told apart by every kind of color vision. */
export const DIVERGING = {
  light: ["#b35806", "#f1a340", "#f7f7f7", "#92c5de", "#2166ac"],
  dark: ["#fdb863", "#a85e08", "#1b1f24", "#2f6da8", "#92c5de"],
} as const;

declare global {
  interface Window {
    /** Of a merge's report: MergeDocument in report/data.ts; of a page for research: StudyDocument in study/data.ts. */
    vitrine: Vitrine | { kind: "merge" } | { kind: "study" };
  }
}

// -- Designs --------------------------------------------------------------------------------------------------------------

/** Published designs and, last, the model of the page (own): all from their configurations. */
export interface Designs extends Head<"designs"> {
  designs: {
    title: string;
    year: number | null;
    /** Where the sizes are published. */
    source: string | null;
    own: boolean;
    layers: number;
    dModel: number;
    heads: number;
    kvHeads: number;
    headDim: number;
    sharing: "MHA" | "GQA" | "MQA";
    norms: string;
    positions: string;
    mlp: string;
    window: string;
    caps: string;
    context: number | "any";
    vocabulary: number;
    /** Of each layer: 0 sees all that came before; null has no attention. */
    windows: (number | null)[];
    /** Each counted once; head: of its own, not the embedding's. */
    parameters: { embedding: number; attention: number; mlp: number; norms: number; head: number; total: number };
    /** Of a layer's attention and MLP. */
    attentionShare: number;
    /** How many layers have as many parameters. */
    embeddingInLayers: number;
    headInLayers: number;
    /** A prompt of so many tokens, the last of which is counted; the cache of all of them, 16 bits a number. */
    comparedPositions: number;
    multiplyAdds: { attention: number; scores: number; mlp: number; head: number; total: number };
    cacheBytes: number;
  }[];
}

/** MHA, GQA and MQA of one size, and the model's own way. */
export interface HeadSharing extends Head<"head-sharing"> {
  positions: number;
  kinds: { title: string; heads: number; kvHeads: number; headsEach: number; headDim: number; layers: number; bytesPerPosition: number; bytes: number }[];
}
