// The state of the page in its address, behind #: what a reader has typed, switched off and opened can be sent to somebody else.
//   prompt=…   of a page that computes
//   off=1.3,mlp.2   heads as layer.head, sub-layers as attn.layer and mlp.layer, switched off
//   depth=3   the run is drawn up to there (0: the embedding, d: after layer d − 1)
//   token=5   the prediction after the token at this position is shown
//   look=3.1.9.8   the layer, its head, the token that looks back, the token that it looks at; the last ones may be missing
//   at=attention   the part of the page that is scrolled to
// Anything else, and whatever does not fit the model, is ignored.

import { whole, type Look } from "./look";

export interface Address {
  prompt: string | null;
  /** Names of parts, as live/state.ts has them: "head 1.3", "mlp 2". */
  off: string[];
  look: Omit<Look, "playing">;
  at: string | null;
}

export interface Sizes {
  layers: number;
  heads: number;
}

const mostPrompt = 8000;
const mostOff = 400;

function natural(text: string | null | undefined): number | null {
  return text !== null && text !== undefined && /^\d{1,7}$/.test(text) ? Number(text) : null;
}

/** "1.3" and "mlp.2" as names of parts of this model; nothing for anything else. */
function partOf(text: string, { layers, heads }: Sizes): string | null {
  const [, kind, first, second] = /^(?:(attn|mlp)\.)?(\d{1,7})(?:\.(\d{1,7}))?$/.exec(text) ?? [];
  if (first === undefined || Number(first) >= layers) return null;
  if (kind !== undefined) return second === undefined ? `${kind} ${Number(first)}` : null;
  return second !== undefined && Number(second) < heads ? `head ${Number(first)}.${Number(second)}` : null;
}

/** What stands behind # of an address, for a model of these sizes. */
export function readAddress(hash: string, sizes: Sizes): Address {
  const text = hash.replace(/^#/, "");
  const nothing: Address = { prompt: null, off: [], look: { depth: null, token: null, ...whole }, at: null };
  if (!text.includes("=")) return nothing;
  const fields = new URLSearchParams(text);
  const prompt = fields.get("prompt");
  const [layer = null, head = null, query = null, key = null] = (fields.get("look") ?? "").split(".").slice(0, 4).map(natural);
  return {
    prompt: prompt === null || prompt === "" || prompt.length > mostPrompt ? null : prompt,
    off: [...new Set((fields.get("off") ?? "").split(",").slice(0, mostOff).map((part) => partOf(part, sizes)).filter((part) => part !== null))],
    look: { depth: natural(fields.get("depth")), token: natural(fields.get("token")), layer, head, query, key },
    at: fields.get("at"),
  };
}

/** What to put behind #; "" for a page as it was opened. `off`: other parts than heads and sub-layers have no place in an address. */
export function writeAddress({ prompt, off, look, at }: Address): string {
  const fields: string[] = [];
  const add = (name: string, value: string) => fields.push(`${name}=${encodeURIComponent(value).replaceAll("%20", "+").replaceAll("%2C", ",")}`);
  if (prompt !== null && prompt.length <= mostPrompt) add("prompt", prompt);
  const parts = off.map((name) => /^head (\d+\.\d+)$/.exec(name)?.[1] ?? /^(?:attn|mlp) \d+$/.exec(name)?.[0].replace(" ", ".")).filter((part) => part !== undefined);
  if (parts.length > 0) add("off", parts.join(","));
  if (look.depth !== null) add("depth", String(look.depth));
  if (look.token !== null) add("token", String(look.token));
  const opened = [look.layer, look.head, look.query, look.key];
  const end = opened.indexOf(null);
  const path = end < 0 ? opened : opened.slice(0, end);
  if (path.length > 0) add("look", path.join("."));
  if (fields.length > 0 && at !== null) add("at", at);
  return fields.join("&");
}
