// What a reader can do: ask, ask again, edit, branch, stop; begin, open, delete and bring in conversations.

import { answer, request, requestBehind, type Asked } from "./ask";
import { imported, Unreadable } from "./keep";
import { served } from "./server";
import { sampling } from "./settings";
import { conversation, drop, put, set, state, type Proposal, type View } from "./state";
import { parts, type Alternative, type Token } from "./tokens";
import { add, change, emptyConversation, find, newMessage, pathTo, show, type Conversation, type Message } from "./tree";
import { asTrouble } from "./trouble";

/** Asks the server what it runs. */
export async function connect(): Promise<void> {
  try {
    const found = await served();
    set({ served: found, trouble: null });
    document.title = found.model === "" ? "vitrine" : `${found.model} – vitrine`;
    const one = conversation();
    if (one.messages.length === 0) put({ ...one, mode: found.chat ? "chat" : "text" }, false);
  } catch (error) {
    set({ trouble: asTrouble(error) });
  }
}

export function begin(): void {
  const { mode, settings, system, messages } = conversation();
  if (messages.length === 0) return;
  const one = emptyConversation(state().served?.chat === false ? "text" : mode, settings, system);
  put(one, false);
  set({ current: one.id, glass: null });
}

export function open(id: string): void {
  set({ current: id, glass: null });
}

export function discard(id: string): void {
  if (state().running?.conversation === id) stop();
  drop(id);
}

/** Conversations of an exported file; of two with one id the newer stays. */
export async function bringIn(file: File): Promise<void> {
  try {
    const found = imported(await file.text());
    const newer = found.filter((one) => (state().all.find((other) => other.id === one.id)?.changed ?? -1) < one.changed);
    for (const one of newer) put(one);
    set({ notice: `${newer.length} of ${found.length} conversations brought in; the others were here already.` });
    if (newer[0] !== undefined) open(newer[0].id);
  } catch (error) {
    set({ notice: error instanceof Unreadable ? `${file.name}: ${error.message}` : `${file.name} cannot be read.` });
  }
}

/** Sends a text and asks for an answer; an empty text goes on behind the last message of a text. */
export function send(text: string): void {
  if (state().running !== null) return;
  let one = conversation();
  if (text !== "") one = add(one, newMessage(one.leaf, "user", text));
  if (one.leaf !== null) ask(one, one.leaf);
}

/** One more answer at the place of this one. */
export function again(of: Message): void {
  if (state().running !== null) return;
  const one = conversation();
  if (of.text !== "") return ask(one, of.parent);
  // Nothing came: the failed answer itself is asked for once more.
  const fresh = newMessage(of.parent, "assistant", "", { id: of.id, end: "running", sampling: sampling(one.settings) });
  run(change(one, of.id, fresh), fresh);
}

function ask(one: Conversation, parent: string | null): void {
  const message = newMessage(parent, "assistant", "", { end: "running", sampling: sampling(one.settings) });
  run(add(one, message), message);
}

/** Puts another text in the place of a message; one of the reader's own is answered. */
export function edit(of: Message, text: string): void {
  if (state().running !== null || text === of.text) return;
  const changed = add(conversation(), newMessage(of.parent, of.role, text));
  if (of.role === "user") ask(changed, changed.leaf);
  else put(changed);
}

/** A sibling of the answer that has `instead` at the place of token `at` and goes on from there. */
export function branch(of: Message, at: number, instead: Alternative): void {
  const token = of.tokens[at];
  if (token === undefined) return;
  const before = parts(of.text, of.tokens).slice(0, at).join("");
  const ends = instead.text !== "" && instead.text === state().served?.end;
  goOn(of, [...of.tokens.slice(0, at), { ...instead, top: token.top }], before + (ends || instead.bytes !== undefined ? "" : instead.text), ends);
}

/** Goes on behind an answer that was cut off. */
export function resume(of: Message): void {
  goOn(of, of.tokens, of.text, false);
}

function goOn(of: Message, start: readonly Token[], text: string, complete: boolean): void {
  if (state().running !== null) return;
  const one = conversation();
  const message = newMessage(of.parent, "assistant", text, { tokens: start, given: start.length, end: complete ? "stop" : "running", sampling: sampling(one.settings) });
  if (complete) put(add(one, message));
  else run(add(one, message), message);
}

/** Asks for this message of the conversation and writes into it what comes. */
function run(one: Conversation, message: Message): void {
  const controller = new AbortController();
  put(one);
  set({ running: { conversation: one.id, message: message.id, controller }, glass: null, said: "The model is reading.", notice: "" });
  void write(one, message, controller.signal);
}

async function write(one: Conversation, message: Message, signal: AbortSignal): Promise<void> {
  let [text, tokens, end] = [message.text, [...message.tokens], "stop" as Message["end"]];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const tell = (by: Partial<Message>, keep = false) => {
    clearTimeout(timer);
    timer = undefined;
    const latest = state().all.find((other) => other.id === one.id);
    if (latest !== undefined && find(latest, message.id) !== undefined) put(change(latest, message.id, { text, tokens: [...tokens], ...by }), keep);
  };
  let error = "";
  // The browser ends the request when the page is left; ended here, what came is kept as stopped.
  window.addEventListener("beforeunload", stop);
  try {
    for await (const part of answer(await asked(one, message, signal), signal)) {
      text += part.text;
      tokens.push(...part.tokens);
      if (part.end !== null) end = part.end;
      // Drawn at most 25 times a second, however fast the tokens come.
      timer ??= setTimeout(() => tell({}), 40);
    }
    if (signal.aborted) end = "stopped";
  } catch (raised) {
    const trouble = asTrouble(raised);
    end = trouble === null ? "stopped" : "failed";
    error = trouble?.message ?? "";
    if (trouble?.kind === "key") set({ trouble });
  }
  window.removeEventListener("beforeunload", stop);
  tell({ end, error }, true);
  set({ running: null, said: end === "failed" ? "" : end === "stopped" ? "Stopped." : "The answer is complete." });
}

function asked(one: Conversation, message: Message, signal: AbortSignal): Asked | Promise<Asked> {
  const before = pathTo(one, message.parent);
  const model = state().served?.model ?? "";
  return message.given > 0
    ? requestBehind(one, before, message.tokens.slice(0, message.given), model, message.sampling, signal)
    : request(one, before, model, message.sampling);
}

/** The request that gave this answer, for others to repeat. */
export async function repeat(of: Message): Promise<Asked> {
  return asked(conversation(), of, new AbortController().signal);
}

export function stop(): void {
  state().running?.controller.abort();
}

export function showSibling(of: Message): void {
  put(show(conversation(), of.id));
  set({ glass: null });
}

export function look(of: Message, token: number, view?: View): void {
  set({ glass: { message: of.id, token }, ...(view === undefined ? {} : { view }) });
}

export function closeGlass(): void {
  set({ glass: null, proposal: null });
}

export function propose(proposal: Proposal): void {
  set({ proposal, view: "change" });
}
