// A live page from its parts: the page of `vitrine explain`, the engine as WebAssembly and a model file. The script and the style
// are those of the bundle that VITRINE_DIST names (web/dist), so that a change can be tried before the program embeds it.

import { readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { packed } from "./packed.mjs";

const dist = resolve(process.env["VITRINE_DIST"] ?? join(dirname(fileURLToPath(import.meta.url)), "../dist"));
const policy = "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:; style-src 'unsafe-inline'; img-src data:";

/** @param {{page: string, engine: string, weights: string, out: string}} files  paths; returns `out` */
export function writeLivePage({ page, engine, weights, out }) {
  const html = readFileSync(page, "utf8");
  const data = /<script id="vitrine-data" type="application\/json">(.*?)<\/script>/s.exec(html)?.[1];
  if (data === undefined) throw new Error(`${page} is no page of vitrine explain`);
  writeFileSync(out, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<title>A live page</title>
<style>${readFileSync(join(dist, "page.css"), "utf8")}</style>
</head>
<body>
<div id="vitrine"><noscript>A live page.</noscript></div>
<script id="vitrine-data" type="application/json">${data}</script>
<script>window.vitrine = JSON.parse(document.getElementById("vitrine-data").textContent)</script>
<script id="vitrine-engine" type="text/plain">${packed(gzipSync(readFileSync(engine), { level: 9 }))}</script>
<script id="vitrine-weights" type="text/plain" data-name="${basename(weights)}">${packed(gzipSync(readFileSync(weights), { level: 1 }))}</script>
<script>${readFileSync(join(dist, "page.js"), "utf8")}</script>
</body>
</html>
`);
  return out;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [page = "", engine = "", weights = "", out = ""] = process.argv.slice(2);
  if (out === "") throw new Error("usage: node test/live-page.mjs PAGE.html ENGINE.wasm MODEL.gguf OUT.html");
  console.log(writeLivePage({ page, engine, weights, out }));
}
