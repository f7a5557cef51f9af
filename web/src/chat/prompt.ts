// What a model reads before an answer: as messages, as a text, and as token ids.

import { post } from "./server";
import type { Token } from "./tokens";
import { Trouble } from "./trouble";
import type { Conversation, Message } from "./tree";

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

/** `before`: the messages in front of the answer. */
export function chatMessages(of: Conversation, before: readonly Message[]): ChatMessage[] {
  const system: ChatMessage[] = of.system.trim() === "" ? [] : [{ role: "system", content: of.system }];
  return [...system, ...before.map((message) => ({ role: message.role, content: message.text }))];
}

export function promptText(before: readonly Message[]): string {
  return before.map((message) => message.text).join("");
}

interface Tokenized {
  tokens: number[];
}

/** The ids that the model reads before the answer. Errors: as post. */
export async function promptIds(of: Conversation, before: readonly Message[], signal?: AbortSignal): Promise<number[]> {
  const what = of.mode === "text" ? { content: promptText(before), add_special: true, parse_special: true } : { messages: chatMessages(of, before), add_generation_prompt: true };
  return (await post<Tokenized>("tokenize", what, signal)).tokens;
}

/** The ids of these tokens: those that the server told, else those of their text. Errors: as post. */
export async function idsOf(tokens: readonly Pick<Token, "id" | "text">[], signal?: AbortSignal): Promise<number[]> {
  const ids = tokens.map((token) => token.id);
  if (ids.every((id) => id !== null)) return ids;
  return (await post<Tokenized>("tokenize", { content: tokens.map((token) => token.text).join(""), add_special: false, parse_special: true }, signal)).tokens;
}

/** The id of one token. Errors: as idsOf, and Trouble where its text is not one token. */
export async function idOf(token: Pick<Token, "id" | "text">, signal?: AbortSignal): Promise<number> {
  const ids = await idsOf([token], signal);
  if (ids.length !== 1) throw new Trouble("broken", `The server does not tell the id of “${token.text}”, and its text alone is ${ids.length} tokens.`);
  return ids[0]!;
}
