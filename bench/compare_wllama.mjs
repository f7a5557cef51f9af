// The engine of live pages beside wllama (llama.cpp as WebAssembly, from npm): the same GGUF file in the same Chromium, one thread each,
// in turns. Run by hand; fetches wllama into a scratch folder.
//
//   node bench/compare_wllama.mjs MODEL.gguf... [--rounds 3] [--characters 900] [--tokens 64] [--wllama 3.13.0]
//
// Needs web/node_modules (npm ci in web/) and Chromium (VITRINE_CHROMIUM names another one). Prints a line for each model: medians of
// prefill and decode in tokens per second, their range, and our ratio, above 1 where ours is faster.

import { execFileSync } from "node:child_process";
import { createReadStream, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: "string", default: "3" }, characters: { type: "string", default: "900" }, tokens: { type: "string", default: "64" }, wllama: { type: "string", default: "3.13.0" } },
});
const [rounds, characters, newTokens] = [Number(values.rounds), Number(values.characters), Number(values.tokens)];
if (positionals.length === 0) throw new Error("usage: node bench/compare_wllama.mjs MODEL.gguf...");

const fromWeb = createRequire(join(root, "web/package.json"));
const { chromium } = fromWeb("playwright-core");
const { rolldown } = await import(pathToFileURL(fromWeb.resolve("rolldown")).href);

const scratch = mkdtempSync(join(tmpdir(), "compare-wllama-"));
process.on("exit", () => rmSync(scratch, { recursive: true }));
execFileSync("npm", ["install", "--prefix", scratch, "--no-audit", "--no-fund", `@wllama/wllama@${values.wllama}`], { stdio: ["ignore", "ignore", "inherit"] });
// The thread of a live page, as the page has it.
const bundle = await rolldown({ input: join(root, "web/src/live/worker.ts") });
const worker = (await bundle.generate({ format: "iife" })).output[0].code;

const page = `<!doctype html><title>compare</title><script type="module">
import { Wllama, LoggerWithoutDebug } from "/wllama/index.js";

// Prompts differ from round to round, so that nothing is kept from the one before.
const text = await (await fetch("/text")).text();
const long = (round, characters) => text.slice(1000 + 701 * round, 1000 + 701 * round + characters);
const short = (round) => text.slice(5000 + 701 * round, 5000 + 701 * round + 40);

window.ours = async (model, { characters, newTokens, round: first }) => {
  const engine = await WebAssembly.compile(await (await fetch("/engine.wasm")).arrayBuffer());
  const thread = new Worker("/worker.js");
  const answers = [];
  thread.onmessage = ({ data }) => answers.shift()(data);
  const ask = (message) => new Promise((settle) => { answers.push(settle); thread.postMessage(message); });
  const asked = async (request, body) => {
    const { answer, milliseconds, failed } = await ask({ id: 1, request, body: JSON.stringify(body) });
    if (failed !== undefined) throw new Error(failed);
    const said = JSON.parse(answer);
    if (said.error !== undefined) throw new Error(said.error.message);
    return { said, milliseconds };
  };
  const weights = new File([await (await fetch("/models/" + model)).blob()], model);
  const started = await ask({ engine, weights, name: model });
  if (started.failed !== undefined) throw new Error(started.failed);
  const runs = [];
  for (const round of [12, first]) {  // one to warm up
    const read = await asked("next", { prompt: long(round, characters), top: 1 });
    const prompt = short(round);
    const one = await asked("generate", { prompt, max_tokens: 1, temperature: 0 });
    const all = await asked("generate", { prompt, max_tokens: newTokens + 1, temperature: 0 });
    const made = all.said.tokens.length - one.said.tokens.length;
    runs.push({ read: read.said.tokens.length, prefill: 1000 * read.said.tokens.length / read.milliseconds, made, decode: 1000 * made / (all.milliseconds - one.milliseconds) });
  }
  thread.terminate();
  return runs.at(-1);
};

window.theirs = async (model, { characters, newTokens, round: first }) => {
  const wllama = new Wllama({ default: "/wllama/wasm/wllama.wasm" }, { logger: LoggerWithoutDebug, suppressNativeLog: true });
  await wllama.loadModel([await (await fetch("/models/" + model)).blob()], { n_ctx: 1024, n_batch: 512, n_threads: 1, n_gpu_layers: 0 });
  const options = { temperature: 0, ignore_eos: true, cache_prompt: false };
  const runs = [];
  for (const round of [12, first]) {
    const prefill = (await wllama.createCompletion({ ...options, prompt: long(round, characters), max_tokens: 1 })).timings;
    const decode = (await wllama.createCompletion({ ...options, prompt: short(round), max_tokens: newTokens + 1 })).timings;
    // The first new token comes with the prompt.
    runs.push({ read: prefill.prompt_n, prefill: prefill.prompt_per_second, made: decode.predicted_n - 1, decode: 1000 * (decode.predicted_n - 1) / decode.predicted_ms });
  }
  const threads = wllama.getNumThreads();
  return { ...runs.at(-1), threads };
};
window.ready = true;
</script>`;

const models = new Map(positionals.map((path) => [basename(path), resolve(path)]));
const types = { js: "text/javascript", wasm: "application/wasm", html: "text/html" };
const server = createServer((request, response) => {
  const url = decodeURIComponent(new URL(request.url, "http://host").pathname);
  const send = (type, text) => response.writeHead(200, { "content-type": type }).end(text);
  if (url === "/") return send(types.html, page);
  if (url === "/text") return send("text/plain; charset=utf-8", readFileSync(join(root, "examples/fables.txt")));
  if (url === "/worker.js") return send(types.js, worker);
  if (url === "/engine.wasm") return send("application/octet-stream", readFileSync(join(root, "web/dist/engine.wasm")));
  const path = url.startsWith("/models/") ? models.get(url.slice(8)) : url.startsWith("/wllama/") ? join(scratch, "node_modules/@wllama/wllama/esm", url.slice(8)) : undefined;
  if (path === undefined) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": types[path.split(".").at(-1)] ?? "application/octet-stream", "content-length": statSync(path).size });
  createReadStream(path).pipe(response);
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));

const browser = await chromium.launch({ executablePath: process.env.VITRINE_CHROMIUM ?? "/usr/bin/chromium-headless-shell", args: ["--no-sandbox", "--disable-gpu"] });
const median = (list) => [...list].sort((a, b) => a - b)[(list.length - 1) >> 1];
const shown = (list) => `${median(list).toPrecision(3)} (${Math.min(...list).toPrecision(3)} to ${Math.max(...list).toPrecision(3)})`;

/** One run of a program, in a page of its own. */
async function run(program, model, options) {
  const tab = await browser.newPage();
  tab.setDefaultTimeout(0);
  await tab.goto(`http://127.0.0.1:${server.address().port}/`);
  await tab.waitForFunction(() => window.ready);
  const runs = await tab.evaluate(([which, name, how]) => window[which](name, how), [program, model, options]);
  await tab.close();
  return runs;
}

for (const name of models.keys()) {
  const found = { ours: [], theirs: [] };
  for (let round = 0; round < rounds; ++round)
    for (const program of ["ours", "theirs"]) found[program].push(await run(program, name, { characters, newTokens, round }));
  const [ours, theirs] = [found.ours, found.theirs];
  for (const work of ["prefill", "decode"]) {
    const [a, b] = [ours.map((one) => one[work]), theirs.map((one) => one[work])];
    console.log(`${name}: ${work} ${shown(a)} tokens/s, wllama ${shown(b)}, ratio ${(median(a) / median(b)).toFixed(2)}`);
  }
  console.log(`  tokens read: ${ours.map((one) => one.read)} and ${theirs.map((one) => one.read)}, made: ${ours.map((one) => one.made)} and ${theirs.map((one) => one.made)}; wllama's threads: ${theirs[0].threads}`);
}
await browser.close();
server.close();
