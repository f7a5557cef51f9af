// How to reproduce what a cell shows, and how to change it: the command lines, and the recipe of an intervention.

import { Copyable } from "./controls";
import { commandLine } from "./document";

export interface Reproduction {
  /** What was picked: "layer 3, head 1". */
  title: string;
  /** Hook that holds the numbers; its slice is read by `vitrine trace`. */
  hook: string;
  /** The body of a recipe for `vitrine intervene`, or nothing where no single intervention belongs to the cell. */
  recipe: string | null;
  /** What the recipe does, as the end of a sentence: "sets this head's output to zero". */
  does: string;
}

export function Reproduce({ of, onClose }: { of: Reproduction; onClose: () => void }) {
  return (
    <aside class="reproduce" aria-label={`How to reproduce ${of.title}`}>
      <header>
        <strong>{of.title}</strong>
        <button type="button" onClick={onClose}>Close</button>
      </header>
      <p>Read these numbers from your own run:</p>
      <Copyable label="trace command" text={commandLine("trace", `--hooks '${of.hook}' --out values.safetensors`)} />
      {of.recipe !== null && (
        <>
          <p>Change them and see what the prediction becomes. This recipe {of.does}; save it as <code>recipe.yaml</code>:</p>
          <Copyable label="recipe" text={of.recipe} />
          <Copyable label="intervene command" text="vitrine intervene recipe.yaml" />
        </>
      )}
    </aside>
  );
}
