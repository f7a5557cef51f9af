// The recipes that the page offers for what a reader picks: docs/intervene.md explains their keys.

import { spelling, vitrine } from "./document";
import { plural } from "./format";
import type { Reproduction } from "./recipe";

interface Change {
  /** "head", "attn", "mlp", "layer" or "norm", and which. */
  part: string;
  of: string | readonly string[];
  does: "zero" | "identity";
  position?: number;
  /** The token whose log-probability is compared before and after. */
  token?: number;
  /** With it, the difference of the two logits is compared instead. */
  against?: number;
  at?: number;
}

/** How an effect is measured where a picture is about one token's score. */
interface Measure {
  position?: number;
  token?: number;
  against?: number;
  at?: number;
}

/** Text in YAML's double quotes, which take every escape of JSON. */
function quoted(text: string): string {
  return JSON.stringify(text);
}

function recipe(change: Change): string {
  const { model, prompt } = vitrine;
  const plain = prompt.text !== null && prompt.special;
  const measure = change.against === undefined ? `logprob: ${change.token}` : `logit_difference: [${change.token}, ${change.against}]`;
  return [
    ...(model.name === "" ? [] : [`model: ${quoted(model.name)}`]),
    ...(model.adapter === "" ? [] : [`adapter: ${quoted(model.adapter)}`]),
    `prompt: ${plain ? quoted(prompt.text!) : `{tokens: [${prompt.ids.join(", ")}]}`}`,
    ...(change.token === undefined ? [] : [`metric: {${measure}, position: ${change.at ?? -1}}`]),
    "interventions:",
    `  - ${change.part}: ${typeof change.of === "string" ? quoted(change.of) : `[${change.of.map(quoted).join(", ")}]`}`,
    ...(change.position === undefined ? [] : [`    positions: ${change.position}`]),
    `    do: ${change.does}`,
    "",
  ].join("\n");
}

/** A head: everywhere, or at one position; measured by one token where `token` is given. */
export function headOff(layer: number, head: number, more: Measure = {}): Reproduction {
  const here = more.position === undefined ? "" : ` at position ${more.position}`;
  return {
    title: `Layer ${layer}, head ${head}${here}`,
    hook: `blocks.${layer}.attn.hook_pattern`,
    recipe: recipe({ part: "head", of: `${layer}.${head}`, does: "zero", ...more }),
    does: `sets what this head writes${here} to zero`,
  };
}

export function sublayerOff(layer: number, part: "attention" | "mlp", more: Measure = {}): Reproduction {
  const name = part === "attention" ? "attention" : "MLP";
  const here = more.position === undefined ? "" : ` at position ${more.position}`;
  return {
    title: `The ${name} of layer ${layer}${here}`,
    hook: `blocks.${layer}.hook_${part === "attention" ? "attn" : "mlp"}_out`,
    recipe: recipe({ part: part === "attention" ? "attn" : "mlp", of: String(layer), does: "zero", ...more }),
    does: `sets what this ${name} writes${here} to zero`,
  };
}

/** `norm` is a hook name without its last part: "blocks.0.ln1". */
export function normOff(norm: string): Reproduction {
  return { title: norm, hook: `${norm}.hook_normalized`, recipe: recipe({ part: "norm", of: norm, does: "identity" }), does: "lets this norm pass its input on unchanged" };
}

/** Every norm, or, where numbers would then leave the range of f32, those of the first `layers` layers. */
export function normsOff(layers: number | "all"): Reproduction {
  const some = layers === "all" ? "*" : Array.from({ length: layers }, (_, layer) => `blocks.${layer}.*`);
  return {
    title: layers === "all" ? "All norms" : `The norms of the first ${plural(layers, "layer")}`,
    hook: "blocks.*.hook_resid_pre",
    recipe: some.length === 0 ? null : recipe({ part: "norm", of: some, does: "identity" }),
    does: layers === "all" ? "lets every norm pass its input on unchanged" : "lets these norms pass their input on unchanged; with all of them off, numbers leave the range of 32-bit floats and the run stops",
  };
}

/** A layer as a whole, seen from the logit lens: `depth` 0 is the embedding. */
export function layerOff(depth: number, token: number, position: number): Reproduction {
  const layer = depth - 1;
  return {
    title: depth === 0 ? "The embedding" : `Layer ${layer}`,
    hook: depth === 0 ? "hook_embed" : `blocks.${layer}.hook_resid_post`,
    recipe: depth === 0 ? null : recipe({ part: "layer", of: String(layer), does: "identity", token, at: position }),
    does: `lets this layer pass its input on unchanged and says what becomes of ${spelling(token)} after position ${position}`,
  };
}

/** The whole gradient of the loss at a hook: there is nothing to change. */
export function gradientAt(hook: string): Reproduction {
  return { title: `The gradient at ${hook}`, hook, gradient: true, recipe: null, does: "" };
}
