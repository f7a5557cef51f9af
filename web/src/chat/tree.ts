// A conversation as a tree: editing, answering again and branching add a sibling, and nothing is lost. Every function leaves
// what it is given as it is and returns the changed conversation.

import type { Sampling, Settings } from "./settings";
import type { Token } from "./tokens";

export type Role = "user" | "assistant";
/** How an answer ended: "running" until it does, "stopped" by the reader. */
export type End = "running" | "stop" | "length" | "stopped" | "failed";

export interface Message {
  id: string;
  parent: string | null;
  role: Role;
  text: string;
  /** Of an answer. */
  tokens: readonly Token[];
  /** Of these tokens, how many were given and not chosen: what came before a branch. */
  given: number;
  end: End;
  /** Why it failed. */
  error: string;
  sampling: Sampling;
}

export interface Conversation {
  id: string;
  title: string;
  /** Milliseconds since 1970 of the last change. */
  changed: number;
  /** "chat" through the model's template, "text" as a text to be continued. */
  mode: "chat" | "text";
  system: string;
  settings: Settings;
  messages: readonly Message[];
  /** The last message shown; null in an empty conversation. */
  leaf: string | null;
}

export function newId(): string {
  // Not randomUUID: a page from another machine without TLS has none.
  return [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(36).padStart(2, "0")).join("");
}

export function emptyConversation(mode: "chat" | "text", settings: Settings, system: string): Conversation {
  return { id: newId(), title: "", changed: Date.now(), mode, system, settings, messages: [], leaf: null };
}

export function newMessage(parent: string | null, role: Role, text: string, more: Partial<Message> = {}): Message {
  return { id: newId(), parent, role, text, tokens: [], given: 0, end: "stop", error: "", sampling: {}, ...more };
}

export function find(of: Conversation, id: string | null): Message | undefined {
  return of.messages.find((message) => message.id === id);
}

/** From the first message to `id`. */
export function pathTo(of: Conversation, id: string | null): Message[] {
  const byId = new Map(of.messages.map((message) => [message.id, message]));
  const path: Message[] = [];
  for (let at = id === null ? undefined : byId.get(id); at !== undefined; at = at.parent === null ? undefined : byId.get(at.parent)) path.unshift(at);
  return path;
}

export function add(to: Conversation, message: Message): Conversation {
  const title = to.title === "" && message.text.trim() !== "" ? message.text.trim().replace(/\s+/g, " ").slice(0, 60) : to.title;
  return { ...to, title, changed: Date.now(), messages: [...to.messages, message], leaf: message.id };
}

export function change(of: Conversation, id: string, by: Partial<Message>): Conversation {
  return { ...of, changed: Date.now(), messages: of.messages.map((message) => (message.id === id ? { ...message, ...by } : message)) };
}

/** The messages at the same place, in the order in which they were made. */
export function siblings(of: Conversation, message: Message): Message[] {
  return of.messages.filter((other) => other.parent === message.parent);
}

/** Shows the branch through this message, down to its newest end. */
export function show(of: Conversation, id: string): Conversation {
  let leaf = id;
  for (;;) {
    const next = of.messages.findLast((message) => message.parent === leaf);
    if (next === undefined) return { ...of, leaf };
    leaf = next.id;
  }
}
