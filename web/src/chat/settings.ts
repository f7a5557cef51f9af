// The sampling controls: one line for each, from which the form, the request and the command line come.

import { samplingOptions } from "./sampling_options";

type OptionName = keyof typeof samplingOptions;

export interface Settings extends Partial<Record<OptionName, number | null>> {
  temperature: number | null;
  topP: number | null;
  topK: number | null;
  minP: number | null;
  repetition: number | null;
  seed: number | null;
  maxTokens: number | null;
}

export interface Field {
  key: keyof Settings;
  label: string;
  /** In a request. */
  api: string;
  /** On the command line. */
  flag: string;
  min: number;
  max: number;
  step: number;
  note: string;
}

/** A control of one of the program's sampling options; at most `max`, where sliders are of use. */
function option(key: keyof Settings, label: string, name: OptionName, step: number, max: number): Field {
  const { low, high, help } = samplingOptions[name];
  return { key, label, api: name, flag: `--${name.replaceAll("_", "-")}`, min: Math.max(low, 0), max: Math.min(high, max), step, note: help };
}

export const fields: readonly Field[] = [
  option("temperature", "Temperature", "temperature", 0.05, 2),
  option("topP", "Top-p", "top_p", 0.01, 1),
  option("topK", "Top-k", "top_k", 1, 1000),
  option("minP", "Min-p", "min_p", 0.01, 1),
  option("repetition", "Repetition penalty", "repetition_penalty", 0.01, 2),
  { key: "seed", label: "Seed", api: "seed", flag: "--seed", min: 0, max: 2 ** 31 - 1, step: 1, note: "The same seed gives the same answer; empty: a new one each time." },
  { key: "maxTokens", label: "Tokens at most", api: "max_tokens", flag: "--max-tokens", min: 1, max: 1e6, step: 1, note: "Of one answer." },
];

/** The other rules, as the program names and orders them. */
export const moreFields: readonly Field[] = (Object.keys(samplingOptions) as OptionName[])
  .filter((name) => fields.every(({ api }) => api !== name))
  .map((name) => option(name, name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "), name, samplingOptions[name].whole ? 1 : 0.01, 1e6));

const allFields = [...fields, ...moreFields];

export function isSetting(api: string): boolean {
  return allFields.some((field) => field.api === api);
}

export const settingKeys: readonly (keyof Settings)[] = allFields.map(({ key }) => key);

export const noSettings: Settings = { temperature: null, topP: null, topK: null, minP: null, repetition: null, seed: null, maxTokens: null };

/** How one answer was asked for: what was set, with the seed that was drawn where none was. */
export type Sampling = Partial<Record<string, number>>;

export function sampling(settings: Settings): Sampling {
  const chosen: Sampling = {};
  for (const { key, api } of allFields) {
    const value = settings[key] ?? null;
    if (value !== null) chosen[api] = value;
  }
  // Said even where it is the API's own, because the command line's is another. 16 tokens, the API's own of a completion, cut most
  // answers off.
  chosen["temperature"] ??= 1;
  chosen["max_tokens"] ??= 512;
  if (settings.temperature !== 0) chosen["seed"] ??= Math.floor(Math.random() * 2 ** 31);
  return chosen;
}

/** The flags of `vitrine generate` for it. */
export function flags(of: Sampling): string {
  return allFields.flatMap(({ api, flag }) => (of[api] === undefined ? [] : [`${flag} ${of[api]}`])).join(" ");
}
