// A second prompt for patching: as many tokens as the first, one of them another.

import { vitrine } from "../document";
import type { Engine } from "./engine";
import { byIds, promptField, type Next } from "./state";
import { written } from "./written";

/** Words that mean the same but for one thing. */
const partners = [["king", "queen"], ["prince", "princess"], ["man", "woman"], ["boy", "girl"], ["father", "mother"], ["son", "daughter"], ["brother", "sister"], ["he", "she"], ["his", "her"], ["him", "her"], ["old", "young"], ["day", "night"]] as const;

/** " his" for " her": the word that means the same but for one thing; null: it has none. */
export function partner(text: string): string | null {
  const word = text.trim();
  const pair = partners.find(([a, b]) => a === word || b === word);
  return pair === undefined ? null : text.replace(word, pair[0] === word ? pair[1] : pair[0]);
}

/** The prompt with one word exchanged, the last that has a partner first. */
function exchanged(prompt: string): string[] {
  const words = [...prompt.matchAll(/\p{L}+/gu)].reverse();
  return words.flatMap((word) => {
    const low = word[0].toLowerCase();
    const pair = partners.find(([a, b]) => a === low || b === low);
    if (pair === undefined) return [];
    const other = pair[0] === low ? pair[1] : pair[0];
    const same = low === word[0] ? other : other[0]!.toUpperCase() + other.slice(1);
    return [prompt.slice(0, word.index) + same + prompt.slice(word.index + low.length)];
  });
}

const next = async (engine: Engine, fields: object, top: number) => engine.ask<Next>("next", { ...fields, top });

/** The prompt with the text of one token exchanged for what the model holds most likely there, from the last but one backward. */
async function* guesses(engine: Engine, { tokens, pieces }: Next): AsyncGenerator<string> {
  for (let at = tokens.length - 2; at > 0; --at) {
    const answer = await next(engine, { prompt: tokens.slice(0, at) }, 8);
    for (const one of answer?.next ?? []) {
      if (one.token === tokens[at] || (one.piece !== null && !/\p{L}{2}/u.test(one.piece))) continue;
      if (byIds()) yield tokens.map((id, i) => (i === at ? one.token : id)).join(", ");
      const all = pieces.map((piece, i) => (vitrine.tokens[i]?.control === true && i === 0 ? "" : written((i === at ? one.piece : piece) ?? "")));
      if (!all.includes(null)) yield all.join("").replace(/^ /, "");
    }
  }
}

/** Nothing where the prompt is too short to change. Errors: what the engine says is wrong. */
export async function secondPrompt(engine: Engine, prompt: string, plain: Next): Promise<string | null> {
  const fits = async (candidate: string) => candidate !== prompt && (await next(engine, promptField(candidate), 1))?.tokens.length === plain.tokens.length;
  if (!byIds()) for (const candidate of exchanged(prompt)) if (await fits(candidate)) return candidate;
  let tried = 0;
  for await (const candidate of guesses(engine, plain)) {
    if (await fits(candidate)) return candidate;
    if (++tried === 24) break;
  }
  return null;
}
