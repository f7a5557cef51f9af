// What a reader of a live page has asked for, and what the engine has answered. Parts are replaced, never changed, and whoever
// draws them is told.

import type { Vitrine } from "../data";
import { vitrine } from "../document";
import type { OneStep, TokenLogprob } from "../results";
import { store } from "../store";
import type { Engine } from "./engine";

export interface Likely extends TokenLogprob {
  /** Probability under the sampling settings; 0: cut. */
  kept: number;
}

/** The answer to `next`. */
export interface Next {
  tokens: number[];
  pieces: (string | null)[];
  next: Likely[];
  left: number;
}

/** One change of the model, as an entry of a recipe's list interventions (docs/intervene.md). */
export type Edit = Readonly<Record<string, unknown>>;

export interface Sampling {
  temperature: number;
  /** 0: off. */
  topK: number;
  /** 1: off. */
  topP: number;
  seed: number;
}

/** Text that is added to the residual stream as a direction: what `plus` has more than `minus`. */
export interface Steering {
  plus: string;
  minus: string;
  layer: number;
  times: number;
}

/** A run of training steps on the reader's sentence, as far as it is. */
export interface Course {
  prompt: string;
  target: string;
  rate: number;
  /** How many were asked for. */
  steps: number;
  /** "--model NAME" of the weights that the run began with. */
  commandModel: string;
  /** Before the first step, and after each. */
  losses: number[];
  /** The same of tokens after the prompt: the target's first, and the answer from before. */
  followed: OneStep["followed"];
  before: TokenLogprob[];
  /** What the last step says; null before the first. */
  last: OneStep | null;
  seconds: number;
  running: boolean;
}

export interface State {
  engine: Engine | null;
  /** The page's model, while one that was trained here stands in its place. */
  untrained: Engine | null;
  course: Course | null;
  /** How often another model has taken the place of the page's. */
  models: number;
  prompt: string;
  sampling: Sampling;
  /** Parts that are switched off, by name: "head 3.1", "attn 2", "mlp 2", "norm blocks.2.ln1", "position 4". */
  off: ReadonlySet<string>;
  /** Parts are switched off at this position alone; null: at every one. */
  where: number | null;
  steering: Steering | null;
  /** MLP units that are taken away, by name: "6.17 at 9". */
  units: ReadonlyMap<string, Edit>;
  /** Of the model as it is, and of the changed one (null where nothing is changed). */
  plain: Next | null;
  changed: Next | null;
  /** Pictures of the changed model, by their names; null: there are none. */
  edited: Vitrine | null;
  /** What the engine refused, in its words. */
  trouble: string;
  /** The engine works. */
  busy: boolean;
  /** The pictures of the page belong to another prompt, and new ones are being made. */
  drawing: boolean;
  /** Steps whose pictures need the model run backward and were made for another prompt: their ids. */
  old: ReadonlySet<string>;
}

export const { state, set, use: useLive } = store<State>({
  engine: null, untrained: null, course: null, models: 0, prompt: "", sampling: { temperature: 1, topK: 0, topP: 1, seed: 0 }, off: new Set(), where: null, steering: null, units: new Map(), plain: null, changed: null, trouble: "", busy: true, drawing: false, old: new Set(), edited: null,
});

/** Whether the page's prompt is ids, because it was given so or the model has no tokenizer. */
export function byIds(): boolean {
  return vitrine.prompt.text === null;
}

/** The prompt as a request names it. */
export function promptField(prompt: string): { prompt: string | number[]; add_special?: boolean } {
  if (!byIds()) return vitrine.prompt.special ? { prompt } : { prompt, add_special: false };
  const ids = prompt.split(",").map((id) => id.trim()).filter((id) => id !== "").map(Number);
  if (ids.length === 0 || ids.some((id) => !Number.isInteger(id) || id < 0)) throw new Error("The prompt is a list of token ids: 2, 651, 77");
  return { prompt: ids };
}

/** The prompt as a recipe names it. */
export function recipePrompt(prompt: string): unknown {
  const { prompt: given, add_special: special } = promptField(prompt);
  return special === false ? { text: given, special: false } : given;
}

export function samplingFields({ temperature, topK, topP }: Sampling): object {
  return { temperature, ...(topK > 0 ? { top_k: topK } : {}), ...(topP < 1 ? { top_p: topP } : {}) };
}

/** The changes of the state as a recipe lists them. */
export function edits({ off, where, steering, units }: Pick<State, "off" | "where" | "steering" | "units">): Edit[] {
  const list = [...off].map((name): Edit => {
    const [part = "", of = ""] = name.split(" ");
    if (part === "position") return { positions: [Number(of)], do: "zero" };
    return { [part]: of, ...(where === null ? {} : { positions: [where] }), do: part === "norm" ? "identity" : "zero" };
  });
  if (steering !== null && steering.plus !== "" && steering.minus !== "")
    list.push({ hook: `blocks.${steering.layer}.hook_resid_post`, do: "add", vector: { plus: steering.plus, minus: steering.minus }, times: steering.times });
  return [...list, ...units.values()];
}
