// Pictures that run the model backward take long: with a new prompt, what shows them stays where it is until they are drawn again.

import type { PictureName, Step, Vitrine } from "../data";

/** What a step may have behind a fold, and questions to guess at: they speak of the run. */
interface Parts {
  engineers?: { text: string[]; formula: string[]; pictures: PictureName[] };
  guesses?: unknown[];
}

function picturesOf(step: Step & Parts): PictureName[] {
  return [...step.pictures, ...(step.engineers?.pictures ?? [])];
}

/** The step with what holds for every prompt. */
function standing(step: Step & Parts): Step {
  const { engineers, guesses } = step;
  return {
    ...step,
    text: [],
    shapes: [],
    ...(guesses === undefined ? {} : { guesses: [] }),
    ...(engineers === undefined ? {} : { engineers: { ...engineers, text: [] } }),
  };
}

/**
 * `now`, which was made without running the model backward, with the steps of `before`, a whole document, that it lacks. They keep what
 * holds for every prompt: title, formula and source. `old`: the ids of steps that lack something.
 */
export function keepSteps(before: Vitrine, now: Vitrine): { kept: Vitrine; old: ReadonlySet<string> } {
  const lost = (name: PictureName) => now.pictures[name]?.available === false && before.pictures[name]?.available !== false;
  const has = new Set(now.steps.map((step) => step.id));
  const late = new Set(now.steps.filter((step) => picturesOf(step).some(lost)).map((step) => step.id));
  const steps = [...now.steps];
  for (const [i, step] of before.steps.entries()) {
    if (has.has(step.id) || !picturesOf(step).some(lost)) continue;
    const earlier = new Set(before.steps.slice(0, i).map((one) => one.id));
    const at = steps.findLastIndex((one) => earlier.has(one.id)) + 1;
    steps.splice(at, 0, standing(step));
    late.add(step.id);
  }
  // They are not missing, only not there yet.
  const pictures = Object.fromEntries(Object.entries(now.pictures).filter(([name]) => !lost(name as PictureName))) as Vitrine["pictures"];
  return { kept: late.size === 0 ? now : { ...now, steps, pictures }, old: late };
}
