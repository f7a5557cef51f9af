// The run of the changed model, as soon as the engine has it: words and lengths by the logit lens, weights of attention.

import { useEffect, useMemo, useState } from "preact/hooks";
import { edition, vitrine } from "../document";
import { edits, promptField, useLive } from "../live/state";
import { changedRun, type LensAnswer, type Run } from "./run";

interface Answer {
  /** What was asked, to be told from what is wanted now. */
  key: string;
  lens: LensAnswer;
  patterns: number[][][][] | null;
}

interface Inspected {
  hooks: { name: string; values: number[][][] }[];
}

/** More numbers than this make the opening wait for what it hardly shows. */
const mostWeights = 200_000;

/** Null while nothing is changed, or while the engine has not answered yet. */
export function useChanged(run: Run | null): Run | null {
  const now = useLive();
  const list = edits(now);
  const key = list.length === 0 || now.engine === null ? "" : JSON.stringify([vitrine.prompt.ids, list]);
  const [answer, set] = useState<Answer | null>(null);
  useEffect(() => {
    if (key === "" || now.engine === null || run === null || now.drawing) return;
    let gone = false;
    const { engine, prompt } = now;
    const made = async () => {
      const fields = { ...promptField(prompt), edits: list };
      const positions = Array.from({ length: run.rows }, (_, row) => run.first + row);
      const lens = await engine!.ask<LensAnswer>("lens", { ...fields, positions, top: 5 }, "opening-lens");
      // The prompt may have changed, and the document not yet.
      if (gone || lens === null || lens.tokens.join() !== vitrine.prompt.ids.join()) return;
      set({ key, lens, patterns: null });
      const size = run.layers * run.heads * vitrine.tokens.length ** 2;
      if (!run.attention || size > mostWeights) return;
      const seen = await engine!.ask<Inspected>("inspect", { ...fields, hooks: ["blocks.*.attn.hook_pattern"] }, "opening-patterns");
      if (!gone && seen !== null) set({ key, lens, patterns: seen.hooks.map((hook) => hook.values) });
    };
    // Where the engine has no lens for this model or change, the answer alone is shown.
    made().catch(() => undefined);
    return () => {
      gone = true;
    };
  }, [key, now.engine, now.drawing, edition]);
  const valid = answer !== null && answer.key === key && key !== "" && run !== null ? answer : null;
  return useMemo(() => (valid === null || run === null ? null : changedRun(run, valid.lens, valid.patterns)), [valid, run]);
}
