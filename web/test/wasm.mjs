// The engine of live pages under Node: the module that pages hold, with Node's own WASI.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { WASI } from "node:wasi";
import { gunzipSync } from "node:zlib";

const packed = process.env["VITRINE_ENGINE"] ?? join(dirname(fileURLToPath(import.meta.url)), "../dist/engine.wasm.gz");
const module = new WebAssembly.Module(new Uint8Array(gunzipSync(readFileSync(packed))));

/** An engine with a model file opened, as a function that asks it. @param {string} path */
export function openEngine(path) {
  const wasi = new WASI({ version: "preview1", preopens: { "/models": dirname(path) } });
  const instance = new WebAssembly.Instance(module, /** @type {WebAssembly.Imports} */ (wasi.getImportObject()));
  wasi.initialize(instance);
  const { memory, malloc, free, open_model: openModel, answer } = /** @type {any} */ (instance.exports);

  /** @param {string} text */
  const put = (text) => {
    const bytes = new TextEncoder().encode(`${text}\0`);
    const at = malloc(bytes.length);
    new Uint8Array(memory.buffer).set(bytes, at);
    return at;
  };
  /** @param {number} at */
  const get = (at) => {
    const bytes = new Uint8Array(memory.buffer);
    return new TextDecoder().decode(bytes.slice(at, bytes.indexOf(0, at)));
  };

  const name = put(path.replace(dirname(path), "/models"));
  const wrong = get(openModel(name));
  free(name);
  if (wrong !== "") throw new Error(wrong);
  /** @param {string} request @param {object} body */
  return (request, body) => {
    const [what, json] = [put(request), put(JSON.stringify(body))];
    const text = get(answer(what, json));
    free(what);
    free(json);
    return JSON.parse(text);
  };
}
