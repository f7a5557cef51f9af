// The changes of a live page's state as a recipe of `vitrine intervene`.

import { useEffect, useState } from "preact/hooks";
import { number } from "../format";
import { WithTheProgram } from "./program";
import { edits, recipePrompt, type Edit, type State } from "./state";

interface Made {
  yaml: string;
  kl: (number | null)[];
}

/** What the engine was last asked for: several experiments show the same recipe. */
let latest: { of: string; made: Promise<Made | null> } | null = null;

function recipeOf(of: string, { engine, prompt }: State, list: readonly Edit[]): Promise<Made | null> {
  if (latest?.of !== of) {
    const made = engine === null ? Promise.resolve(null) : engine.ask<Made>("patch", { prompt: recipePrompt(prompt), interventions: list }, "recipe");
    const one = { of, made };
    latest = one;
    // What failed may be asked again.
    made.catch(() => latest === one && (latest = null));
  }
  return latest.made;
}

/** The recipe of the changes, in the engine's own words, how far they move the prediction, and commands that read it. */
export function Recipe({ now, commands }: { now: State; commands: readonly string[] }) {
  const [made, set] = useState<{ of: string; yaml: string; kl: number } | null>(null);
  const list = edits(now);
  const of = JSON.stringify([now.engine?.commandModel, now.prompt, list]);
  useEffect(() => {
    const timer = setTimeout(async () => {
      try {
        const report = await recipeOf(of, now, list);
        if (report !== null) set({ of, yaml: report.yaml, kl: report.kl.at(-1) ?? NaN });
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
