// Command lines of the program that give the numbers of a live page's state. The page's weights are a file there.

import { vitrine } from "../document";
import { byIds, state, type Sampling } from "./state";

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function modelFile(): string {
  const name = state().engine?.fileName ?? "";
  return `--model ${/^[\w.-]+$/.test(name) ? name : quoted(name)}`;
}

function tail(prompt: string): string {
  const model = `${modelFile()} --compute f32`;
  if (byIds()) return `${model} --tokens ${prompt.replace(/\s+/g, "")}`;
  const special = vitrine.prompt.special ? "" : " --no-special";
  return prompt.startsWith("-") ? `${model}${special} -- ${quoted(prompt)}` : `${quoted(prompt)} ${model}${special}`;
}

export function predictCommand(prompt: string): string {
  return `vitrine predict ${tail(prompt)}`;
}

export function generateCommand(prompt: string, { temperature, topK, topP, seed }: Sampling, tokens: number): string {
  const rules = [`--max-tokens ${tokens}`, `--temperature ${temperature}`, ...(topK > 0 ? [`--top-k ${topK}`] : []), ...(topP < 1 ? [`--top-p ${topP}`] : []), `--seed ${seed}`];
  return `vitrine generate ${rules.join(" ")} ${tail(prompt)}`;
}

export function traceCommand(prompt: string, hooks: readonly string[]): string {
  return `vitrine trace ${hooks.map((hook) => `--hooks '${hook}'`).join(" ")} --out values.safetensors ${tail(prompt)}`;
}

export function trainCommand(prompt: string, target: string, rate: number): string {
  return `vitrine train --one-step ${quoted(prompt)} --target ${quoted(target)} --rate ${rate} ${modelFile()}`;
}

export function interveneCommand(): string {
  return `vitrine intervene recipe.yaml ${modelFile()} --compute f32`;
}
