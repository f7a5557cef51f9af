// Rules of the source itself: tests wait for states.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

/** The files under a folder whose names end so, in a fixed order. @param {string} folder @param {RegExp} ending */
const files = (folder, ending) => readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => ending.test(name)).sort().map((name) => join(folder, name));

// A busy machine may need any time for anything: a test that waits for a time, or gives up after one, fails there.
const sleeps = /\bwaitForTimeout\b|\bset(Timeout|Interval)\s*\(|\b(timeout|delay|polling)\s*:(?! hang\b)|timers\/promises|\bAtomics\.wait\b|\bAbortSignal\.timeout\b|"sleep"/;

/** The lines that wait for a time. @param {string} source */
const sleeping = (source) => source.split("\n").filter((line) => sleeps.test(line) && !line.includes("a pace, not a wait"));

test("tests wait for states, not for times", () => {
  const found = files(here, /\.mjs$/).filter((path) => !["wait.mjs", basename(fileURLToPath(import.meta.url))].includes(basename(path))).flatMap((path) => sleeping(readFileSync(path, "utf8")).map((line) => `${basename(path)}: ${line.trim()}`));
  assert.deepEqual(found, [], "wait for a state: an element, an event, an answer; wait.mjs has what helps");
});

test("a test that waits for a time is found", () => {
  const lines = ["await page.waitForTimeout(100);", "await new Promise((done) => setTimeout(done, 20));", "await part.waitFor({ timeout: 5000 });", 'import { setTimeout as sleep } from "node:timers/promises";', 'await field.type("word", { delay: 20 });'];
  assert.deepEqual(sleeping(["await part.waitFor();", ...lines, "const timed = 1;"].join("\n")), lines);
});
