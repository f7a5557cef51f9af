// The server that gave this page: its requests, and what it runs.

import { keyHeaders } from "../key";
import { events } from "./sse";
import { asTrouble, Trouble, troubleOf } from "./trouble";

async function ask(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const headers = keyHeaders();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    cache: "no-store",
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
  }).catch((error: unknown) => {
    throw error instanceof TypeError ? new Trouble("gone", "The server does not answer. Is vitrine serve still running?") : error;
  });
  if (!answer.ok) throw troubleOf(answer.status, await answer.text(), answer.headers.get("Retry-After"), path);
  return answer;
}

/** The document that the server answers with. Errors: Trouble; an aborted request's own. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask(path, undefined, signal)).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await ask(path, body, signal)).json() as Promise<T>;
}

/** The documents of a streamed answer. Errors: as post, and Trouble for an error inside the stream or a stream that breaks off. */
export async function* stream<T>(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<T> {
  const answer = await ask(path, body, signal);
  if (answer.body === null) throw new Trouble("broken", `The server answered ${path} with nothing.`);
  try {
    for await (const data of events(answer.body)) {
      if (data === "[DONE]") return;
      const part: unknown = JSON.parse(data);
      if (typeof part === "object" && part !== null && "error" in part) throw troubleOf(400, data, null, path);
      yield part as Awaited<T>;
    }
  } catch (error) {
    if (error instanceof TypeError) throw new Trouble("gone", "The connection to the server broke off in the middle of the answer.");
    if (error instanceof SyntaxError) throw new Trouble("broken", `The server sent what is no JSON: ${error.message}`);
    throw error;
  }
  if (!signal.aborted) throw new Trouble("gone", "The server ended the answer before it was complete.");
}

export interface Served {
  model: string;
  /** For --model; null for the shipped model, or where the server does not say. */
  path: string | null;
  /** Whether the model has a chat template; without one the page continues texts. */
  chat: boolean;
  /** Tokens that the model reads at most. */
  context: number | null;
  /** The text of the token that ends an answer. */
  end: string;
}

interface Props {
  model_path?: string;
  chat_template?: string | null;
  default_generation_settings?: { n_ctx?: number };
  eos_token?: string;
}

/** How many layers and heads the model has; nothing where the server does not say. */
export interface Facts {
  n_layers?: number;
  n_heads?: number;
}

/** What the server runs. Errors: as get. */
export async function served(): Promise<Served> {
  const models = await get<{ data: { id: string }[] }>("v1/models");
  const props = await optional(get<Props>("props"));
  return {
    model: models.data[0]?.id ?? "",
    path: props?.model_path === undefined || props.model_path === "" ? null : props.model_path,
    chat: typeof props?.chat_template === "string" && props.chat_template !== "",
    context: props?.default_generation_settings?.n_ctx ?? null,
    end: props?.eos_token ?? "",
  };
}

let known: Promise<Facts | null> | undefined;

/** Asked for once, when it is wanted first. Errors: as get. */
export function facts(): Promise<Facts | null> {
  known ??= optional(get<Facts>("v1/model"));
  return known;
}

/** Nothing where the server does not offer it. */
async function optional<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (asTrouble(error)?.kind === "absent") return null;
    throw error;
  }
}
