// The thread that runs the engine of a live page: the library compiled to WebAssembly, with one file, the weights, in memory.
// Messages in: a Start, then Questions. Messages out: Ready, then one Reply to each question, in their order.

import { unpack } from "./unpack";
import { wasi, type Source, type Wasi } from "./wasi";

export interface Start {
  /** Compiled already (by another thread), or packed as unpack.ts reads it. */
  engine: WebAssembly.Module | string;
  /** The model file: packed likewise, or a file of the reader's, which is read here and goes nowhere else. */
  weights: string | File;
  /** Name of the model file, as the engine and its commands call it. */
  name: string;
}

export interface Question {
  id: number;
  request: string;
  /** JSON. */
  body: string;
  /** The answer is a file. */
  file?: boolean;
}

export interface Ready {
  ready: true;
  module: WebAssembly.Module;
}

export interface Reply {
  id: number;
  /** JSON. */
  answer: string;
  /** Where it was asked for, and the answer tells of no error. */
  file?: ArrayBuffer;
  milliseconds: number;
  /** Of the engine's memory. */
  bytes: number;
}

export interface Failure {
  failed: string;
}

// Only threads have it, and the compiler is told of pages.
declare class FileReaderSync {
  readAsArrayBuffer(part: Blob): ArrayBuffer;
}

interface Exports {
  memory: WebAssembly.Memory;
  _initialize: () => void;
  malloc: (size: number) => number;
  free: (at: number) => void;
  open_model: (path: number) => number;
  answer: (request: number, body: number) => number;
  file: () => number;
  file_bytes: () => number;
}

class Engine {
  private readonly exports: Exports;

  constructor(instance: WebAssembly.Instance, system: Wasi) {
    this.exports = instance.exports as unknown as Exports;
    system.memory = this.exports.memory;
    this.exports._initialize();
  }

  /** What went wrong, or an empty text. */
  open(name: string): string {
    return this.call(this.exports.open_model, name);
  }
  answer(request: string, body: string): string {
    return this.call(this.exports.answer, request, body);
  }
  /** Of the last answer; empty where that was none. */
  file(): ArrayBuffer {
    const bytes = this.exports.file_bytes() >>> 0;
    const at = bytes === 0 ? 0 : this.exports.file() >>> 0;
    return this.exports.memory.buffer.slice(at, at + bytes) as ArrayBuffer;
  }
  get bytes(): number {
    return this.exports.memory.buffer.byteLength;
  }

  // Addresses come as signed numbers, which are negative from 2 GiB on: hence >>> 0.
  private call(function_: (...at: number[]) => number, ...texts: string[]): string {
    const places = texts.map((text) => this.put(text));
    const at = (function_ as (...at: number[]) => number)(...places) >>> 0;
    const memory = new Uint8Array(this.exports.memory.buffer);
    const said = new TextDecoder().decode(memory.subarray(at, memory.indexOf(0, at)));
    for (const place of places) this.exports.free(place);
    return said;
  }
  private put(text: string): number {
    const bytes = new TextEncoder().encode(text.replaceAll("\0", "\ufffd"));
    const at = this.exports.malloc(bytes.length + 1) >>> 0;
    if (at === 0) throw new Error("the engine has no memory left");
    const memory = new Uint8Array(this.exports.memory.buffer);
    memory.set(bytes, at);
    memory[at + bytes.length] = 0;
    return at;
  }
}

let engine: Engine | undefined;

async function sourceOf(weights: string | File): Promise<Source> {
  if (typeof weights === "string") {
    const bytes = await unpack(weights);
    return { size: bytes.length, read: (from, length) => bytes.subarray(from, from + length) };
  }
  const reader = new FileReaderSync();
  return { size: weights.size, read: (from, length) => new Uint8Array(reader.readAsArrayBuffer(weights.slice(from, from + length))) };
}

async function start({ engine: given, weights, name }: Start): Promise<void> {
  const [module, source] = await Promise.all([typeof given === "string" ? unpack(given).then((packed) => WebAssembly.compile(packed)) : given, sourceOf(weights)]);
  const system = wasi(name, source);
  engine = new Engine(await WebAssembly.instantiate(module, system.imports), system);
  const wrong = engine.open(name);
  if (wrong !== "") throw new Error(wrong);
  postMessage({ ready: true, module } satisfies Ready);
}

self.addEventListener("message", ({ data }: MessageEvent<Start | Question>) => {
  const failed = (error: unknown) => postMessage({ failed: error instanceof Error ? error.message : String(error) } satisfies Failure);
  if ("engine" in data) {
    start(data).catch(failed);
    return;
  }
  try {
    const from = performance.now();
    const answer = engine!.answer(data.request, data.body);
    const file = data.file === true ? engine!.file() : undefined;
    const reply: Reply = { id: data.id, answer, milliseconds: performance.now() - from, bytes: engine!.bytes, ...(file === undefined ? {} : { file }) };
    postMessage(reply, { transfer: file === undefined ? [] : [file] });
  } catch (error) {
    failed(error);
  }
});
