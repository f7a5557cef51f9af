// Written by the test SettingsOfThePageAreThoseOfTheCode from src/engine/generate/sampling_options.cpp.

export interface SamplingOption {
  whole: boolean;
  low: number;
  high: number;
  help: string;
}

export const samplingOptions = {
  temperature: { whole: false, low: 0.0, high: 1000000.0, help: "Divide logits by this and sample; 0 is greedy." },
  top_k: { whole: true, low: -1.0, high: 2147483647.0, help: "Sample from the k most likely tokens; 0 and -1 are off." },
  top_p: { whole: false, low: 0.0, high: 1.0, help: "Sample from the most likely tokens whose probabilities sum to this; 1 is off." },
  min_p: { whole: false, low: 0.0, high: 1.0, help: "Sample from tokens with at least this times the probability of the most likely one; 0 is off." },
  typical_p: { whole: false, low: 0.0, high: 1.0, help: "Sample from the most typical tokens (locally typical sampling) whose probabilities sum to this; 1 is off." },
  top_n_sigma: { whole: false, low: -1.0, high: 1000000.0, help: "Sample from tokens whose logit is within this many standard deviations of the largest; 0 and -1 are off." },
  xtc_probability: { whole: false, low: 0.0, high: 1.0, help: "Probability, at each token, that all but the least likely of the tokens above xtc_threshold are removed (XTC); 0 is off." },
  xtc_threshold: { whole: false, low: 0.0, high: 1.0, help: "With xtc_probability: the probability from which XTC may remove a token, by default 0.1; above 0.5 XTC is off." },
  mirostat: { whole: true, low: 0.0, high: 2.0, help: "Keep the surprise of the text near mirostat_tau by Mirostat, version 1 or 2; 0 is off." },
  mirostat_tau: { whole: false, low: 0.0, high: 1000000.0, help: "With mirostat: the surprise aimed at, in bits, by default 5." },
  mirostat_eta: { whole: false, low: 0.0, high: 1000000.0, help: "With mirostat: how fast the limit follows the surprise, by default 0.1." },
  repetition_penalty: { whole: false, low: 0.0, high: 1000000.0, help: "Divide the positive logits of previous tokens by this, multiply negative ones; 1 is off." },
  frequency_penalty: { whole: false, low: -1000000.0, high: 1000000.0, help: "Subtract this from a token's logit for each time it was generated; 0 is off." },
  presence_penalty: { whole: false, low: -1000000.0, high: 1000000.0, help: "Subtract this from a token's logit if it was generated; 0 is off." },
  dry_multiplier: { whole: false, low: 0.0, high: 1000000.0, help: "DRY: subtract this * base^(n - allowed length) from the logit of a token that would continue a repetition of n tokens; 0 is off." },
  dry_base: { whole: false, low: 1.0, high: 1000000.0, help: "With dry_multiplier: the base, by default 1.75." },
  dry_allowed_length: { whole: true, low: 0.0, high: 2147483647.0, help: "With dry_multiplier: shorter repetitions are allowed, by default 2." },
  dry_penalty_last_n: { whole: true, low: -1.0, high: 2147483647.0, help: "With dry_multiplier: the number of last tokens in which repetitions are found; -1, the default, is all; 0 is off." },
} satisfies Record<string, SamplingOption>;
