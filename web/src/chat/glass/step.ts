// The step of a model that chose one token of an answer, and what the server tells about it.

import { useEffect, useState } from "preact/hooks";
import type { Asked } from "../ask";
import { idOf, idsOf, promptIds } from "../prompt";
import { post } from "../server";
import { pathTo, type Conversation, type Message } from "../tree";
import { sameToken } from "../tokens";
import { asTrouble, type Trouble } from "../trouble";

export interface Step {
  /** What the model had read: prompt and answer up to the token. */
  ids: readonly number[];
  /** How many of them were in front of the answer. */
  prompt: number;
  /** The token that was chosen. */
  chosen: number;
  /** The most likely other one; null where none is known. */
  other: number | null;
}

/** What is shown of a request: nothing yet, the answer, or what went wrong. */
export interface Told<T> {
  value: T | null;
  trouble: Trouble | null;
}

const prompts = new Map<string, Promise<number[]>>();

function promptOf(one: Conversation, message: Message): Promise<number[]> {
  const key = JSON.stringify([one.id, message.parent, one.mode, one.system]);
  let ids = prompts.get(key);
  if (ids === undefined) {
    ids = promptIds(one, pathTo(one, message.parent));
    ids.catch(() => prompts.delete(key));
    prompts.set(key, ids);
  }
  return ids;
}

async function step(one: Conversation, message: Message, token: number): Promise<Step> {
  const chosen = message.tokens[token]!;
  const other = chosen.top.find((one) => !sameToken(one, chosen));
  const [prompt, before, id, rest] = await Promise.all([promptOf(one, message), idsOf(message.tokens.slice(0, token)), idOf(chosen), other === undefined ? null : idOf(other)]);
  return { ids: [...prompt, ...before], prompt: prompt.length, chosen: id, other: rest };
}

export function useStep(one: Conversation, message: Message, token: number): Told<Step> {
  return useTold(JSON.stringify([message.id, token, one.system]), () => step(one, message, token));
}

const answers = new Map<string, unknown>();
const kept = 60;

/** The server's answer to a request; the last ones are kept, so that going back and forth asks nothing again. */
export function useAnswer<T>(asked: Asked | null): Told<T> {
  const key = asked === null ? "" : JSON.stringify(asked);
  return useTold(key, async (signal) => {
    if (asked === null) return null;
    if (!answers.has(key)) {
      answers.set(key, await post<T>(asked.path, asked.body, signal));
      if (answers.size > kept) answers.delete(answers.keys().next().value!);
    }
    return answers.get(key) as T;
  });
}

const pause = 120;  // a reader who slides on asks for the place where the slide ends

function useTold<T>(key: string, ask: (signal: AbortSignal) => Promise<T | null>): Told<T> {
  const [told, tell] = useState<Told<T> & { key: string }>({ key: "", value: null, trouble: null });
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(() => {
      ask(controller.signal).then(
        (value) => controller.signal.aborted || tell({ key, value, trouble: null }),
        (error: unknown) => controller.signal.aborted || tell({ key, value: null, trouble: asTrouble(error) }),
      );
    }, answers.has(key) ? 0 : pause);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key]);
  return told.key === key ? told : { value: null, trouble: null };
}
