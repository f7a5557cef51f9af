// Questions that wait for one engine, which answers one at a time.

/** What a reader waits for at every key comes before what the page asks beside it, and that before pictures. */
function rank(request: string): number {
  return request === "next" ? 0 : request === "document" ? 2 : 1;
}

interface Waiting {
  request: string;
  body: string;
  lane: string | undefined;
  stop: AbortController;
  settle: (answer: string | null) => void;
  refuse: (error: unknown) => void;
}

/** Gives the answer to a question. Once `signal` is aborted nobody waits for it any more. */
export type Send = (request: string, body: string, signal: AbortSignal) => Promise<string>;

export class Line {
  private readonly send: Send;
  private readonly told: (busy: boolean) => void;
  private readonly waiting: Waiting[] = [];
  private running: Waiting | undefined;

  constructor(send: Send, told: (busy: boolean) => void) {
    this.send = send;
    this.told = told;
  }

  /** Null where a newer question of the same lane has taken this one's place. */
  ask(request: string, body: object, lane?: string): Promise<string | null> {
    return new Promise((settle, refuse) => {
      const old = lane === undefined ? -1 : this.waiting.findIndex((one) => one.lane === lane);
      if (old >= 0) this.waiting.splice(old, 1)[0]!.settle(null);
      if (lane !== undefined && this.running?.lane === lane) this.running.stop.abort();
      const before = this.waiting.findIndex((other) => rank(other.request) > rank(request));
      this.waiting.splice(before < 0 ? this.waiting.length : before, 0, { request, body: JSON.stringify(body), lane, stop: new AbortController(), settle, refuse });
      void this.next();
    });
  }

  private async next(): Promise<void> {
    if (this.running !== undefined) return;
    const one = this.running = this.waiting.shift();
    this.told(one !== undefined);
    if (one === undefined) return;
    try {
      one.settle(await this.send(one.request, one.body, one.stop.signal));
    } catch (error) {
      if (one.stop.signal.aborted) one.settle(null);
      else one.refuse(error);
    }
    this.running = undefined;
    void this.next();
  }
}
