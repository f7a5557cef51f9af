// The engine of live pages under Node: the module that pages hold, with Node's own WASI. It has a process to itself: Node 20
// crashes where a process that compiles WebAssembly starts others. And its memory is collected by one thread: with
// several, Node 20 more often loses objects of the caller while a long question runs (a document with gradients), and ends with a
// segmentation fault. Browsers do not.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { WASI } from "node:wasi";

const here = fileURLToPath(import.meta.url);
const engine = process.env["VITRINE_ENGINE"] ?? join(dirname(here), "../dist/engine.wasm");

/** An engine with a model file opened: `ask` it, and `end` it. @param {string} path */
export async function openEngine(path) {
  const child = spawn(process.execPath, ["--no-warnings", "--single-threaded-gc", here, path], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const line = await lines.next();
    if (line.done === true) throw new Error(`the engine of ${path} ended`);
    return JSON.parse(line.value);
  };
  const opened = await next();
  if (opened !== "") {
    child.stdin.end();
    throw new Error(opened);
  }
  return {
    /** One request at a time. @param {string} request @param {object} body @param {string} [file] where an answer that is a file goes */
    ask: (request, body, file) => {
      child.stdin.write(`${JSON.stringify([request, body, file])}\n`);
      return next();
    },
    end: () => {
      child.stdin.end();
    },
  };
}

/** In the engine's process: a line in for each request, a line out for the model's opening and for each answer. @param {string} path */
async function answerAll(path) {
  const wasi = new WASI({ version: "preview1", preopens: { "/models": dirname(path) } });
  const module = new WebAssembly.Module(new Uint8Array(readFileSync(engine)));
  const instance = new WebAssembly.Instance(module, /** @type {WebAssembly.Imports} */ (wasi.getImportObject()));
  wasi.initialize(instance);
  const { memory, malloc, free, open_model: openModel, answer, file: fileAt, file_bytes: fileBytes } = /** @type {any} */ (instance.exports);

  /** Calls with texts, and reads the text it returns. @param {(...texts: number[]) => number} call @param {string[]} texts */
  const called = (call, ...texts) => {
    const places = texts.map((text) => {
      const bytes = new TextEncoder().encode(`${text}\0`);
      const at = malloc(bytes.length);
      new Uint8Array(memory.buffer).set(bytes, at);
      return at;
    });
    const at = call(...places);
    places.forEach(free);
    const bytes = new Uint8Array(memory.buffer);
    return new TextDecoder().decode(bytes.slice(at, bytes.indexOf(0, at)));
  };

  console.log(JSON.stringify(called(openModel, path.replace(dirname(path), "/models"))));
  for await (const line of createInterface({ input: process.stdin })) {
    const [request, body, file] = JSON.parse(line);
    const said = called(answer, request, JSON.stringify(body)).replaceAll("\n", " ");
    if (typeof file === "string") writeFileSync(file, new Uint8Array(memory.buffer, fileAt() >>> 0, fileBytes() >>> 0));
    console.log(said);
  }
}

if (process.argv[1] === here) await answerAll(/** @type {string} */ (process.argv[2]));
