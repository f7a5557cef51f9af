// A run of training steps, one question to the engine for each, so that the reader sees it go and can stop it. It has weights of its own:
// the page's stay as they are, until the reader puts the trained ones in their place.

import type { OneStep } from "../results";
import { showTrained, showUntrained } from "./actions";
import type { Apart, Engine } from "./engine";
import { set, state, type Course } from "./state";

/** As the request `train` allows. */
export const mostSteps = 200;
const top = 8;

/** Holds the weights of the course of the state. */
let learner: Apart | null = null;
let stopping = new AbortController();

export type Wanted = Pick<Course, "prompt" | "target" | "rate" | "steps">;
type Begun = Wanted & Pick<Course, "commandModel">;

const fields = ({ prompt, target, rate }: Wanted) => ({ prompt, target, rate, top });

/** Steps from the weights of the page's model as it is. Errors: what the engine says is wrong; then there is no course. */
export async function train(asked: Wanted): Promise<void> {
  const { engine } = state();
  if (engine === null) return;
  const wanted = { ...asked, commandModel: engine.commandModel };
  forget();
  const { signal } = stopping = new AbortController();
  const from = performance.now();
  try {
    if (engine.apart === null) return note(wanted, await engine.askApart<OneStep>("train", { ...fields(wanted), steps: wanted.steps }, signal), from, false);
    const own = learner = await engine.apart();
    for (let taken = 0; taken < wanted.steps && !signal.aborted; ++taken) {
      const follow = state().course?.followed.map((one) => one.token);
      const step = await own.ask<OneStep>("train", { ...fields(wanted), goes_on: taken > 0, ...(follow === undefined ? {} : { follow }) });
      if (own !== learner) return;  // forgotten
      note(wanted, step, from, taken + 1 < wanted.steps && !signal.aborted);
    }
  } catch (error) {
    if (signal.aborted) return;
    forget();
    throw error;
  }
}

/** Puts what the engine says of further steps behind the course. */
function note(begun: Begun, step: OneStep, from: number, running: boolean): void {
  const before = state().course;
  set({
    course: {
      ...begun,
      losses: [...(before?.losses ?? step.losses.slice(0, 1)), ...step.losses.slice(1)],
      followed: step.followed.map((one, i) => ({ ...one, logprobs: [...(before?.followed[i]?.logprobs ?? one.logprobs.slice(0, 1)), ...one.logprobs.slice(1)] })),
      before: before?.before ?? step.before,
      last: step,
      seconds: (performance.now() - from) / 1000,
      running,
    },
  });
}

/** Ends the run behind the step that is under way. */
export function stop(): void {
  stopping.abort();
  const { course } = state();
  if (course !== null) set({ course: { ...course, running: false } });
}

/** Drops the course with its weights. */
export function forget(): void {
  stopping.abort();
  learner?.end();
  learner = null;
  set({ course: null });
}

/** Whether the weights of the course can take the place of the page's. */
export function canKeep(engine: Engine | null): boolean {
  return engine !== null && engine.apart !== null && engine.other !== null && learner !== null;
}

/** The trained weights as the page's model: all pictures show it. Errors: what is wrong; then all is as before. */
export async function keep(): Promise<void> {
  const { course, engine } = state();
  const own = learner;
  if (course === null || own === null || engine === null) return;
  const file = await own.askFile("train", { ...fields(course), steps: 0, goes_on: true, format: "gguf" });
  await showTrained(new File([file], trainedName(engine.file?.name ?? "model.gguf")));
  own.end();
  if (learner === own) learner = null;
}

function trainedName(name: string): string {
  return name.endsWith("-trained.gguf") ? name : `${name.replace(/\.gguf$/, "")}-trained.gguf`;
}

/** The page's model as it was before anything was trained here. */
export async function undo(): Promise<void> {
  await showUntrained();
  forget();
}
