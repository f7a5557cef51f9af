// Bytes that a live page holds as text come out as they went in.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { transformWithOxc } from "vite";
import { packed, unpacked } from "./packed.mjs";

const folder = mkdtempSync(join(tmpdir(), "vitrine-unpack-"));
after(() => rmSync(folder, { recursive: true }));
const source = join(dirname(fileURLToPath(import.meta.url)), "../src/live/unpack.ts");
writeFileSync(join(folder, "unpack.mjs"), (await transformWithOxc(readFileSync(source, "utf8"), source)).code);
/** @type {{unpack: (text: string) => Promise<Uint8Array>}} */
const { unpack } = await import(pathToFileURL(join(folder, "unpack.mjs")).href);

/** @param {Uint8Array} bytes @param {string} what */
async function comesBack(bytes, what) {
  const text = packed(bytes);
  assert.match(text, /^[!-~]*$/, what);
  assert.doesNotMatch(text, /["&<]/, what);
  assert.deepEqual([...await unpack(`\n${text}\n`)], [...bytes], what);
  assert.deepEqual([...unpacked(text)], [...bytes], what);
}

test("every byte at every place, and every length", async () => {
  const all = Uint8Array.from({ length: 256 }, (_, byte) => byte);
  for (let length = 0; length <= 40; ++length) await comesBack(all.subarray(100, 100 + length), `${length} bytes`);
  for (let before = 0; before < 13; ++before) await comesBack(Uint8Array.from([...new Uint8Array(before), ...all, ...all.toReversed()]), `behind ${before} zeros`);
  for (const byte of [0, 255]) await comesBack(new Uint8Array(1000).fill(byte), `bytes ${byte}`);
});

test("what is a gzip file comes out of it", async () => {
  const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => (i * i) >> 7);
  assert.deepEqual(Buffer.from(await unpack(packed(gzipSync(bytes)))), Buffer.from(bytes));
});
