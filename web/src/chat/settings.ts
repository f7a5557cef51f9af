// The sampling controls: one line for each, from which the form, the request and the command line come.

export interface Settings {
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

export const fields: readonly Field[] = [
  { key: "temperature", label: "Temperature", api: "temperature", flag: "--temperature", min: 0, max: 2, step: 0.05, note: "0 always takes the most likely token" },
  { key: "topP", label: "Top-p", api: "top_p", flag: "--top-p", min: 0, max: 1, step: 0.01, note: "the most likely tokens that make up this share" },
  { key: "topK", label: "Top-k", api: "top_k", flag: "--top-k", min: 0, max: 1000, step: 1, note: "only this many of the most likely; 0 is off" },
  { key: "minP", label: "Min-p", api: "min_p", flag: "--min-p", min: 0, max: 1, step: 0.01, note: "at least this share of the most likely token's probability" },
  { key: "repetition", label: "Repetition penalty", api: "repetition_penalty", flag: "--repetition-penalty", min: 0.5, max: 2, step: 0.01, note: "above 1 for fewer repetitions" },
  { key: "seed", label: "Seed", api: "seed", flag: "--seed", min: 0, max: 2 ** 31 - 1, step: 1, note: "the same seed gives the same answer; empty: a new one each time" },
  { key: "maxTokens", label: "Tokens at most", api: "max_tokens", flag: "--max-tokens", min: 1, max: 1e6, step: 1, note: "of one answer" },
];

export const noSettings: Settings = { temperature: null, topP: null, topK: null, minP: null, repetition: null, seed: null, maxTokens: null };

/** How one answer was asked for: what was set, with the seed that was drawn where none was. */
export type Sampling = Partial<Record<string, number>>;

export function sampling(settings: Settings): Sampling {
  const chosen: Sampling = {};
  for (const { key, api } of fields) {
    const value = settings[key];
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
  return fields.flatMap(({ api, flag }) => (of[api] === undefined ? [] : [`${flag} ${of[api]}`])).join(" ");
}
