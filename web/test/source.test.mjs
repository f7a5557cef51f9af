// Rules of the source itself: modules depend on each other in one direction, and tests wait for states.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

/** The files under a folder whose names end so, in a fixed order. @param {string} folder @param {RegExp} ending */
const files = (folder, ending) => readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => ending.test(name)).sort().map((name) => join(folder, name));

/** What a module names in its imports and exports, those of types included. @param {string} source */
const imported = (source) => [...source.matchAll(/\bfrom\s*"([^"]+)"|^\s*import\s*"([^"]+)"|\bimport\(\s*"([^"]+)"\s*\)/gm)].map(([, from, alone, call]) => from ?? alone ?? call ?? "");

/** A circle of modules that depend on each other, or nothing. @param {Map<string, string[]>} graph  the modules that each module imports */
function circle(graph) {
  /** @type {Set<string>} */
  const done = new Set();
  /** @type {(at: string, path: string[]) => string[] | undefined} */
  const from = (at, path) => {
    if (path.includes(at)) return [...path.slice(path.indexOf(at)), at];
    if (done.has(at)) return undefined;
    for (const next of graph.get(at) ?? []) {
      const found = from(next, [...path, at]);
      if (found !== undefined) return found;
    }
    done.add(at);
    return undefined;
  };
  for (const at of graph.keys()) {
    const found = from(at, []);
    if (found !== undefined) return found;
  }
  return undefined;
}

test("no module of the page depends on itself through others", () => {
  const src = join(here, "../src");
  const modules = files(src, /\.tsx?$/);
  const graph = new Map(modules.map((path) => [relative(src, path), imported(readFileSync(path, "utf8")).filter((name) => name.startsWith(".")).map((name) => {
    const to = join(dirname(path), name.replace(/\?.*$/, ""));
    const found = [to, to.replace(/\.js$/, ".ts"), `${to}.ts`, `${to}.tsx`, `${to}/index.ts`, `${to}/index.tsx`].find((one) => /\.\w+$/.test(one) && existsSync(one));
    assert.ok(found !== undefined, `${path}: "${name}" is no file`);
    return relative(src, found);
  })]));
  assert.ok([...graph.values()].flat().length > modules.length, "the imports are not found");
  assert.equal(circle(graph)?.join(" → "), undefined);
});

test("a circle is found, whichever way its imports are written", () => {
  assert.deepEqual(imported('import type { A } from "./a";\nimport {\n  b,\n} from "./b";\nimport "./c.css";\nexport * from "./d";\nconst e = () => import("./e");\n'), ["./a", "./b", "./c.css", "./d", "./e"]);
  assert.equal(circle(new Map([["a", ["b", "c"]], ["b", ["c"]], ["c", []]])), undefined);
  assert.deepEqual(circle(new Map([["a", ["b"]], ["b", ["c", "d"]], ["c", []], ["d", ["b"]]])), ["b", "d", "b"]);
});

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

test("the experiments that a chapter's texts name exist, each once a chapter, and each has its place", () => {
  const names = [.../^const trials[^]*?^};/m.exec(readFileSync(join(here, "../src/live/experiment.tsx"), "utf8"))?.[0].matchAll(/^  (\w+): \{/gm) ?? []].map(([, name]) => name);
  assert.ok(names.length >= 7);
  const chapters = join(here, "../../src/app/picture/page/chapters");
  /** @type {string[]} */
  const placed = [];
  for (const chapter of readdirSync(chapters, { withFileTypes: true }).filter((one) => one.isDirectory())) {
    const own = files(join(chapters, chapter.name), /\.jinja$/).flatMap((path) => readFileSync(path, "utf8").split("\n").filter((line) => line.startsWith("experiments:")).flatMap((line) => line.split(" ").slice(1)));
    assert.ok(own.length > 0, `${chapter.name} has nothing to try`);
    assert.equal(new Set(own).size, own.length, `${chapter.name} has an experiment twice: ${own.join(" ")}`);
    placed.push(...own);
  }
  assert.deepEqual([...new Set(placed)].sort(), names.sort());
});
