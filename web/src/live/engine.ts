// The engine of a live page, behind one question: `ask(request, body)`, the requests of src/app/requests/request.h. Where it runs is its
// own affair: in a thread of the page (thread.ts), or in the server that gave the page (server.ts).

import { inWords } from "./words";

export interface Engine {
  /**
   * The engine's answer; null where a newer request of the same `lane` has taken this one's place.
   * Throws what the engine says is wrong.
   */
  ask: <T>(request: string, body: object, lane?: string) => Promise<T | null>;
  /** As ask, beside the other requests: for what takes long or much memory. Once `signal` is aborted nobody waits for it any more. */
  askApart: <T>(request: string, body: object, signal?: AbortSignal) => Promise<T>;
  /** Null: it cannot, and a question leaves nothing behind. */
  apart: (() => Promise<Apart>) | null;
  /** Of the last answer: how long the engine took, and how much memory it holds (0: not known). */
  last: () => { milliseconds: number; bytes: number };
  /** Calls `listener` whenever the engine begins or ends its work. */
  onBusy: (listener: (busy: boolean) => void) => void;
  /** The model's file, for a reader who wants to go on with the program; null: the program has it already. */
  file: { name: string; bytes: () => Promise<Blob> } | null;
  /**
   * An engine of its own with a file of the reader's, once it has opened it; this one goes on. Null: it cannot. Throws what the engine
   * says of the file.
   */
  other: ((file: File) => Promise<Engine>) | null;
  /** Gives its memory back; it answers nothing any more. */
  end: () => void;
  /** "--model NAME" of the program's command lines, and the options with which they give the engine's numbers. */
  commandModel: string;
  commandOptions: string;
}

/** An engine with the same model, which keeps what questions leave behind: weights under training. */
export interface Apart {
  /** Throws what the engine says is wrong. */
  ask: <T>(request: string, body: object) => Promise<T>;
  /** The same for an answer that is a file. */
  askFile: (request: string, body: object) => Promise<Blob>;
  /** As Engine. */
  end: () => void;
}

/** An answer's document. Errors: what the engine says is wrong. */
export function read<T>(answer: string): T {
  const said = JSON.parse(answer) as T & { error?: { message: string } };
  if (said.error !== undefined) throw new Error(inWords(said.error.message));
  return said;
}

/** One word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
