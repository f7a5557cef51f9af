// The run of the changed model, as soon as the engine has it: words and lengths by the logit lens, weights of attention as the picture
// of attention has them.

import { useEffect, useMemo, useState } from "preact/hooks";
import { edition, vitrine } from "../document";
import { edits, promptField, state, useLive } from "../live/state";
import { changedRun, type LensAnswer, type Run } from "./run";

/** Null while nothing is changed, or while the engine has not answered yet. */
export function useChanged(run: Run | null): Run | null {
  const engine = useLive((now) => now.engine);
  const drawing = useLive((now) => now.drawing);
  const attention = useLive((now) => now.edited?.pictures.attention);
  /** What is asked, to be told from what is wanted later. */
  const key = useLive((now) => {
    const list = edits(now);
    return list.length === 0 || now.engine === null ? "" : JSON.stringify([now.models, vitrine.prompt.ids, list]);
  });
  const [answer, set] = useState<{ key: string; lens: LensAnswer } | null>(null);
  useEffect(() => {
    if (key === "" || engine === null || run === null || drawing) return;
    let gone = false;
    const now = state();
    const positions = Array.from({ length: run.rows }, (_, row) => run.first + row);
    engine.ask<LensAnswer>("lens", { ...promptField(now.prompt), edits: edits(now), positions, top: 5 }, "opening-lens").then((lens) => {
      // The prompt may have changed, and the document not yet.
      if (!gone && lens !== null && lens.tokens.join() === vitrine.prompt.ids.join()) set({ key, lens });
      // Where the engine has no lens for this model or change, the answer alone is shown.
    }, () => undefined);
    return () => {
      gone = true;
    };
  }, [key, engine, drawing, edition]);
  const lens = answer !== null && answer.key === key && key !== "" ? answer.lens : null;
  return useMemo(() => (lens === null || run === null ? null : changedRun(run, lens, attention?.available === true ? attention : null)), [lens, run, attention]);
}
