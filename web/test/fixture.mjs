// Made-up documents that follow the contract of src/data.ts, for the page's tests: a short prompt on a small model, a prompt
// of 2,000 tokens, and a model that lacks rotary positions, norms before sub-layers and a tokenizer. Every number comes from a
// fixed generator, so that two runs give the same page. `node test/fixture.mjs` writes them to out/ as pages to look at.

import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** @typedef {import("../src/data.ts").Vitrine} Vitrine */
/** @typedef {import("../src/data.ts").Packed} Packed */

const here = dirname(fileURLToPath(import.meta.url));
/** What the program's pictures declare: tests/app/picture/declared_test.cpp writes it. @type {Record<string, any>} */
const declarations = JSON.parse(readFileSync(join(here, "declarations.json"), "utf8"));

/** @param {number} seed */
export function generator(seed) {
  let state = seed >>> 0;
  const next = () => {  // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return { next, normal: () => Math.sqrt(-2 * Math.log(next() + 1e-12)) * Math.cos(2 * Math.PI * next()) };
}

/**
 * @param {"u8" | "u16" | "f32"} type
 * @param {number[]} shape
 * @param {"dense" | "causal"} layout
 * @param {ArrayLike<number>} values
 * @param {number} [scale]
 * @returns {Packed}
 */
function pack(type, shape, layout, values, scale = type === "f32" ? 1 : type === "u8" ? 1 / 255 : 1 / 65535) {
  const whole = Array.from(values, (v) => (type === "f32" ? v : Math.round(v / scale)));
  const stored = type === "f32" ? Float32Array.from(whole) : type === "u8" ? Uint8Array.from(whole) : Uint16Array.from(whole);
  return { type, shape, layout, scale, offset: 0, base64: Buffer.from(stored.buffer).toString("base64") };
}

/** @param {number} n @param {(i: number) => any} f */
export const list = (n, f) => Array.from({ length: n }, (_, i) => f(i));
/** @param {number} v */
export const round = (v) => Number(v.toPrecision(7));

/**
 * Weights of one head, rows after each other: a mix of looking at the first, the previous, itself and anywhere.
 * @param {ReturnType<typeof generator>} g @param {number} n
 */
function pattern(g, n) {
  const out = new Float32Array((n * (n + 1)) / 2);
  const taste = [g.next() ** 2, g.next() ** 3, g.next() ** 3, g.next() * 0.3];
  for (let t = 0, at = 0; t < n; ++t) {
    const start = at;
    let sum = 0;
    for (let s = 0; s <= t; ++s, ++at) {
      out[at] = (s === 0 ? taste[0] * 2 : 0) + (s === t - 1 ? taste[1] * 3 : 0) + (s === t ? taste[2] * 2 : 0) + (taste[3] * g.next() ** 4) / Math.sqrt(t + 1) + 1e-5;
      sum += out[at];
    }
    for (let i = start; i < at; ++i) out[i] /= sum;
  }
  return out;
}

/**
 * @param {{tokens?: number, layers?: number, heads?: number, kvHeads?: number, level?: "full" | "tiles", bare?: boolean, seed?: number}} [options]
 * @returns {Vitrine}
 */
export function fixture({ tokens: n = 12, layers = 8, heads = 4, kvHeads = 2, level = "full", bare = false, seed = 1 } = {}) {
  const g = generator(seed);
  const words = ["▁Once", "▁upon", "▁a", "▁time", "▁there", "▁was", "▁a", "▁little", "▁gir", "l", "▁who"];
  const spellings = [...words, "▁lived", "▁had", "▁king", "▁queen", "▁man", "▁woman", "▁red", "▁green", "▁blue", "▁London", "▁Paris", "▁with", "▁the", "<0x0A>", "<b>&\"'</b>", "é", "画", "▁could", "▁went", ",", "."];
  /** @type {Record<string, string>} */
  const pieces = {};
  spellings.forEach((piece, i) => (pieces[String(300 + i)] = piece));
  pieces["2"] = "<bos>";
  const id = (/** @type {string} */ piece) => 300 + spellings.indexOf(piece);
  const ids = [2, ...list(n - 1, (i) => id(words[i % words.length]))];
  const text = ids.slice(1).map((i) => pieces[i].replace("▁", " ")).join("").trimStart();
  let byte = 0;
  const tokens = ids.map((one, i) => {
    const length = i === 0 ? 0 : pieces[one].replace("▁", i === 1 ? "" : " ").length;
    const offsets = /** @type {[number, number]} */ ([byte, (byte += length)]);
    return { id: one, piece: bare ? null : pieces[one], offsets: bare ? null : offsets, control: i === 0 };
  });
  const vocabulary = Object.keys(pieces).map(Number);
  const ranked = (/** @type {number} */ k) => {
    const picked = [...vocabulary].sort(() => g.next() - 0.5).slice(0, k);
    const raw = picked.map(() => g.next() ** 5 + 0.01).sort((a, b) => b - a);
    const sum = raw.reduce((a, b) => a + b, 0) * (1 + 0.5 * g.next());
    return { ids: picked, probs: raw.map((p) => round(p / sum)) };
  };
  const grid = (/** @type {number} */ rows, /** @type {number} */ cols, /** @type {() => number} */ f) => list(rows, () => list(cols, () => round(f())));
  const cosines = (/** @type {number} */ k) => {
    const rows = list(k, () => list(6, () => g.normal()));
    const length = rows.map((/** @type {number[]} */ r) => Math.hypot(...r));
    return { lengths: length.map(round), cosine: rows.map((/** @type {number[]} */ a, /** @type {number} */ i) => rows.map((/** @type {number[]} */ b, /** @type {number} */ j) => round(a.reduce((s, v, c) => s + v * b[c], 0) / length[i] / length[j]))) };
  };
  const head = (/** @type {string} */ name, /** @type {string} */ title) => ({ name, title, available: /** @type {const} */ (true), caption: `A made-up caption of ${title.toLowerCase()}, with \`code\` in it.`, alt: `${title}: made-up numbers.`, ...declarations[name] });
  const absent = (/** @type {string} */ name, /** @type {string} */ title, /** @type {string} */ reason) => ({ name, title, available: /** @type {const} */ (false), reason });

  const perHead = list(layers, () => list(heads, () => pattern(g, Math.min(n, level === "tiles" ? 200 : n))));
  const chosenCosines = ["▁red", "▁green", "▁blue", "▁London", "▁Paris", "▁king", "▁queen", "▁with"];
  const components = [
    { kind: "embedding", layer: -1, head: -1, label: "embedding" },
    ...list(layers, (l) => [...list(heads, (h) => ({ kind: "head", layer: l, head: h, label: `layer ${l} head ${h}` })), { kind: "mlp", layer: l, head: -1, label: `layer ${l} MLP` }]).flat(),
  ];
  const x = list(61, (/** @type {number} */ i) => -2 + (4 * i) / 60);
  const toyGate = [[1.1, -0.6, 0.2], [0.3, 0.9, -1.2]];
  const toyUp = [[0.5, 1, -0.7], [-0.8, 0.4, 0.9]];
  const toyDown = [[0.9, 0], [-1.1, 0], [0.7, 0]];
  const gelu = (/** @type {number} */ a) => 0.5 * a * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (a + 0.044715 * a ** 3)));
  const toy = (/** @type {number} */ kind, /** @type {number} */ a, /** @type {number} */ b) => {
    if (kind === 0) return 0.7 * a - 0.4 * b;
    return list(3, (/** @type {number} */ i) => {
      const gate = a * toyGate[0][i] + b * toyGate[1][i];
      const up = a * toyUp[0][i] + b * toyUp[1][i];
      return [0, Math.max(0, gate), Math.max(0, gate) * up, gelu(gate) * up][kind] * toyDown[i][0];
    }).reduce((/** @type {number} */ p, /** @type {number} */ q) => p + q, 0);
  };
  const wavelengths = list(32, (/** @type {number} */ i) => round(2 * Math.PI * 10000 ** (i / 32)));
  const bins = level === "tiles" ? 125 : 0;
  const tokensPerBin = level === "tiles" ? Math.ceil(n / bins) : 1;
  const tileBins = level === "tiles" ? Math.ceil(n / tokensPerBin) : 0;
  const k = 8;
  const turned = (/** @type {number} */ frequency) => list(5, (/** @type {number} */ i) => [round(Math.cos(i * frequency)), round(Math.sin(i * frequency))]);
  const predictions = list(n, () => ranked(10));

  const mergedRows = { matrix: `blocks.${Math.floor(layers / 2)}.mlp.W_in`, layer: Math.floor(layers / 2), shape: [1024, 256], read: 128 };
  /** @type {any} */
  const pictures = {
    "dot-product": { ...head("dot-product", "Dot products with a"), a: [1, 0], vectors: [[2, 0, "2"], [Math.SQRT1_2, Math.SQRT1_2, "1/√2"], [0, 1, "0"], [-Math.SQRT1_2, Math.SQRT1_2, "−1/√2"], [-1, 0, "−1"]].map(([a, b, label]) => ({ x: [a, b], dot: a, label })) },
    tokens: { ...head("tokens", "The prompt in pieces"), bytes: bare ? null : [...Buffer.from(text.slice(0, 4096))], bytesTotal: text.length, vocabSize: 4096, tokenizer: "SentencePiece BPE, BOS in front" },
    merges: bare ? absent("merges", "Merges", "This run was given ids, not text.") : mergesOf(tokens.slice(1, 13).map((t) => t.piece ?? ""), head("merges", "Merges, one at a time"), id),
    splits: bare ? absent("splits", "Other splits", "This run was given ids, not text.") : { ...head("splits", "Other ways to cut the same string"), spelled: words.join(""), log10Count: 8.3, splits: list(6, (/** @type {number} */ i) => ({ ids: ids.slice(1, 12 + i), pieces: i === 0 ? words : [...words.slice(0, 3), "▁t", "ime", ...words.slice(4, 4 + i)], chosen: i === 0, logprob: -40 - 4 * i, bitsPerByte: round(1.4 + 0.22 * i) })) },
    "embedding-cosine": { ...head("embedding-cosine", "Cosine between embeddings"), words: chosenCosines.map((/** @type {string} */ word, /** @type {number} */ i) => ({ label: bare ? `#${id(word)}` : i === 4 ? "vibrant (3)" : word, ids: [id(word)], pieces: [bare ? `#${id(word)}` : word], tokens: i === 4 ? 3 : 1 })), groups: ["colors", "colors", "colors", "cities", "cities", "people", "people", "words"], ...cosines(8), missing: ["Tokyo", "vibrant"] },
    "embedding-neighbors": { ...head("embedding-neighbors", "king − man + woman"), sum: "king − man + woman", terms: [{ sign: 1, id: id("▁king") }, { sign: -1, id: id("▁man") }, { sign: 1, id: id("▁woman") }], neighbors: ["▁king", "▁queen", "▁woman", "▁little", "▁London", "▁the"].map((p, i) => ({ id: id(p), cosine: round(0.8 - 0.1 * i), term: p === "▁king" || p === "▁woman" })) },
    "position-vectors": bare ? { ...head("position-vectors", "Position vectors"), kind: "learned", positions: list(n, (/** @type {number} */ i) => i), ...cosines(n), tokenLengths: list(n, () => round(2 + g.next())) } : absent("position-vectors", "Position vectors", "This model turns its queries and keys instead of adding a vector to each embedding."),
    "embedding-rescaling": bare ? absent("embedding-rescaling", "Rescaled embeddings", "This model does not scale its embeddings.") : { ...head("embedding-rescaling", "The first layer with and without the scale"), factor: 16, sigmaWith: 0.9, sigmaWithout: 0.056, sublayers: [{ name: "first attention", with: 0.41, without: 0.97 }, { name: "first MLP", with: 0.3, without: 0.52 }] },
    "update-scale": { ...head("update-scale", "How much each sub-layer changes the stream"), sublayers: list(layers, (l) => ["attention", "mlp"].map((part) => ({ layer: l, part, scale: round(Math.min(1, 0.05 + 0.4 * g.next() ** 2 + (l === 0 ? 0.4 : 0))), sigmaSkip: round(1 + l), sigmaUpdate: round(0.3 * (1 + l)) }))).flat(), perToken: n <= 256 ? grid(2 * layers, n, () => 0.05 + 0.5 * g.next() ** 2) : null },
    "residual-scale": { ...head("residual-scale", "Scale of the residual stream"), labels: [...list(layers, (l) => [`${l} attention`, `${l} mlp`]).flat(), "final"], withNorms: list(2 * layers + 1, (/** @type {number} */ i) => round(1 + 0.6 * i)), withoutNorms: list(2 * layers + 1, (/** @type {number} */ i) => (i > 7 ? null : round(10 ** (i * i * 0.7)))), survivors: 1, lost: 2 * layers > 7 ? "4 attention" : null, toy: { without: list(19, (/** @type {number} */ i) => 3 ** i), with: list(19, (/** @type {number} */ i) => 1 + 2 * i) } },
    "layer-norm": { ...head("layer-norm", "What a norm does to two numbers"), model: bare ? "layer_norm" : "rms_norm", x: [1, 5], mean: 3, centered: [-2, 2], sigma: 2, scaled: [-1, 1], weight: [1.5, 0.5], bias: [0.5, 0.5], layerNorm: [-1, 1], rms: 3.605551, rmsScaled: [0.2773501, 1.38675], rmsNorm: [0.4160251, 0.6933752], three: { x: [2, 4, 6], mean: 4, variance: 2.666667, scaled: [-1.224745, 0, 1.224745] } },
    "norm-statistics": { ...head("norm-statistics", "What enters and leaves each norm"), alone: "The final norm: RMS 9 enters, 1.5 leaves.", kinds: ["ln1", "ln1_post", "ln2", "ln2_post", "ln_final"].map((kind) => {
      const rows = kind === "ln_final" ? 1 : layers;
      return { kind, title: kind, layered: kind === "ln_final" ? null : true,
        norms: list(rows, (/** @type {number} */ l) => ({ name: kind === "ln_final" ? kind : `blocks.${l}.${kind}`, layer: l, inMean: round(0.02 * g.normal()), inSigma: round(1 + l * 0.3), inRms: round(1 + l * 0.3), outMean: round(0.02 * g.normal()), outSigma: round(1 + g.next()), outRms: round(1 + g.next()), weightMean: round(1 + 0.3 * g.next()), weightMin: round(0.2 * g.next()), weightMax: round(2 + g.next()) })),
        perToken: n <= 256 ? pack("f32", [rows, 2, n], "dense", list(rows * 2 * n, () => 1 + g.next())) : null };
    }) },
    "head-grouping": { ...head("head-grouping", "Who shares keys and values"), kind: kvHeads === heads ? "MHA" : kvHeads === 1 ? "MQA" : "GQA", groups: list(kvHeads, (/** @type {number} */ i) => list(heads / kvHeads, (/** @type {number} */ j) => (i * heads) / kvHeads + j)), headDim: 64, parameters: { q: 65536, k: 32768, v: 32768, o: 65536 }, cacheBytesPerPosition: 2 * kvHeads * 64 * 4 * layers, cacheBytesPerPositionMha: 2 * heads * 64 * 4 * layers },
    softmax: { ...head("softmax", "From scores to weights"), pair: { scores: [0, -0.693], weights: [0.6666, 0.3334] }, layer: 2, head: 1, target: n - 1, sources: list(Math.min(n, 32), (/** @type {number} */ i) => i), scores: list(Math.min(n, 32), () => round(3 * g.normal())), weights: list(Math.min(n, 32), (/** @type {number} */ i) => (i === 1 ? 0.6 : round(0.4 / Math.min(n, 32)))), sink: bare ? null : { score: -1.5, weight: 0.08 } },
    attention: { ...head("attention", "Attention of every head"), nTokens: n, nLayers: layers, nHeads: heads, level,
      patterns: level === "full" ? perHead.map((row) => pack("u16", [heads, n, n], "causal", row.flatMap((/** @type {Float32Array} */ p) => [...p]))) : null,
      tiles: level === "tiles" ? { bins: tileBins, tokensPerBin, from: list(tileBins, (/** @type {number} */ i) => i * tokensPerBin), max: perHead.map((row) => pack("u8", [heads, tileBins, tileBins], "causal", row.flatMap((/** @type {Float32Array} */ p) => [...p.slice(0, (tileBins * (tileBins + 1)) / 2)]))) } : null,
      top: level === "tiles" ? topOf(g, n, layers, heads, k) : null,
      flatness: grid(layers, heads, () => g.next()), flatToSpiky: list(layers, (/** @type {number} */ l) => list(heads, (/** @type {number} */ h) => (h + l) % heads)), onFirst: grid(layers, heads, () => g.next()), onPrevious: grid(layers, heads, () => g.next()), onSelf: grid(layers, heads, () => g.next()) },
    "soft-cap": { ...head("soft-cap", "The soft cap"), curve: { x: list(81, (/** @type {number} */ i) => -4 + i / 10), y: list(81, (/** @type {number} */ i) => round(Math.tanh(-4 + i / 10))) }, example: { cap: 2, x: [0.5, 1, 2, 3], y: [0.4898, 0.9242, 1.5232, 1.8103], inCaps: { x: [0.25, 0.5, 1, 1.5], y: [0.2449, 0.4621, 0.7616, 0.9051] } }, diagonal: [-1.25, 1.25], uncapped: bare ? true : null, capped: bare ? [] : [{ what: "logits", cap: 30, changed: 0.02, beyondHalf: 0.0001, largest: "17.2" }], attention: bare ? null : { cap: 50, most: grid(layers, heads, () => 0).map((row) => row.map(() => false)), changed: grid(layers, heads, () => 0.3 * g.next() ** 3), beyondHalf: grid(layers, heads, () => 0.01 * g.next()), largest: grid(layers, heads, () => 30 * g.next()) }, final: bare ? null : { cap: 30, changed: 0.02, beyondHalf: 0.0001, largest: 17.2, most: false } },
    "rope-rotation": bare ? absent("rope-rotation", "Rotated keys", "This model has no rotary positions: it adds a learned vector to each embedding.") : { ...head("rope-rotation", "A key turned by its position"), components: [0, 5].map((c) => ({ component: c, of: 32, frequency: round(10000 ** (-c / 32)), wavelength: round(2 * Math.PI * 10000 ** (c / 32)), points: turned(10000 ** (-c / 32)) })), dot: list(5, (/** @type {number} */ i) => list(5, (/** @type {number} */ j) => round(Math.cos(i - j)))) },
    "rope-wavelengths": bare ? absent("rope-wavelengths", "Wavelengths", "This model has no rotary positions: it adds a learned vector to each embedding.") : { ...head("rope-wavelengths", "How far each pair reaches before it repeats"), theta: 10000, scaling: "none", layout: "halves", frequencies: wavelengths.map((/** @type {number} */ w) => round((2 * Math.PI) / w)), wavelengths, contextLength: 1024, firstBeyondContext: 18, rules: [{ y: 1024, label: "context: 1024 tokens" }, { y: 128, label: "window: 128 tokens" }], stretched: "", turns: "From pair 18 on, a turn takes longer than the whole context." },
    "query-length": bare ? absent("query-length", "Query lengths", "This model has no rotary positions: it adds a learned vector to each embedding.") : { ...head("query-length", "Which wavelengths each head uses"), wavelengths, layers: list(layers, () => pack("f32", [heads, 32], "dense", list(heads * 32, (/** @type {number} */ i) => Math.abs(g.normal()) * (1 + (i % 32) / 16)))), shown: [0, Math.floor((5 * layers) / 6)], ticks: [{ at: 0, text: "6" }, { at: 8, text: "62" }, { at: 16, text: "628" }], nTokens: n },
    "activation-curves": { ...head("activation-curves", "Activations"), x: list(81, (/** @type {number} */ i) => -2 + i / 20), relu: list(81, (/** @type {number} */ i) => Math.max(0, round(-2 + i / 20))), geluTanh: list(81, (/** @type {number} */ i) => round(gelu(-2 + i / 20))), geluExact: list(81, (/** @type {number} */ i) => round(gelu(-2 + i / 20))), silu: list(81, (/** @type {number} */ i) => round((-2 + i / 20) / (1 + Math.exp(2 - i / 20)))), active: list(layers, () => round(0.2 + 0.3 * g.next())) },
    "mlp-surfaces": { ...head("mlp-surfaces", "A toy MLP as a surface"), x: x.map(round), weights: { proj: [[0.7, 0], [-0.4, 0]], gate: toyGate, up: toyUp, down: toyDown }, kinds: ["linear", "relu", "reglu", "geglu"], surfaces: pack("f32", [4, 61, 61], "dense", list(4 * 61 * 61, (/** @type {number} */ i) => toy(Math.floor(i / 3721), x[Math.floor(i / 61) % 61], x[i % 61]))), regions: pack("u8", [61, 61], "dense", list(3721, (/** @type {number} */ i) => list(3, (/** @type {number} */ h) => (x[Math.floor(i / 61)] * toyGate[0][h] + x[i % 61] * toyGate[1][h] > 0 ? 1 << h : 0)).reduce((/** @type {number} */ p, /** @type {number} */ q) => p + q, 0)), 1), pieces: [7, 6, 2, 0, 1, 5].map((mask) => ({ mask, on: list(3, (/** @type {number} */ h) => ((mask >> h) & 1 ? "1" : "0")).join(""), units: "0, 1", relu: "0.5 x[0] − 0.25 x[1]", reglu: "0.5 x[0]² + 0.1 x[0] x[1] − 0.2 x[1]²", linear: [0.5, -0.25], quadratic: [0.5, 0.1, -0.2] })), sliceAt: [-2, -1, 0, 1, 2], slices: list(4, (/** @type {number} */ kind) => [-2, -1, 0, 1, 2].map((b) => x.map((/** @type {number} */ a) => round(toy(kind, a, b))))) },
    experts: bare ? absent("experts", "Which token went to which expert", "This model has no experts: in each layer every token goes through the same MLP.") : expertsOf(g, n, layers, head("experts", "Which token went to which expert")),
    "expert-load": bare ? absent("expert-load", "Load of the experts", "This model has no experts: in each layer every token goes through the same MLP.") : loadOf(g, layers, head("expert-load", "Load of the experts")),
    "final-norm": { ...head("final-norm", "Size of each token before and after the final norm"), few: n <= 40 ? true : null, many: n <= 40 ? null : true, before: list(n, (/** @type {number} */ i) => round(i === 0 ? 88.5 : 12 + 4 * g.next())), after: list(n, () => round(2.2 + 0.05 * g.next())) },
    "next-tokens": { ...head("next-tokens", "Most likely next tokens"), k: 10, ids: predictions.map((p) => p.ids), probs: predictions.map((p) => p.probs), actual: bare ? null : list(n - 1, (/** @type {number} */ i) => ({ id: ids[i + 1], prob: round(g.next() ** 3), rank: 1 + Math.floor(40 * g.next()) })) },
    "logit-lens": (() => {
      const positions = list(Math.min(n, 24), (/** @type {number} */ i) => n - Math.min(n, 24) + i);
      const cells = positions.map(() => list(layers + 1, () => ranked(5)));
      return { ...head("logit-lens", "What each layer would predict"), positions, depths: ["embedding", ...list(layers, (/** @type {number} */ l) => `layer ${l}`)], k: 5, ids: cells.map((c) => c.map((/** @type {any} */ d) => d.ids)), probs: cells.map((c) => c.map((/** @type {any} */ d) => d.probs)), kl: grid(positions.length, layers + 1, () => 8 * g.next()), finalProb: grid(positions.length, layers + 1, () => g.next() ** 3), finalRank: list(positions.length, () => list(layers + 1, (/** @type {number} */ d) => (d === layers ? 1 : 1 + Math.floor(99 * g.next())))), lengths: list(positions.length, () => list(layers + 1, (/** @type {number} */ d) => round(10 + 9 * d + 5 * g.next()))) };
    })(),
    "tuned-lens": bare ? absent("tuned-lens", "The same through a tuned lens", "No tuned lens of this model is at hand.") : (() => {
      const side = (/** @type {number} */ d, /** @type {number} */ scale) => ({ id: vocabulary[d % vocabulary.length], prob: round(0.9 / (1 + layers - d)), kl: round((scale * (layers - d)) / layers) });
      return { ...head("tuned-lens", "The same through a tuned lens"), positions: list(n, (/** @type {number} */ i) => i), depths: list(layers + 1, (/** @type {number} */ d) => ({ name: d === 0 ? "embedding" : `layer ${d - 1}`, logit: side(d, 8), tuned: side(d, 3) })) };
    })(),
    "logit-attribution": { ...head("logit-attribution", "The logit as a sum"), position: n - 1, components, targets: predictions[n - 1].ids.slice(0, 5).map((/** @type {number} */ target, /** @type {number} */ i) => {
      const parts = components.map(() => round(g.normal() * 0.8));
      const remainder = 1e-6;
      const uncapped = parts.reduce((a, b) => a + b, 0) + remainder;
      return { id: target, prob: predictions[n - 1].probs[i], logit: round(30 * Math.tanh(uncapped / 30)), uncapped: round(uncapped), parts, remainder };
    }) },
    "input-attribution": { ...head("input-attribution", "What the answer owes to each token"), position: n - 1, target: { id: predictions[n - 1].ids[0], logprob: round(Math.log(predictions[n - 1].probs[0])), probability: predictions[n - 1].probs[0] }, complete: `From the baseline, the parts sum to something; complete would be ${Number((Math.log(predictions[n - 1].probs[0]) + 9.25).toPrecision(4))}.`, saliency: list(n, () => round(g.next() ** 2)), gradientInput: list(n, () => round(g.normal() * 0.3)), integrated: bare ? null : { parts: list(n, () => round(g.normal() * 0.4)), baselineLogprob: -9.25, gap: 1e-5, points: 64 } },
    reach: { ...head("reach", "What each layer can see"), nTokens: n, contextLength: 1024, layers: list(layers, (/** @type {number} */ l) => ({ layer: l, window: l % 2 === 0 ? 5 : 0, sees: l % 2 === 0 ? Math.max(0, n - 5) : 0, receives: l === 0 ? Math.max(0, n - 5) : 0, cached: l % 2 === 0 ? Math.min(n, 5) : n, room: l % 2 === 0 ? 5 : 1024, bytes: 1024 * (l % 2 === 0 ? 5 : n) })), bytesAtContext: 6.5e6, bytesAtContextGlobal: 1.2e7 },
    "gradient-norms": { ...head("gradient-norms", "What training sees"), loss: 3.25, stream: list(layers + 1, (/** @type {number} */ l) => ({ name: l < layers ? `entering layer ${l}` : "leaving the last layer", hook: l < layers ? `blocks.${l}.hook_resid_pre` : `blocks.${layers - 1}.hook_resid_post` })), outside: "Outside the layers: `W_E` 0.81.", lost: bare ? null : level === "tiles" ? "The numbers leave the range of 32-bit floats, and no gradient comes back." : "Where the second curve is missing, the gradient has left the range of 32-bit floats.", norms: list(layers + 1, (/** @type {number} */ l) => round(0.2 * 1.5 ** l)), lossWithoutNorms: bare ? null : 12.5, withoutNorms: bare ? null : list(layers + 1, (/** @type {number} */ l) => (l < 2 || level === "tiles" ? null : round(10 ** (layers - l)))), parameters: bare ? null : { attention: list(layers, () => round(0.05 + 0.1 * g.next())), mlp: list(layers, () => round(0.1 + 0.2 * g.next())), rest: [{ name: "W_E", norm: 0.81 }, { name: "ln_final.w", norm: 0.02 }], all: 1.31 } },
    "gradient-hooks": (() => {
      const shown = Math.min(n, 256);
      const lengths = (/** @type {number} */ rows) => pack("f32", [rows, shown], "dense", list(rows * shown, (/** @type {number} */ i) => (i % shown === shown - 1 ? 0 : 0.3 * g.next() ** 2)));
      return { ...head("gradient-hooks", "The gradient at any hook"), positions: list(shown, (/** @type {number} */ i) => n - shown + i), usual: 1, hooks: [{ hook: "hook_embed", norms: lengths(1) }, ...["hook_resid_pre", "ln1.hook_normalized", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "hook_attn_out", "hook_resid_mid", "ln2.hook_normalized", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post"].map((hook) => ({ hook: `blocks.*.${hook}`, norms: lengths(layers) })), { hook: "ln_final.hook_normalized", norms: lengths(1) }].map(({ hook, norms }) => {
        const each = hook.startsWith("blocks.*.");
        const name = each ? hook.slice(9) : hook;
        const rows = list(norms.shape[0] ?? 0, (/** @type {number} */ l) => l);
        return { hook, norms, longest: { norm: 0.3, layer: each ? 0 : null, position: n - 2 }, name, rows: rows.map((l) => (each ? `layer ${l}` : name)), names: rows.map((l) => (each ? `blocks.${l}.${name}` : name)) };
      }) };
    })(),
    interpolation: bare ? absent("interpolation", "Between two rows of weights", "blocks.1.mlp.W_in has fewer than two rows that are not zero, so there is nothing between them.") : { ...head("interpolation", "Between two rows of weights"), ...mergedRows, t: list(41, (/** @type {number} */ i) => i / 40), pairs: [/** @type {const} */ (["alike", 48, 100, 1.2]), /** @type {const} */ (["first", 0, 1, 1.66]), /** @type {const} */ (["opposed", 7, 78, 3.13])].map(([kind, i, j, angle]) => ({ kind, rows: [i, j], ...arcOf(1.06, 1.13, angle) })) },
    "task-vectors": bare ? absent("task-vectors", "Task vectors", "blocks.1.mlp.W_in has fewer than two rows that are not zero, so there is nothing between them.") : (() => {
      const { a, b, arc, cosine, angle, lengths, straight, averageLength, slerpLength } = arcOf(1.05, 1.02, 1.22);
      const eta = list(11, (/** @type {number} */ i) => i / 10);
      return { ...head("task-vectors", "Task vectors"), ...mergedRows, rows: [48, 100], averaged: 128, initialLength: 0.1, lengths: [1.06, 1.04], cosine: 0.37, taskLengths: lengths, taskCosine: cosine, taskAngle: angle, straight, a, b, average: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], slerp: arc[20], arc, averageLength, slerpLength, mergedLengths: { average: 0.87, slerp: 1.05 }, liti: { eta, distances: eta.map((/** @type {number} */ e) => round(e * slerpLength)), lengths: eta.map((/** @type {number} */ e) => round(0.1 + 0.95 * e)) } };
    })(),
  };
  const about = /** @type {Record<string, [string, string[], string[]]>} */ ({
    "dot-product": ["One operation", ["x · a = Σᵢ xᵢ aᵢ"], ["dot-product"]],
    tokens: ["From the string to tokens", [], ["tokens", "merges", "splits"]],
    embedding: ["Each token becomes a vector", ["x[t] = W_E[token[t]]"], ["embedding-cosine", "embedding-neighbors", "position-vectors"]],
    "embedding-scale": ["The vectors are scaled", ["x ← √256 · x"], ["embedding-rescaling"]],
    residual: ["Layers add to a stream", ["x ← x + attention(norm(x))", "x ← x + mlp(norm(x))"], ["update-scale", "residual-scale"]],
    norm: ["Norms keep the scale", ["y = x / √(mean(x²) + ε) · (1 + w)"], ["layer-norm", "norm-statistics"]],
    attention: ["Attention moves information", ["z = softmax(q kᵀ / √H + mask) v"], ["head-grouping", "softmax", "attention"]],
    "soft-cap": ["Scores are capped", ["s ← cap · tanh(s / cap)"], ["soft-cap"]],
    rope: ["Positions as angles", ["q′ = R(t θᵢ) q"], ["rope-rotation", "rope-wavelengths", "query-length"]],
    mlp: ["Each token by itself", ["y = (gelu(x W_gate) ⊙ x W_in) W_out"], [...(bare ? [] : ["experts", "expert-load"]), "activation-curves", "mlp-surfaces"]],
    "final-norm": ["One last norm", [], ["final-norm"]],
    output: ["A score for every word", ["logits = x W_Eᵀ"], ["next-tokens", "logit-lens", "tuned-lens"]],
    attribution: ["Who wrote the answer", [], ["logit-attribution"]],
    "input-attribution": ["Which tokens the answer rests on", ["saliency[t] = |∂f/∂e[t]|"], ["input-attribution"]],
    reach: ["What was remembered", [], ["reach"]],
    "back-propagation": ["The way back", ["g = ∂loss/∂x"], ["gradient-norms", "gradient-hooks"]],
    ...(bare ? {} : { merging: ["Merging models", ["slerp(a, b, t) = sin((1 − t)Ω) / sin Ω · a + sin(tΩ) / sin Ω · b"], ["interpolation", "task-vectors"]] }),
    recap: ["What you have seen", [], []],
  });
  return {
    format: 2,
    version: "0.0.0",
    model: { name: bare ? "some-gpt2" : "", adapter: "", family: bare ? "gpt2" : "gemma2", familyTitle: bare ? "GPT-2" : "Gemma 2", dModel: 256, nLayers: layers, nHeads: heads, nKvHeads: kvHeads, headDim: 64, dFf: 1024, vocabSize: 4096, contextLength: 1024, tied: true, parameters: 8921344, embeddingParameters: 1048576, norm: bare ? "layer_norm" : "rms_norm", normPlace: bare ? "before" : "both", positions: bare ? "learned" : "rotary", heads: kvHeads === heads ? "MHA" : kvHeads === 1 ? "MQA" : "GQA", mlp: bare ? "plain" : "gated", activation: "gelu_tanh", mlpTitle: bare ? "GELU" : "GeGLU", embeddingScale: bare ? null : 16, attentionSoftcap: bare ? 0 : 50, finalSoftcap: bare ? 0 : 30, windows: list(layers, (/** @type {number} */ l) => (!bare && l % 2 === 0 ? 128 : 0)), dtypes: ["bf16"] },
    prompt: { text: bare ? null : text, ids, special: true, shell: bare ? `--tokens ${ids.join(",")} --model some-gpt2` : `'${text.slice(0, 200)}'` },
    tokens,
    pieces: bare ? {} : pieces,
    steps: Object.entries(about).map(([step, [title, formula, names]]) => ({
      id: step, title, formula: [], question: `Why ${step}?`,
      guesses: /** @type {import("../src/data.ts").Guess[]} */ (step === "tokens" ? [{ question: "How many?", choices: ["4", "5", "6"], answer: "5", reveal: "There are 5 of them.", after: 1 }]
        : step === "recap" ? [1, 2].map((i) => ({ question: `Question ${i}?`, choices: ["this", "that"], answer: "that", reveal: "It was that.", after: 1 }))
        : step === "output" ? [{ question: "What comes next?", choices: [], answer: "▁his", reveal: "It is his.", after: 1 }] : []),
      engineers: { text: [`A paragraph for engineers about ${step}.`], formula, pictures: [] },
      text: [`A paragraph of made-up text for the step ${step}. It is long enough to fill a few lines of the column, so that the tests see how text and pictures stand together on a small and on a large screen.`, "And why: a second paragraph with `code` in it, a token, its embedding and the residual stream."],
      source: [{ file: "src/engine/model/gemma2.cpp", line: 120, code: "const Tensor x = rms_norm(ctx, \"ln1\", resid_pre, w.ln1, c.norm);  // [T, D]\nif (a < b && c > d) return;" }],
      shapes: [{ name: "x", hook: "blocks.*.hook_resid_pre", shape: [n, 256], axes: ["token", "component"] }],
      pictures: /** @type {any} */ (names),
      experiments: [],
    })),
    pictures,
  };
}

/** Two vectors of these lengths, so many radians apart, and what lies between them. @param {number} p @param {number} q @param {number} angle */
function arcOf(p, q, angle) {
  const cosine = Math.cos(angle);
  const straight = Math.abs(cosine) > 0.9995;
  const [a, b] = [[p, 0], [round(q * cosine), round(q * Math.sin(angle))]];
  const mix = (/** @type {number} */ x, /** @type {number} */ y) => [round(x * a[0] + y * b[0]), round(x * a[1] + y * b[1])];
  const at = list(41, (i) => i / 40);
  const arc = at.map((t) => (straight ? mix(1 - t, t) : mix(Math.sin((1 - t) * angle) / Math.sin(angle), Math.sin(t * angle) / Math.sin(angle))));
  const [linearLengths, slerpLengths] = [at.map((t) => round(Math.hypot(...mix(1 - t, t)))), arc.map((v) => round(Math.hypot(...v)))];
  return { lengths: [p, q], cosine: round(cosine), angle, degrees: round((angle * 180) / Math.PI), straight, a, b, arc, linearLengths, slerpLengths, averageLength: linearLengths[20], slerpLength: slerpLengths[20], cosHalf: round(Math.cos(angle / 2)) };
}

/** @param {string[]} words @param {any} head @param {(piece: string) => number} id */
function mergesOf(words, head, id) {
  const start = words.flatMap((word) => [...word].map((piece) => ({ id: 300, piece })));
  /** @type {any[]} */
  const steps = [];
  const lengths = words.map((word) => [...word].length);
  let at = 0;
  words.forEach((word, w) => {
    const letters = [...word];
    for (let i = 1; i < lengths[w]; ++i) steps.push({ at, left: 300, right: 301, id: i === lengths[w] - 1 ? id(word) : 300, piece: letters.slice(0, i + 1).join(""), parts: [letters.slice(0, i).join(""), letters[i]], order: 17 * (w + 1) * i });
    ++at;
  });
  return { ...head, start, steps, end: words.map(id), cut: false, orderNote: "order: rank of the merge in the file, 0 is the first that training found" };
}

const expertCount = 8;
const perToken = 2;

/** @param {ReturnType<typeof generator>} g */
function probabilities(g) {
  const raw = list(expertCount, () => Math.exp(2 * g.normal()));
  const sum = raw.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
  return raw.map((/** @type {number} */ p) => p / sum);
}

/** @param {ReturnType<typeof generator>} g @param {number} n @param {number} layers @param {any} head */
function expertsOf(g, n, layers, head) {
  return { ...head, count: expertCount, perToken, share: "probability", first: 0, positions: list(n, (i) => i), layers: list(layers, (layer) => {
    const rows = list(n, () => probabilities(g));
    const best = rows.map((row) => row.map((/** @type {number} */ p, /** @type {number} */ e) => [e, p]).sort((/** @type {number[]} */ a, /** @type {number[]} */ b) => b[1] - a[1]).slice(0, perToken));
    const sum = (/** @type {number[][]} */ one) => one.reduce((s, [, p]) => s + p, 0);
    return {
      layer,
      chosen: pack("u16", [n, perToken], "dense", best.flatMap((one) => one.map((/** @type {number[]} */ [e]) => e)), 1),
      weights: pack("u16", [n, perToken], "dense", best.flatMap((one) => one.map((/** @type {number[]} */ [, p]) => p / sum(one)))),
      probabilities: n > 256 ? null : pack("u16", [n, expertCount], "dense", rows.flat()),
    };
  }) };
}

/** @param {ReturnType<typeof generator>} g @param {number} layers @param {any} head */
function loadOf(g, layers, head) {
  return { ...head, count: expertCount, perToken, share: "probability", ideal: 1 / expertCount, every: true, chosen: 0, layers: list(layers, (layer) => {
    const share = probabilities(g).map(round);
    return { layer, share, probability: probabilities(g).map(round), busiest: share.indexOf(Math.max(...share)), most: Math.max(...share), least: Math.min(...share), idle: 0, balance: round(perToken * (1 + g.next())) };
  }) };
}

/** @param {ReturnType<typeof generator>} g @param {number} n @param {number} layers @param {number} heads @param {number} k */
function topOf(g, n, layers, heads, k) {
  const sources = [];
  const weights = [];
  for (let l = 0; l < layers; ++l) {
    const s = new Float64Array(heads * n * k);
    const w = new Float64Array(heads * n * k);
    for (let h = 0; h < heads; ++h)
      for (let t = 0; t < n; ++t) {
        const at = (h * n + t) * k;
        for (let i = 0; i < Math.min(k, t + 1); ++i) {
          s[at + i] = i === 0 ? t : i === 1 ? t - 1 : Math.floor(g.next() * t);
          w[at + i] = 0.5 ** (i + 1);
        }
      }
    sources.push(pack("u16", [heads, n, k], "dense", s, 1));
    weights.push(pack("u16", [heads, n, k], "dense", w));
  }
  return { k, sources, weights };
}

/** The page as the program writes it, from the built bundle and a document. @param {Vitrine | import("../src/report/data.ts").MergeDocument} document */
export function html(document) {
  const dist = (/** @type {string} */ name) => readFileSync(join(here, "..", "dist", name), "utf8");
  const data = JSON.stringify(document).replace(/</g, "\\u003c");
  return `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>A made-up walk-through</title>
<style>${dist("page.css")}</style></head>
<body><div id="vitrine"><noscript>A made-up page.</noscript></div>
<script id="vitrine-data" type="application/json">${data}</script>
<script>window.vitrine = JSON.parse(document.getElementById("vitrine-data").textContent)</script>
<script>${dist("page.js")}</script>
</body></html>
`;
}

/** The documents of the tests by name. */
export const documents = {
  short: () => fixture(),
  long: () => fixture({ tokens: 2000, layers: 8, heads: 4, level: "tiles", seed: 2 }),
  bare: () => fixture({ tokens: 6, layers: 3, heads: 4, kvHeads: 4, bare: true, seed: 3 }),
  deep: () => fixture({ tokens: 12, layers: 18, heads: 8, kvHeads: 1, seed: 4 }),
};

/** Puts a page into out/ in one piece, for tests that run side by side and write the same one; returns its path. @param {string} name @param {string} text */
export function put(name, text) {
  const folder = join(here, "..", "out");
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `${name}.html`);
  writeFileSync(`${path}.${process.pid}`, text);
  renameSync(`${path}.${process.pid}`, path);
  return path;
}

/** @type {Map<string, string>} */
const written = new Map();

/** Writes one document as a page, once; returns its path. @param {keyof typeof documents} name */
export function writePage(name) {
  const path = written.get(name) ?? put(name, html(documents[name]()));
  written.set(name, path);
  return path;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) for (const name of /** @type {(keyof typeof documents)[]} */ (Object.keys(documents))) console.log(writePage(name));
