// The document this page shows, and the few questions every picture asks of it.

import type { Vitrine } from "./data";
import { piece, spaceMark, spaceShown } from "./format";

/** On the page of another document (report/data.ts) no part that asks for it is drawn. On a live page others take its place. */
export let vitrine = window.vitrine as Vitrine;
/** Whether the page holds the engine and the weights (live/thread.ts). */
export const live = document.getElementById("vitrine-weights") !== null;
/** How often another document has taken the place of the first. */
export let edition = 0;

/** What this vocabulary writes for a space, or nothing. */
export let space = spaceOf();

function spaceOf(): string | null {
  return spaceMark([...Object.values(vitrine.pieces ?? {}), ...(vitrine.tokens ?? []).map((token) => token.piece ?? "")]);
}

/** A piece of this vocabulary, with its spaces and control characters made visible. */
export function visible(text: string): string {
  return piece(text, space);
}

/** Prose that mentions pieces, with the same mark for their spaces. */
export function withSpaces(text: string): string {
  return space === null ? text : text.replaceAll(space, spaceShown);
}

/** A token by its piece; by its id where it has none. */
export function named(piece: string | null | undefined, id: number): string {
  return piece === null || piece === undefined ? `#${id}` : visible(piece);
}

/** The spelling of a token id; its number where the model has no tokenizer. */
export function spelling(id: number): string {
  return named(vitrine.pieces[String(id)], id);
}

/** The spelling of the token at a position of the prompt. */
export function tokenAt(position: number): string {
  const token = vitrine.tokens[position];
  if (token === undefined) return `position ${position}`;
  return named(token.piece, token.id);
}

/** "want (position 2)": which occurrence is meant. */
export function place(position: number): string {
  return `${tokenAt(position)} (position ${position})`;
}

export let positions: readonly number[] = [];
export let tokenNames: readonly string[] = [];
index();

function index(): void {
  positions = (vitrine.tokens ?? []).map((_, position) => position);
  tokenNames = positions.map(tokenAt);
}

/** Puts another document in this one's place; who draws it must then draw again. */
export function replaceDocument(document: Vitrine): void {
  vitrine = document;
  window.vitrine = document;
  // Of another model, or of a text that has the first space.
  space = spaceOf() ?? space;
  ++edition;
  index();
}

/** Adds spellings of tokens that other answers mention. */
export function mention(pieces: Record<string, string>): void {
  Object.assign(vitrine.pieces, pieces);
}

/** A command line that treats this prompt with this model: `vitrine trace options 'I want to move' --model …`. */
export function commandLine(command: string, options: string): string {
  return `vitrine ${command} ${options} ${vitrine.prompt.shell}`;
}
