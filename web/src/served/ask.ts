// Requests to the server that gave the page at /explain.

import { keyHeaders } from "../key";

/** The answer to GET /v1/live. */
export interface ServedModel {
  model: string;
  prompt: string | number[];
  /** "--model NAME" of command lines, and options with which they give the same numbers. */
  command_model: string;
  command_options: string;
}

declare global {
  interface Window {
    /** On the page that a server gave. */
    vitrineServer?: ServedModel;
  }
}

export class Refused extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

function reasonOf(status: number, text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: { message?: unknown } };
    if (typeof error?.message === "string") return error.message;
  } catch {
    // Not the server's own words.
  }
  return `The server answered ${status}.`;
}

/** The text of an answer. Errors: Refused; an aborted request's own. */
export async function askServerText(path: string, body?: string, signal?: AbortSignal): Promise<string> {
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers: { ...keyHeaders(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
    cache: "no-store",
    ...(body === undefined ? {} : { body }),
    ...(signal === undefined ? {} : { signal }),
  }).catch((error: unknown) => {
    throw error instanceof TypeError ? new Refused(0, "The server does not answer. Is vitrine serve still running?") : error;
  });
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, reasonOf(answer.status, text));
  return text;
}

export async function askServer<T>(path: string, body?: object): Promise<T> {
  return JSON.parse(await askServerText(path, body === undefined ? undefined : JSON.stringify(body))) as T;
}
