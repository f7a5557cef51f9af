// The changes of a live page's state as a recipe of `vitrine intervene`.

import { useEffect, useState } from "preact/hooks";
import { number } from "../format";
import { WithTheProgram } from "./program";
import { edits, recipePrompt, type State } from "./state";

/** The recipe of the changes, in the engine's own words, how far they move the prediction, and commands that read it. */
export function Recipe({ now, commands }: { now: State; commands: readonly string[] }) {
  const [made, set] = useState<{ of: string; yaml: string; kl: number } | null>(null);
  const list = edits(now);
  const of = JSON.stringify([now.prompt, list]);
  useEffect(() => {
    const timer = setTimeout(async () => {
      try {
        const report = await now.engine?.ask<{ yaml: string; kl: (number | null)[] }>("patch", { prompt: recipePrompt(now.prompt), interventions: list }, "recipe");
        if (report) set({ of, yaml: report.yaml, kl: report.kl.at(-1) ?? NaN });
      } catch {
        set(null);  // the prediction has told what is wrong
      }
    }, 250);
    return () => clearTimeout(timer);
  }, [of]);
  if (made === null || made.of !== of) return null;
  return (
    <>
      <p class="remark">KL(before ‖ after) = {number(made.kl)} nats.</p>
      <WithTheProgram recipe={made.yaml} commands={commands} />
    </>
  );
}
