// How to reproduce what a cell shows, and how to change it: the command lines, and the recipe of an intervention.

import { useLayoutEffect, useRef } from "preact/hooks";
import { Copyable } from "./controls";
import { commandLine } from "./document";
import { reveal } from "./reading";

export interface Reproduction {
  /** What was picked: "layer 3, head 1". */
  title: string;
  /** Hook that holds the numbers, for `vitrine trace`. */
  hook: string;
  /** The gradient there, and not the value. */
  gradient?: boolean;
  /** A recipe for `vitrine intervene`, or nothing where no intervention belongs to the cell. */
  recipe: string | null;
  /** What the recipe does, as the end of a sentence. */
  does: string;
}

export function Reproduce({ of, onClose }: { of: Reproduction; onClose: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const heading = useRef<HTMLElement>(null);
  const from = useRef<Element | null>(null);
  // In the same commit that shows the box: an Escape that follows at once must find the focus in it.
  useLayoutEffect(() => {
    from.current = document.activeElement;
    heading.current?.focus({ preventScroll: true });
    reveal(box.current);
  }, []);
  const close = () => {
    onClose();
    if (from.current instanceof HTMLElement || from.current instanceof SVGElement) from.current.focus({ preventScroll: true });
  };
  return (
    <div ref={box} class="reproduce" role="region" aria-label={`How to reproduce: ${of.title}`} onKeyDown={(event) => event.key === "Escape" && close()}>
      <header>
        <strong ref={heading} tabIndex={-1}>{of.title}</strong>
        <button type="button" onClick={close}>Close</button>
      </header>
      <p>Read these numbers from your own run:</p>
      <Copyable label="trace command" text={commandLine("trace", `${of.gradient === true ? "--gradients-at" : "--hooks"} '${of.hook}' --out values.safetensors`)} />
      {of.recipe !== null && (
        <>
          <p>Change them and see what the prediction becomes. This recipe {of.does}. Save it as <code>recipe.yaml</code>:</p>
          <Copyable label="recipe" text={of.recipe} />
          <p>and run it:</p>
          <Copyable label="intervene command" text="vitrine intervene recipe.yaml" />
        </>
      )}
    </div>
  );
}
