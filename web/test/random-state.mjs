// Random states of a live page, the same at every run: a prompt of words of the model's vocabulary, parts that are switched off, a place
// that is looked at, and the page's address with all of it.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Numbers that look random: each call gives a whole one from 0 to n - 1. @param {number} seed */
export function randomly(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

/** Whole words of a shipped model's vocabulary, each one token behind a space. @param {string} model its folder under models/ */
export function wordsOf(model) {
  const file = join(fileURLToPath(new URL("../../models/", import.meta.url)), model, "tokenizer.json");
  return Object.keys(JSON.parse(readFileSync(file, "utf8")).model.vocab).flatMap((piece) => /^[▁Ġ](\p{L}{2,})$/u.exec(piece)?.[1] ?? []);
}

/** 3 to 12 words: with the mark of the beginning, and a first word in several pieces, 3 to 16 tokens. @param {(n: number) => number} draw @param {readonly string[]} words */
export const promptOf = (draw, words) => Array.from({ length: 3 + draw(10) }, () => words[draw(words.length)]).join(" ");

/**
 * @typedef {object} State
 * @property {string} prompt
 * @property {object[]} edits  what is switched off, as a request names it
 * @property {number | null} depth  the run is drawn up to there; null: to its end
 * @property {number | null} token  whose prediction is shown; null: the last one's
 * @property {readonly number[]} look  layer, head, the token that looks back: as many of them as are opened
 * @property {string} address  behind #
 */

/**
 * A state of a prompt of `tokens` tokens, in which `off` parts are switched off.
 * @param {(n: number) => number} draw @param {string} prompt @param {{layers: number, heads: number, tokens: number}} sizes @param {number} off @returns {State}
 */
export function stateOf(draw, prompt, { layers, heads, tokens }, off) {
  /** @type {Map<string, object>} by their place in the address */
  const parts = new Map();
  while (parts.size < off) {
    const [kind, layer] = [["head", "head", "mlp", "attn"][draw(4)] ?? "head", draw(layers)];
    const of = kind === "head" ? `${layer}.${draw(heads)}` : String(layer);
    parts.set(kind === "head" ? of : `${kind}.${of}`, { [kind]: of, do: "zero" });
  }
  const depth = draw(2) === 0 ? null : draw(layers);
  const token = draw(2) === 0 ? null : draw(tokens - 1);
  const query = draw(tokens);
  const look = [draw(layers), draw(heads), query].slice(0, draw(4));
  const fields = new URLSearchParams({ prompt, off: [...parts.keys()].join(), ...(depth === null ? {} : { depth: String(depth) }), ...(token === null ? {} : { token: String(token) }), ...(look.length === 0 ? {} : { look: look.join(".") }) });
  return { prompt, edits: [...parts.values()], depth, token, look, address: fields.toString() };
}
