// What the reader looks at in the opening: how far the run is drawn, which token's prediction is shown, and how far the drawing is
// opened, from the whole model to one dot product.

import { store } from "../store";

export interface Look {
  /** The run is drawn up to this depth: 0 is the embedding, d is after layer d − 1. Null: to the end. */
  depth: number | null;
  /** Position of the token whose prediction is shown; null: the last. */
  token: number | null;
  /** The layer, its head, the token that looks back, the token that it looks at: each needs those in front of it. Positions. */
  layer: number | null;
  head: number | null;
  query: number | null;
  key: number | null;
  playing: boolean;
}

export const whole = { layer: null, head: null, query: null, key: null } as const;

export const { state: look, set: setLook, use: useLook } = store<Look>({ depth: null, token: null, ...whole, playing: false });

/** How far the drawing is opened: 0 the whole model, 1 a layer, 2 a head, 3 a row of attention, 4 a dot product. */
export function level(of: Look): number {
  const end = [of.layer, of.head, of.query, of.key].indexOf(null);
  return end < 0 ? 4 : end;
}

/** One level out. */
export function out(of: Look): Partial<Look> {
  if (of.key !== null) return { key: null };
  if (of.query !== null) return { query: null };
  return of.head !== null ? { head: null } : { layer: null };
}

/** The same within the run's sizes; what does not exist is as if it had not been asked for. */
export function within(of: Look, sizes: { layers: number; heads: number; first: number; tokens: number }): Look {
  const inside = (value: number | null, from: number, to: number) => (value !== null && Number.isInteger(value) && value >= from && value < to ? value : null);
  const last = sizes.tokens - 1;
  const depth = inside(of.depth, 0, sizes.layers);
  const token = inside(of.token, sizes.first, last);
  const layer = inside(of.layer, 0, sizes.layers);
  const head = layer === null ? null : inside(of.head, 0, sizes.heads);
  const query = head === null ? null : inside(of.query, sizes.first, sizes.tokens);
  const key = query === null ? null : inside(of.key, sizes.first, query + 1);
  return { depth, token, layer, head, query, key, playing: of.playing };
}
