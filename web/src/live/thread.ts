// The engine in a thread of the page.

import { quoted, read, type Apart, type Engine } from "./engine";
import { Line, type Send } from "./line";
import { unpack } from "./unpack";
import type { Failure, Question, Ready, Reply, Start } from "./worker";
import EngineThread from "./worker?worker&inline";

class Thread {
  /** Once it has opened its model. */
  module!: Promise<WebAssembly.Module>;
  private worker!: Worker;
  private readonly asked = new Map<number, { settle: (reply: Reply) => void; refuse: (error: Error) => void }>();
  private count = 0;
  last = { milliseconds: 0, bytes: 0 };

  constructor(start: Start) {
    this.open(start);
  }

  /** An engine that fails at a question is in no state to answer others: another takes its place. */
  private open(start: Start): void {
    const worker = this.worker = new EngineThread();
    let opened: WebAssembly.Module | undefined;
    this.module = new Promise((settle, refuse) => {
      const fail = (what: string) => {
        if (worker !== this.worker) return;
        const broken = new Error(opened === undefined ? what : `The engine has failed and was started again: ${what}`);
        refuse(broken);
        const asked = [...this.asked.values()];
        this.asked.clear();
        if (opened !== undefined) {
          worker.terminate();
          this.open({ ...start, engine: opened });
        }
        for (const one of asked) one.refuse(broken);
      };
      worker.addEventListener("error", (event) => fail(event.message || "the engine's thread could not be started"));
      worker.addEventListener("message", ({ data }: MessageEvent<Ready | Reply | Failure>) => {
        if ("failed" in data) return fail(data.failed);
        if ("ready" in data) return settle(opened = data.module);
        this.last = { milliseconds: data.milliseconds, bytes: data.bytes };
        this.asked.get(data.id)?.settle(data);
        this.asked.delete(data.id);
      });
    });
    this.module.catch(() => undefined);  // whoever asks is told
    worker.postMessage(start);
  }

  async ask(request: string, body: string, file = false): Promise<Reply> {
    await this.module;
    return new Promise((settle, refuse) => {
      const id = ++this.count;
      this.asked.set(id, { settle, refuse });
      this.worker.postMessage({ id, request, body, file } satisfies Question);
    });
  }
  readonly send: Send = async (request, body) => (await this.ask(request, body)).answer;
  end(): void {
    this.worker.terminate();
  }
}

/** The engine of a thread that has a model's file: packed, or the reader's own. */
function engineOf(thread: Thread, weights: string | File, name: string): Engine {
  let told: (busy: boolean) => void = () => undefined;
  const line = new Line(thread.send, (busy) => told(busy));
  const apart = async (): Promise<Apart> => {
    const other = new Thread({ engine: await thread.module, weights, name });
    return {
      ask: async <T>(request: string, body: object) => read<T>(await other.send(request, JSON.stringify(body), new AbortController().signal)),
      askFile: async (request, body) => {
        const { answer, file } = await other.ask(request, JSON.stringify(body), true);
        read(answer);
        return new Blob([file!]);
      },
      end: () => other.end(),
    };
  };
  return {
    ask: async <T>(request: string, body: object, lane?: string) => {
      const answer = await line.ask(request, body, lane);
      return answer === null ? null : read<T>(answer);
    },
    askApart: async <T>(request: string, body: object, signal = new AbortController().signal) => {
      const other = await apart();
      try {
        signal.throwIfAborted();
        const left = new Promise<never>((_, refuse) => signal.addEventListener("abort", () => refuse(signal.reason)));
        return await Promise.race([other.ask<T>(request, body), left]);
      } finally {
        other.end();
      }
    },
    apart,
    last: () => thread.last,
    onBusy: (listener) => {
      told = listener;
    },
    file: { name, bytes: async () => (typeof weights === "string" ? new Blob([await unpack(weights)]) : weights) },
    other: async (file) => {
      const next = new Thread({ engine: await thread.module, weights: file, name: file.name });
      try {
        await next.module;
      } catch (error) {
        next.end();
        throw error;
      }
      return engineOf(next, file, file.name);
    },
    end: () => thread.end(),
    commandModel: `--model ${/^[\w.-]+$/.test(name) ? name : quoted(name)}`,
    commandOptions: "--compute f32",
  };
}

/** The engine in the page's own elements (see src/app/picture/page); null on a page without them. */
export function engineOfPage(): Engine | null {
  const text = (id: string) => document.getElementById(id)?.textContent ?? "";
  if (text("vitrine-engine") === "" || text("vitrine-weights") === "") return null;
  const name = document.getElementById("vitrine-weights")!.dataset["name"] ?? "model.gguf";
  return engineOf(new Thread({ engine: text("vitrine-engine"), weights: text("vitrine-weights"), name }), text("vitrine-weights"), name);
}
