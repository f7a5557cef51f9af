// Command lines of the program that give the numbers of a live page's state.

import { vitrine } from "../document";
import { quoted } from "./engine";
import { byIds, state, type Course, type Sampling } from "./state";

/** "--model NAME --compute f32". */
function run(): string {
  const engine = state().engine;
  return engine === null ? "" : [engine.commandModel, engine.commandOptions].filter((part) => part !== "").join(" ");
}

function tail(prompt: string): string {
  const model = run();
  if (byIds()) return `${model} --tokens ${prompt.replace(/\s+/g, "")}`;
  const special = vitrine.prompt.special ? "" : " --no-special";
  return prompt.startsWith("-") ? `${model}${special} -- ${quoted(prompt)}` : `${quoted(prompt)} ${model}${special}`;
}

function drawRules({ temperature, topK, topP }: Sampling): string[] {
  return [`--temperature ${temperature}`, ...(topK > 0 ? [`--top-k ${topK}`] : []), ...(topP < 1 ? [`--top-p ${topP}`] : [])];
}

/** Where the settings change what is drawn, with the probabilities in the draw. */
export function predictCommand(prompt: string, sampling: Sampling): string {
  const rules = drawRules(sampling).join(" ");
  return `vitrine predict ${rules === "--temperature 1" || sampling.temperature === 0 ? "" : `${rules} `}${tail(prompt)}`;
}

/** `edited`: with the changes of recipe.yaml. */
export function generateCommand(prompt: string, sampling: Sampling, tokens: number, edited = false): string {
  const rules = [`--max-tokens ${tokens}`, ...drawRules(sampling), `--seed ${sampling.seed}`, ...(edited ? ["--edits recipe.yaml"] : [])];
  return `vitrine generate ${rules.join(" ")} ${tail(prompt)}`;
}

export function traceCommand(prompt: string, hooks: readonly string[]): string {
  return `vitrine trace ${hooks.map((hook) => `--hooks '${hook}'`).join(" ")} --out values.safetensors ${tail(prompt)}`;
}

export function lensCommand(prompt: string): string {
  return `vitrine picture logit-lens --json ${tail(prompt)}`;
}

export function unitsCommand(prompt: string, layer: number, position: number, units: number, top: number): string {
  return `vitrine units --layer ${layer} --position ${position} --units ${units} --top ${top} ${tail(prompt)}`;
}

export function trainCommand({ prompt, target, rate, commandModel }: Course, steps: number): string {
  return `vitrine train --one-step ${quoted(prompt)} --target ${quoted(target)} --rate ${rate}${steps === 1 ? "" : ` --steps ${steps}`} ${commandModel}`;
}

export function interveneCommand(): string {
  return `vitrine intervene recipe.yaml ${run()}`;
}
