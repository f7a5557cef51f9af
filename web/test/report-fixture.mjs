// Made-up reports of merges that follow the contract of src/report/data.ts: every number comes from a fixed generator, so that
// two runs give the same page. `node test/report-fixture.mjs` writes them to out/ as pages to look at.

import { fileURLToPath } from "node:url";
import { generator, html, list, put, round } from "./fixture.mjs";

/** @typedef {import("../src/report/data.ts").MergeDocument} MergeDocument */

const names = ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight", "post_attention_layernorm.weight"];

/**
 * @param {{inputs?: number, layers?: number, base?: number | null, perLayer?: number, method?: string, seed?: number}} [options]
 * @returns {MergeDocument}
 */
export function report({ inputs = 3, layers = 8, base = 0, perLayer = names.length, method = "dare_ties", seed = 1 } = {}) {
  const g = generator(seed);
  const slerp = method === "slerp";
  const titles = /** @type {Record<string, string>} */ ({ slerp: "SLERP", dare_ties: "DARE with TIES", passthrough: "passthrough" });
  const byInput = (/** @type {(i: number) => number} */ f) => list(inputs, (i) => (i === base ? null : round(f(i))));
  const tensor = (/** @type {string} */ name, /** @type {number} */ layer) => {
    const attention = name.includes("attn");
    const pruned = method === "dare_ties" && !name.includes("norm");
    return {
      name, layer, elements: 256 * 1024, shape: [1024, 256],
      norms: byInput((i) => 0.5 + 0.2 * i + 0.05 * layer + 0.1 * g.next()),
      cosines: list(inputs, (i) => list(inputs - 1 - i, (k) => (i === base || i + 1 + k === base ? null : round(0.3 * g.normal())))).flat(),
      signConflict: inputs > 1 && !slerp ? round(0.3 + 0.3 * g.next()) : null,
      kept: pruned ? byInput(() => 0.5 + 0.01 * g.normal()) : [],
      angle: inputs > 1 ? round(1.2 + 0.3 * g.next()) : null,
      resultNorm: round(12 + g.next()),
      resultDistance: method === "passthrough" ? null : round(0.4 + 0.04 * layer),
      parameters: slerp ? { t: [round(layer < 0 ? 0.5 : attention ? layer / layers : 1 - layer / layers)] } : method === "passthrough" ? {} : { density: byInput((i) => (layer < 4 ? 0.5 : 0.4 + 0.02 * i)), weight: byInput(() => 0.5), lambda: [1] },
    };
  };
  return {
    format: 1, kind: "merge", version: "0.0.0", title: `${titles[method] ?? method} of ${inputs} models`, method, methodTitle: titles[method] ?? method,
    paper: slerp ? "Shoemake 1985" : "arXiv:2311.03099", paperAddress: slerp ? null : "https://arxiv.org/abs/2311.03099",
    inputs: list(inputs, (i) => (inputs === 2 ? `${["good", "bad"][i]}/final` : `models/child-${i}-with-a-long-<b>name`)), base,
    recipe: "merge_method: " + method + "\nmodels:\n  - model: \"</script><b>\"  # not the end\n    parameters: {density: 0.5}\n",
    notes: ["`lm_head.weight` is tied to the embedding", "2 tensors were copied from the base"],
    tensors: [tensor("model.embed_tokens.weight", -1), tensor("model.norm.weight", -1), ...list(layers, (layer) => list(perLayer, (i) => tensor(`model.layers.${layer}.${names[i % names.length]}${i < names.length ? "" : i}`, layer))).flat()],
  };
}

/** The reports of the tests by name. */
export const reports = {
  "report-ties": () => report(),
  "report-slerp": () => report({ inputs: 2, base: null, method: "slerp", seed: 2 }),
  "report-one": () => report({ inputs: 1, base: null, layers: 1, method: "passthrough", seed: 3 }),
  "report-large": () => report({ inputs: 10, layers: 80, perLayer: 25, seed: 4 }),
  "report-flat": () => report({ inputs: 2, base: null, layers: 0, method: "slerp", seed: 5 }),
};

/** Writes one report as a page; returns its path. @param {keyof typeof reports} name */
export const writeReport = (name) => put(name, html(reports[name]()));

if (process.argv[1] === fileURLToPath(import.meta.url)) for (const name of /** @type {(keyof typeof reports)[]} */ (Object.keys(reports))) console.log(writeReport(name));
