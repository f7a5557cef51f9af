// Pictures that run the model backward take long: with a new prompt, what shows them stays where it is until they are drawn again.

import type { PictureName, Step, Vitrine } from "../data";

/**
 * `now`, which was made without running the model backward, with the steps of `before` that it lacks. They keep what holds for every
 * prompt: title, formula and source. `old`: the ids of steps that lack something, in `before` and in the result.
 */
export function keepSteps(before: Vitrine, old: ReadonlySet<string>, now: Vitrine): { kept: Vitrine; old: ReadonlySet<string> } {
  const lost = (name: PictureName) => now.pictures[name]?.available === false && before.pictures[name]?.available !== false;
  const has = new Set(now.steps.map((step) => step.id));
  const isLost = (step: Step) => !has.has(step.id) && (old.has(step.id) || step.pictures.some(lost));
  const late = new Set(now.steps.filter((step) => step.pictures.some(lost)).map((step) => step.id));
  const steps = now.steps.map((step) => (late.has(step.id) ? { ...step, pictures: step.pictures.filter((name) => !lost(name)) } : step));
  for (const [i, step] of before.steps.entries()) {
    if (!isLost(step)) continue;
    const earlier = new Set(before.steps.slice(0, i).map((one) => one.id));
    const at = steps.findLastIndex((one) => earlier.has(one.id)) + 1;
    steps.splice(at, 0, { ...step, text: [], shapes: [], pictures: [] });
    late.add(step.id);
  }
  // They are not missing, only not there yet.
  const pictures = Object.fromEntries(Object.entries(now.pictures).filter(([name]) => !lost(name as PictureName))) as Vitrine["pictures"];
  return { kept: late.size === 0 ? now : { ...now, steps, pictures }, old: late };
}
