// The recipes that the page offers for what a reader picks.

import type { Reproduction } from "./recipe";

export function headRecipe(layer: number, head: number): Reproduction {
  return { title: `Layer ${layer}, head ${head}`, hook: `blocks.${layer}.attn.hook_pattern`, recipe: null, does: "sets what this head writes to zero" };
}

export function mlpRecipe(layer: number): Reproduction {
  return { title: `MLP of layer ${layer}`, hook: `blocks.${layer}.hook_mlp_out`, recipe: null, does: "sets what this MLP writes to zero" };
}
