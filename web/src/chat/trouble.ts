// What can go wrong between the page and its server, in words that say what to do.

export type Kind = "gone" | "key" | "busy" | "context" | "absent" | "refused" | "broken";

export class Trouble extends Error {
  readonly kind: Kind;
  /** After how many seconds the server asks to try again. */
  readonly seconds: number | null;

  constructor(kind: Kind, message: string, seconds: number | null = null) {
    super(message);
    this.kind = kind;
    this.seconds = seconds;
  }
}

interface ErrorBody {
  error?: { message?: unknown; type?: unknown; code?: unknown } | string;
}

/** The error of an answer: its status, what its body says, and when to try again. */
export function troubleOf(status: number, text: string, retryAfter: string | null, path: string): Trouble {
  let [said, code] = ["", ""];
  try {
    const { error } = JSON.parse(text) as ErrorBody;
    said = typeof error === "string" ? error : typeof error?.message === "string" ? error.message : "";
    code = typeof error === "object" && typeof error.code === "string" ? error.code : "";
  } catch {
    said = text.slice(0, 300);
  }
  const wait = retryAfter !== null && /^\d+$/.test(retryAfter) ? Number(retryAfter) : null;
  if (status === 401 || status === 403) return new Trouble("key", said === "" ? "The server asks for an API key." : said);
  if (status === 429 || status === 503) {
    const why = said === "" ? (status === 429 ? "The server has more requests than it takes." : "The server takes no requests now.") : said;
    return new Trouble("busy", `${why} Try again${wait === null ? " in a while" : ` in ${wait} s`}.`, wait);
  }
  if (code === "context_length_exceeded" || (status === 413 && said === "")) {
    return new Trouble("context", `${said === "" ? "The conversation is longer than the model can read." : said} Start a new conversation, edit an earlier message, or ask for fewer tokens.`);
  }
  if ((status === 404 && code !== "model_not_found") || status === 405 || status === 501) return new Trouble("absent", `This server does not offer ${path}${said === "" ? "" : `: ${said}`}`);
  return new Trouble("refused", said === "" ? `The server answered ${status} to ${path}.` : said);
}

/** Any exception as trouble; an aborted request is none. */
export function asTrouble(error: unknown): Trouble | null {
  if (error instanceof Trouble) return error;
  if (error instanceof DOMException && error.name === "AbortError") return null;
  return new Trouble("broken", error instanceof Error ? error.message : String(error));
}
