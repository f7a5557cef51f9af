// The engine of a live page, behind one question: `ask(request, body)`, the requests of src/live/live.h. Where it runs is its
// own affair: here in a thread of the page.

import type { Failure, Question, Ready, Reply, Start } from "./worker";
import { unpack } from "./unpack";
import EngineThread from "./worker?worker&inline";

export interface Engine {
  /**
   * The engine's answer; null where a newer request of the same `lane` has taken this one's place before it began.
   * Throws what the engine says is wrong.
   */
  ask: <T>(request: string, body: object, lane?: string) => Promise<T | null>;
  /** As ask, in a thread of its own that ends afterwards: for what takes long or much memory. */
  askApart: <T>(request: string, body: object) => Promise<T>;
  /** Of the last answer: how long the engine took, and how much memory it holds. */
  last: () => { milliseconds: number; bytes: number };
  /** Calls `listener` whenever the engine begins or ends its work. */
  onBusy: (listener: (busy: boolean) => void) => void;
  /** The model's file, for a reader who wants to go on with the program, and its name. */
  file: () => Promise<Blob>;
  fileName: string;
}

/** Requests that a reader waits for at every key come before those that may wait. */
const later = new Set(["document"]);

interface Waiting {
  question: Question;
  lane: string | undefined;
  settle: (answer: string | null) => void;
  refuse: (error: Error) => void;
}

function read<T>(answer: string): T {
  const said = JSON.parse(answer) as T & { error?: { message: string } };
  if (said.error !== undefined) throw new Error(said.error.message);
  return said;
}

class Thread {
  readonly module: Promise<WebAssembly.Module>;
  private readonly worker = new EngineThread();
  private readonly waiting: Waiting[] = [];
  private running: Waiting | undefined;
  private open = false;
  private broken: Error | undefined;
  private count = 0;
  last = { milliseconds: 0, bytes: 0 };
  told: (busy: boolean) => void = () => undefined;

  constructor(start: Start) {
    this.module = new Promise((settle, refuse) => {
      const fail = (what: string) => {
        this.broken = new Error(what);
        refuse(this.broken);
        for (const one of this.running === undefined ? this.waiting : [this.running, ...this.waiting]) one.refuse(this.broken);
        this.waiting.length = 0;
        this.running = undefined;
      };
      this.worker.addEventListener("error", (event) => fail(event.message || "the engine's thread could not be started"));
      this.worker.addEventListener("message", ({ data }: MessageEvent<Ready | Reply | Failure>) => {
        if ("failed" in data) return fail(data.failed);
        if ("ready" in data) {
          this.open = true;
          settle(data.module);
        } else {
          this.last = { milliseconds: data.milliseconds, bytes: data.bytes };
          this.running?.settle(data.answer);
          this.running = undefined;
        }
        return this.next();
      });
    });
    this.module.catch(() => undefined);  // whoever asks is told
    this.worker.postMessage(start);
  }

  ask(request: string, body: object, lane?: string): Promise<string | null> {
    if (this.broken !== undefined) return Promise.reject(this.broken);
    return new Promise((settle, refuse) => {
      const old = lane === undefined ? -1 : this.waiting.findIndex((one) => one.lane === lane);
      if (old >= 0) this.waiting.splice(old, 1)[0]!.settle(null);
      const one = { question: { id: ++this.count, request, body: JSON.stringify(body) }, lane, settle, refuse };
      const before = later.has(request) ? -1 : this.waiting.findIndex((other) => later.has(other.question.request));
      this.waiting.splice(before < 0 ? this.waiting.length : before, 0, one);
      this.next();
    });
  }
  end(): void {
    this.worker.terminate();
  }

  private next(): void {
    if (!this.open || this.running !== undefined) return;
    this.running = this.waiting.shift();
    if (this.running !== undefined) this.worker.postMessage(this.running.question);
    this.told(this.running !== undefined);
  }
}

/** The engine in the page's own elements (see src/picture/page); null on a page without them. */
export function engineOfPage(): Engine | null {
  const text = (id: string) => document.getElementById(id)?.textContent ?? "";
  if (text("vitrine-engine") === "" || text("vitrine-weights") === "") return null;
  const fileName = document.getElementById("vitrine-weights")!.dataset["name"] ?? "model.gguf";
  const thread = new Thread({ engine: text("vitrine-engine"), weights: text("vitrine-weights"), name: fileName });
  return {
    ask: async <T>(request: string, body: object, lane?: string) => {
      const answer = await thread.ask(request, body, lane);
      return answer === null ? null : read<T>(answer);
    },
    askApart: async <T>(request: string, body: object) => {
      const apart = new Thread({ engine: await thread.module, weights: text("vitrine-weights"), name: fileName });
      try {
        return read<T>((await apart.ask(request, body))!);
      } finally {
        apart.end();
      }
    },
    last: () => thread.last,
    onBusy: (listener) => {
      thread.told = listener;
    },
    file: async () => new Blob([await unpack(text("vitrine-weights"))]),
    fileName,
  };
}
