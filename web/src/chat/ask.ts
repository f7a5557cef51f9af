// One answer: the request for it, and the stream of what comes.

import { chatMessages, idOf, idsOf, promptIds, promptText } from "./prompt";
import { stream } from "./server";
import type { Sampling } from "./settings";
import type { Alternative, Token } from "./tokens";
import type { Conversation, Message } from "./tree";

/** How many likely tokens are asked for at each place. */
export const alternatives = 8;

export interface Asked {
  path: string;
  body: Record<string, unknown>;
}

/** The request for an answer behind `before`, not streamed: what `curl` sends. */
export function request(of: Conversation, before: readonly Message[], model: string, sampling: Sampling): Asked {
  if (of.mode === "text") return { path: "v1/completions", body: { model, prompt: promptText(before), ...sampling, logprobs: alternatives, return_token_ids: true } };
  return { path: "v1/chat/completions", body: { model, messages: chatMessages(of, before), ...sampling, logprobs: true, top_logprobs: alternatives, return_token_ids: true, reasoning_format: "none" } }; // the page shows every token
}

/** The request that goes on behind `start`, the first tokens of an answer. Errors: as promptIds. */
export async function requestBehind(of: Conversation, before: readonly Message[], start: readonly Token[], model: string, sampling: Sampling, signal?: AbortSignal): Promise<Asked> {
  // The last of them may be an alternative, whose id must not depend on what stands before it.
  const [prompt, given, last] = await Promise.all([promptIds(of, before, signal), idsOf(start.slice(0, -1), signal), idOf(start.at(-1)!, signal)]);
  return { path: "v1/completions", body: { model, prompt: [...prompt, ...given, last], ...sampling, logprobs: alternatives, return_token_ids: true } };
}

export interface Part {
  text: string;
  tokens: Token[];
  /** Null until the answer is complete. */
  end: "stop" | "length" | null;
}

interface Logprob {
  token: string;
  id?: number | null;
  logprob: number | null;
}

interface Chunk {
  choices?: {
    text?: string;
    delta?: { content?: string | null };
    logprobs?: {
      content?: (Logprob & { top_logprobs?: Logprob[] })[] | null;
      tokens?: string[];
      token_logprobs?: (number | null)[];
      top_logprobs?: (Record<string, number> | null)[];
      /** Ids of the same texts. */
      top_token_ids?: (Record<string, number> | null)[];
    } | null;
    token_ids?: number[];
    finish_reason?: string | null;
  }[];
}

/** The parts of an answer as they come. Errors: as stream. */
export async function* answer(asked: Asked, signal: AbortSignal): AsyncGenerator<Part> {
  for await (const chunk of stream<Chunk>(asked.path, { ...asked.body, stream: true }, signal)) {
    const choice = chunk.choices?.[0];
    if (choice === undefined) continue;
    const finish = choice.finish_reason;
    yield {
      text: choice.delta?.content ?? choice.text ?? "",
      tokens: tokensOf(choice),
      end: finish === null || finish === undefined ? null : finish === "length" ? "length" : "stop",
    };
  }
}

// No probability at all is -inf, which JSON cannot hold.
const never = -9999;

// Bytes that are no character by themselves come as "bytes:\xe2\x80".

function alternative(of: Logprob): Alternative {
  const bytes = /^bytes:(\\x[0-9a-f]{2})+$/.test(of.token) ? of.token.slice(6).split("\\x").slice(1).map((hex) => parseInt(hex, 16)) : undefined;
  return { text: of.token, id: of.id ?? null, logprob: Math.max(of.logprob ?? never, never), ...(bytes === undefined ? {} : { bytes }) };
}

function tokensOf({ logprobs, token_ids: ids }: NonNullable<Chunk["choices"]>[number]): Token[] {
  if (logprobs === null || logprobs === undefined) return [];
  if (logprobs.content !== undefined) return (logprobs.content ?? []).map((one, i) => ({ ...alternative({ id: ids?.[i] ?? null, ...one }), top: (one.top_logprobs ?? []).map(alternative) }));
  return (logprobs.tokens ?? []).map((token, i) => ({
    ...alternative({ token, id: ids?.[i] ?? null, logprob: logprobs.token_logprobs?.[i] ?? null }),
    top: Object.entries(logprobs.top_logprobs?.[i] ?? {}).map(([other, logprob]) => alternative({ token: other, logprob, id: logprobs.top_token_ids?.[i]?.[other] ?? null })).sort((a, b) => b.logprob - a.logprob),
  }));
}
