// The engine in a thread of the page.

import { quoted, read, type Engine } from "./engine";
import { Line, type Send } from "./line";
import { unpack } from "./unpack";
import type { Failure, Question, Ready, Reply, Start } from "./worker";
import EngineThread from "./worker?worker&inline";

class Thread {
  readonly module: Promise<WebAssembly.Module>;
  private readonly worker = new EngineThread();
  private readonly asked = new Map<number, { settle: (answer: string) => void; refuse: (error: Error) => void }>();
  private count = 0;
  last = { milliseconds: 0, bytes: 0 };

  constructor(start: Start) {
    this.module = new Promise((settle, refuse) => {
      const fail = (what: string) => {
        const broken = new Error(what);
        refuse(broken);
        for (const one of this.asked.values()) one.refuse(broken);
        this.asked.clear();
      };
      this.worker.addEventListener("error", (event) => fail(event.message || "the engine's thread could not be started"));
      this.worker.addEventListener("message", ({ data }: MessageEvent<Ready | Reply | Failure>) => {
        if ("failed" in data) return fail(data.failed);
        if ("ready" in data) return settle(data.module);
        this.last = { milliseconds: data.milliseconds, bytes: data.bytes };
        this.asked.get(data.id)?.settle(data.answer);
        this.asked.delete(data.id);
      });
    });
    this.module.catch(() => undefined);  // whoever asks is told
    this.worker.postMessage(start);
  }

  readonly send: Send = async (request, body) => {
    await this.module;
    return new Promise((settle, refuse) => {
      const id = ++this.count;
      this.asked.set(id, { settle, refuse });
      this.worker.postMessage({ id, request, body } satisfies Question);
    });
  };
  end(): void {
    this.worker.terminate();
  }
}

/** The engine of a thread that has a model's file: packed, or the reader's own. */
function engineOf(thread: Thread, weights: string | File, name: string): Engine {
  let told: (busy: boolean) => void = () => undefined;
  const line = new Line(thread.send, (busy) => told(busy));
  return {
    ask: async <T>(request: string, body: object, lane?: string) => {
      const answer = await line.ask(request, body, lane);
      return answer === null ? null : read<T>(answer);
    },
    askApart: async <T>(request: string, body: object) => {
      const apart = new Thread({ engine: await thread.module, weights, name });
      try {
        return read<T>(await apart.send(request, JSON.stringify(body), new AbortController().signal));
      } finally {
        apart.end();
      }
    },
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
