// Conversations as they are kept in the browser and in exported files: one entry each, read with the same checks.

import { isSetting, noSettings, settingKeys, type Sampling, type Settings } from "./settings";
import type { Alternative, Token } from "./tokens";
import type { Conversation, End, Message } from "./tree";

const prefix = "vitrine.conversation.";
const kind = "vitrine conversations";

export class Unreadable extends Error {}

/** All kept conversations, the newest first; what cannot be read is left where it is and passed over. */
export function readAll(): Conversation[] {
  const found: Conversation[] = [];
  try {
    for (let i = 0; i < localStorage.length; ++i) {
      const name = localStorage.key(i) ?? "";
      if (!name.startsWith(prefix)) continue;
      try {
        found.push(conversation(JSON.parse(localStorage.getItem(name) ?? ""), name));
      } catch {
        // Written by another version.
      }
    }
  } catch {
    // The browser keeps nothing for this page.
  }
  return found.sort((a, b) => b.changed - a.changed);
}

/** The conversation that another tab of this browser has written; null for other entries, and where it was taken away. */
export function readFrom({ key, newValue }: StorageEvent): { id: string; found: Conversation | null } | null {
  if (key === null || !key.startsWith(prefix)) return null;
  try {
    return { id: key.slice(prefix.length), found: newValue === null ? null : conversation(JSON.parse(newValue), key) };
  } catch {
    return null;
  }
}

/** "" when kept, else why not. Where room is short, alternatives of older answers are given up first. */
export function write(one: Conversation, others: readonly Conversation[]): string {
  const put = (of: Conversation) => localStorage.setItem(prefix + of.id, JSON.stringify(packed(of)));
  try {
    put(one);
    return "";
  } catch (error) {
    if (!(error instanceof DOMException) || error.name !== "QuotaExceededError") return "This browser keeps no data for this page: the conversation is lost when the page is closed.";
  }
  for (const other of [...others].sort((a, b) => a.changed - b.changed)) {
    if (other.id === one.id || other.messages.every((message) => message.tokens.length === 0)) continue;
    try {
      put(bare(other));
      put(one);
      return "";
    } catch {
      // One more.
    }
  }
  try {
    put(bare(one));
    return "The browser's room for this page is full: the alternatives of the tokens are kept until the page is closed, the texts stay.";
  } catch {
    return "The browser's room for this page is full: export and delete conversations to keep new ones.";
  }
}

export function remove(id: string): void {
  try {
    localStorage.removeItem(prefix + id);
  } catch {
    // Nothing was kept.
  }
}

function bare(of: Conversation): Conversation {
  return { ...of, messages: of.messages.map((message) => ({ ...message, tokens: [], given: 0 })) };
}

export function exported(all: readonly Conversation[]): string {
  return `${JSON.stringify({ kind, version: 1, conversations: all.map(packed) }, null, 1)}\n`;
}

/** The conversations of an exported file. Errors: Unreadable, saying what was expected where. */
export function imported(text: string): Conversation[] {
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Unreadable(`The file is no JSON: ${error instanceof Error ? error.message : ""}`);
  }
  const of = object(file, "the file");
  if (of["kind"] !== kind || of["version"] !== 1) throw new Unreadable(`The file is not an export of this page: it has no "kind": "${kind}" with "version": 1.`);
  return list(of["conversations"], "conversations").map((one, i) => conversation(one, `conversations[${i}]`));
}

// -- Packed: an alternative is [text, id, logprob, bytes?], a token [itself, [alternative, …]] ---------------------------------

function packedAlternative({ text, id, logprob, bytes }: Alternative): unknown[] {
  return [text, id, round(logprob), ...(bytes === undefined ? [] : [bytes])];
}

function round(logprob: number): number {
  return Number(logprob.toPrecision(7));
}

function packed(of: Conversation): unknown {
  return {
    ...of,
    messages: of.messages.map((message) => ({
      ...message,
      end: message.end === "running" ? "stopped" : message.end,
      tokens: message.tokens.map((token) => [packedAlternative(token), token.top.map(packedAlternative)]),
    })),
  };
}

function conversation(value: unknown, where: string): Conversation {
  const of = object(value, where);
  const messages = list(of["messages"], `${where}.messages`).map((one, i) => message(one, `${where}.messages[${i}]`));
  const known = new Set<string>();
  for (const one of messages) {
    if (known.has(one.id)) throw new Unreadable(`${where} has two messages with the id ${one.id}.`);
    if (one.parent !== null && !known.has(one.parent)) throw new Unreadable(`${where} has a message whose parent does not stand before it.`);
    known.add(one.id);
  }
  const leaf = of["leaf"] === null ? null : string(of["leaf"], `${where}.leaf`);
  if (leaf !== null && !known.has(leaf)) throw new Unreadable(`${where}.leaf names no message.`);
  return {
    id: word(of["id"], `${where}.id`), title: string(of["title"], `${where}.title`), changed: number(of["changed"], `${where}.changed`),
    mode: oneOf(of["mode"], ["chat", "text"] as const, `${where}.mode`), system: string(of["system"], `${where}.system`),
    settings: settings(of["settings"], `${where}.settings`), messages, leaf,
  };
}

function settings(value: unknown, where: string): Settings {
  const of = object(value, where);
  const read = { ...noSettings };
  for (const key of settingKeys) if (key in read || key in of) read[key] = of[key] === null || of[key] === undefined ? null : number(of[key], `${where}.${key}`);
  return read;
}

function message(value: unknown, where: string): Message {
  const of = object(value, where);
  const tokens = list(of["tokens"], `${where}.tokens`).map((one, i) => token(one, `${where}.tokens[${i}]`));
  const given = number(of["given"], `${where}.given`);
  if (!Number.isInteger(given) || given < 0 || given > tokens.length) throw new Unreadable(`${where}.given is ${given} of ${tokens.length} tokens.`);
  const chosen: Sampling = {};
  for (const [name, one] of Object.entries(object(of["sampling"], `${where}.sampling`))) {
    if (!isSetting(name)) throw new Unreadable(`${where}.sampling has "${name}", which is no setting.`);
    chosen[name] = number(one, `${where}.sampling.${name}`);
  }
  return {
    id: word(of["id"], `${where}.id`), parent: of["parent"] === null ? null : word(of["parent"], `${where}.parent`),
    role: oneOf(of["role"], ["user", "assistant"] as const, `${where}.role`), text: string(of["text"], `${where}.text`), tokens, given,
    end: oneOf<End>(of["end"], ["stop", "length", "stopped", "failed"], `${where}.end`), error: string(of["error"], `${where}.error`), sampling: chosen,
  };
}

function token(value: unknown, where: string): Token {
  const [self, top] = list(value, where);
  return { ...alternative(self, `${where}[0]`), top: list(top, `${where}[1]`).map((one, i) => alternative(one, `${where}[1][${i}]`)) };
}

function alternative(value: unknown, where: string): Alternative {
  const [text, id, logprob, bytes] = list(value, where);
  return {
    text: string(text, `${where}[0]`), id: id === null ? null : number(id, `${where}[1]`), logprob: number(logprob, `${where}[2]`),
    ...(bytes === undefined ? {} : { bytes: list(bytes, `${where}[3]`).map((byte) => number(byte, `${where}[3]`) & 255) }),
  };
}

function wrong(where: string, what: string): never {
  throw new Unreadable(`${where} is not ${what}.`);
}
function object(value: unknown, where: string): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : wrong(where, "an object");
}
function list(value: unknown, where: string): unknown[] {
  return Array.isArray(value) ? value : wrong(where, "a list");
}
function string(value: unknown, where: string): string {
  return typeof value === "string" ? value : wrong(where, "a text");
}
function word(value: unknown, where: string): string {
  return typeof value === "string" && /^\w{1,64}$/.test(value) ? value : wrong(where, "an id");
}
function number(value: unknown, where: string): number {
  return typeof value === "number" && Number.isFinite(value) ? value : wrong(where, "a number");
}
function oneOf<T extends string>(value: unknown, all: readonly T[], where: string): T {
  return all.find((one) => one === value) ?? wrong(where, `one of ${all.join(", ")}`);
}
