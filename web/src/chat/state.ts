// What the page shows, in one place. Parts of it are replaced, never changed, and whoever draws it is told.

import { store } from "../store";
import { readAll, readFrom, remove, write } from "./keep";
import type { Served } from "./server";
import { noSettings } from "./settings";
import type { Trouble } from "./trouble";
import { emptyConversation, find, type Conversation, type Message } from "./tree";

export type View = "alternatives" | "attention" | "lens" | "heads" | "change";

/** A change of the model that a view proposes for the reader to try. */
export interface Proposal {
  part: "head" | "layer" | "attn" | "mlp";
  layer: number;
  head: number;
}

interface State {
  /** Null until the server has told. */
  served: Served | null;
  /** Between the page and the server as a whole: gone, or asking for a key. */
  trouble: Trouble | null;
  all: readonly Conversation[];
  current: string;
  running: { conversation: string; message: string; controller: AbortController } | null;
  /** The token that is looked into. */
  glass: { message: string; token: number } | null;
  view: View;
  proposal: Proposal | null;
  /** Told to screen readers: "The answer is complete." */
  said: string;
  /** Shown to everybody for a while: what was kept, what could not be. */
  notice: string;
}

const kept = readAll();
const first = kept[0] ?? emptyConversation("chat", noSettings, "");
export const { state, set, use: useApp } = store<State>({
  served: null, trouble: null, all: kept.length > 0 ? kept : [first], current: first.id, running: null, glass: null, view: "alternatives", proposal: null, said: "", notice: "",
});

export function conversation(id = state().current): Conversation {
  return state().all.find((one) => one.id === id) ?? state().all[0]!;
}

/** The token that is looked into with its message; null where neither is shown. */
export function looked(of: State): { message: Message; token: number } | null {
  if (of.glass === null) return null;
  const message = find(of.all.find((one) => one.id === of.current)!, of.glass.message);
  return message === undefined || message.tokens.length === 0 ? null : { message, token: Math.min(of.glass.token, message.tokens.length - 1) };
}

/** Replaces a conversation, or adds it in front; an answer that still comes is kept when it is complete. */
export function put(one: Conversation, keep = true): void {
  const known = state().all.some((other) => other.id === one.id);
  set({ all: known ? state().all.map((other) => (other.id === one.id ? one : other)) : [one, ...state().all] });
  if (!keep || one.messages.length === 0) return;
  const problem = write(one, state().all);
  if (problem !== "") set({ notice: problem });
}

/** Takes a conversation away; there is always one left. */
export function drop(id: string): void {
  const left = state().all.filter((one) => one.id !== id);
  const gone = conversation(id);
  const all = left.length > 0 ? left : [emptyConversation(gone.mode, gone.settings, "")];
  remove(id);
  set({ all, current: id === state().current ? all[0]!.id : state().current, glass: null });
}

/** Follows what other tabs write. */
export function startKeeping(): void {
  window.addEventListener("storage", (event) => {
    const told = readFrom(event);
    if (told === null || told.id === state().running?.conversation) return;
    const { id, found } = told;
    if (found === null) set({ all: state().all.filter((one) => one.id !== id || id === state().current) });
    else set({ all: state().all.some((one) => one.id === id) ? state().all.map((one) => (one.id === id ? found : one)) : [found, ...state().all] });
  });
}
