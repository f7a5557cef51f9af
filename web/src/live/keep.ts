// Pictures that run the model backward take long: with a new prompt, what shows them stays where it is until they are drawn again.

import type { PictureName, Vitrine } from "../data";

/**
 * `now`, which was made without running the model backward, with the steps of `before`, a whole document, that it lacks. They keep what
 * holds for every prompt: title, formula and source. `old`: the ids of steps that lack something.
 */
export function keepSteps(before: Vitrine, now: Vitrine): { kept: Vitrine; old: ReadonlySet<string> } {
  const lost = (name: PictureName) => now.pictures[name]?.available === false && before.pictures[name]?.available !== false;
  const has = new Set(now.steps.map((step) => step.id));
  const late = new Set(now.steps.filter((step) => step.pictures.some(lost)).map((step) => step.id));
  const steps = [...now.steps];
  for (const [i, step] of before.steps.entries()) {
    if (has.has(step.id) || !step.pictures.some(lost)) continue;
    const earlier = new Set(before.steps.slice(0, i).map((one) => one.id));
    const at = steps.findLastIndex((one) => earlier.has(one.id)) + 1;
    steps.splice(at, 0, { ...step, text: [], shapes: [] });
    late.add(step.id);
  }
  // They are not missing, only not there yet.
  const pictures = Object.fromEntries(Object.entries(now.pictures).filter(([name]) => !lost(name as PictureName))) as Vitrine["pictures"];
  return { kept: late.size === 0 ? now : { ...now, steps, pictures }, old: late };
}
