// The engine of the server that gave the page: every question is a POST to it.

import { askServerText } from "../served/ask";
import { read, type Engine } from "./engine";
import { Line, type Send } from "./line";
import { inWords } from "./words";

/** Null on a page that no server gave. */
export function engineOfServer(): Engine | null {
  const model = window.vitrineServer;
  if (model === undefined) return null;
  let told: (busy: boolean) => void = () => undefined;
  const last = { milliseconds: 0, bytes: 0 };
  const send: Send = async (request, body, signal) => {
    const from = performance.now();
    const answer = await askServerText(`v1/live/${request}`, body, signal).catch((error: unknown) => {
      throw error instanceof Error ? new Error(inWords(error.message), { cause: error }) : error;
    });
    last.milliseconds = performance.now() - from;
    return answer;
  };
  // The server makes pictures piece by piece and answers others in between: they need not wait for them.
  const busy = [false, false];
  const lines = busy.map((_, i) => new Line(send, (now) => {
    busy[i] = now;
    told(busy.some(Boolean));
  }));
  return {
    ask: async <T>(request: string, body: object, lane?: string) => {
      const answer = await lines[request === "document" ? 1 : 0]!.ask(request, body, lane);
      return answer === null ? null : read<T>(answer);
    },
    askApart: async <T>(request: string, body: object, signal = new AbortController().signal) => read<T>(await send(request, JSON.stringify(body), signal)),
    apart: null,
    last: () => last,
    onBusy: (listener) => {
      told = listener;
    },
    file: null,
    other: null,
    end: () => undefined,
    commandModel: model.command_model,
    commandOptions: model.command_options,
  };
}
