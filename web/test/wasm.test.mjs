// The engine of live pages gives what the program gives: every family's golden file, and random states of the shipped model.
// VITRINE_PROGRAM names the program; without it the tests say that they were skipped.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { openEngine } from "./wasm.mjs";

const program = process.env["VITRINE_PROGRAM"];
const golden = resolve(dirname(fileURLToPath(import.meta.url)), "../../tests/golden/gguf");
const folder = mkdtempSync(join(tmpdir(), "vitrine-engine-"));
const shipped = join(folder, "tales9m-q8_0.gguf");
after(() => rmSync(folder, { recursive: true }));

/** @param {string[]} words */
const run = (...words) => JSON.parse(execFileSync(/** @type {string} */ (program), [...words, "--json"], { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] }));

/** @param {number} a @param {number} b @param {string} what */
const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-4, `${what}: ${a} in WebAssembly, ${b} in the program`);

/** The same tokens with the same log-probabilities; neighbors that are level may change places.
 * @param {{token: number, logprob: number}[]} mine @param {{token: number, logprob: number}[]} theirs @param {string} what */
function sameTop(mine, theirs, what) {
  assert.equal(mine.length, theirs.length);
  mine.forEach((entry, i) => {
    const other = theirs[i];
    assert.ok(other !== undefined);
    near(entry.logprob, other.logprob, `${what}, rank ${i + 1}`);
    const level = theirs.some((one, k) => k !== i && Math.abs(one.logprob - other.logprob) <= 2e-4);
    if (!level) assert.equal(entry.token, other.token, `${what}, rank ${i + 1}`);
  });
}

/** Numbers that look random and are the same at every run. */
function random() {
  let state = 12345;
  return (/** @type {number} */ n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

describe("the engine of live pages", { skip: program === undefined && "VITRINE_PROGRAM is not set" }, () => {
  for (const file of readdirSync(golden).filter((name) => name.endsWith(".gguf")))
    test(`predicts as the program: ${file}`, async () => {
      const path = join(golden, file);
      const ids = [5, 3, 7, 9, 11, 2, 8];
      const theirs = run("predict", "--tokens", ids.join(","), "--top", "8", "--model", path, "--compute", "f32");
      const engine = await openEngine(path);
      const mine = await engine.ask("next", { prompt: ids, top: 8 });
      engine.end();
      assert.equal(mine.error, undefined, JSON.stringify(mine.error));
      sameTop(mine.next, theirs.predictions[0].top, file);
    });

  describe("the shipped model in q8_0", () => {
    /** @type {Awaited<ReturnType<typeof openEngine>>} */
    let engine;
    /** @param {string} request @param {object} body */
    const ask = (request, body) => engine.ask(request, body);
    after(() => engine?.end());
    before(async () => {
      execFileSync(/** @type {string} */ (program), ["convert", resolve(golden, "../../../models/tales9m"), shipped, "--dtype", "q8_0"], { stdio: "ignore" });
      engine = await openEngine(shipped);
    });
    const model = ["--model", shipped, "--compute", "f32"];
    const words = ["Once upon a time", " there was", " a king", " who", " lived in the forest", " and said: \"come\"", " the little girl"];
    const parts = [{ head: "3.1" }, { head: "0.0" }, { mlp: "2" }, { attn: "5" }, { head: "*", positions: "1:3" }, { layer: "4" }];

    test("thirty random states: prompt, edits, greedy text", async () => {
      const pick = random();
      for (let state = 0; state < 30; ++state) {
        const prompt = words[0] + Array.from({ length: pick(5) }, () => words[1 + pick(words.length - 1)]).join("");
        const mine = await ask("next", { prompt, top: 10 });
        sameTop(mine.next, run("predict", prompt, ...model).predictions[0].top, prompt);

        const part = /** @type {object} */ (parts[pick(parts.length)]);
        const edit = { ...part, do: "zero" };
        const recipe = join(folder, "recipe.yaml");
        writeFileSync(recipe, JSON.stringify({ prompt, interventions: [edit] }));
        const theirs = run("intervene", recipe, ...model);
        const answer = await ask("patch", { prompt, interventions: [edit] });
        assert.equal(answer.error, undefined, JSON.stringify(answer.error));
        for (const when of ["before", "after"]) sameTop(answer[when][0].top, theirs[when][0].top, `${prompt} ${JSON.stringify(edit)} ${when}`);
        sameTop((await ask("next", { prompt, top: 10, edits: [edit] })).next, theirs.after[0].top, `${prompt} with edits`);

        if (state % 5 === 0) {
          const text = await ask("generate", { prompt, max_tokens: 12 });
          assert.equal(text.text, run("generate", prompt, "--max-tokens", "12", ...model).text);
          const changed = await ask("generate", { prompt, max_tokens: 12, edits: [edit] });
          assert.equal(changed.text, run("generate", prompt, "--max-tokens", "12", "--edits", recipe, ...model).text, JSON.stringify(edit));
        }
      }
    });

    test("a draw with temperature, top-k and top-p", async () => {
      const sampling = { temperature: 0.9, top_k: 20, top_p: 0.9, seed: 7 };
      const mine = await ask("generate", { prompt: words[0], max_tokens: 16, ...sampling });
      const theirs = run("generate", String(words[0]), "--max-tokens", "16", "--temperature", "0.9", "--top-k", "20", "--top-p", "0.9", "--seed", "7", ...model);
      assert.deepEqual(mine.tokens, theirs.tokens);
      const next = await ask("next", { prompt: words[0], top: 40, ...sampling });
      const kept = next.next.reduce((/** @type {number} */ sum, /** @type {{kept: number}} */ entry) => sum + entry.kept, 0);
      assert.ok(Math.abs(kept - 1) < 1e-6, `what is kept sums to ${kept}`);
      assert.ok(next.left <= 20);
    });

    test("what the most active units write", async () => {
      const prompt = "Once upon a time there was a king";
      for (const [layer, position] of [[0, 0], [3, 2], [7, 8]]) {
        const mine = await ask("units", { prompt, layer, position, units: 6, top: 3 });
        const theirs = run("units", prompt, "--layer", String(layer), "--position", String(position), "--units", "6", "--top", "3", ...model);
        assert.equal(mine.units.length, 6, JSON.stringify(mine));
        assert.equal(mine.d_ff, theirs.d_ff);
        mine.units.forEach((/** @type {any} */ unit, /** @type {number} */ i) => {
          assert.equal(unit.unit, theirs.units[i].unit);
          near(unit.value, theirs.units[i].value, `unit ${unit.unit}`);
          for (const side of ["promoted", "suppressed"]) unit[side].forEach((/** @type {any} */ one, /** @type {number} */ k) => near(one.logit, theirs.units[i][side][k].logit, `unit ${unit.unit}, ${side} ${k}`));
        });
      }
    });

    test("one step of training", async () => {
      const mine = await ask("train", { prompt: words[0], target: " there", rate: 0.003, top: 5 });
      const theirs = run("train", "--one-step", String(words[0]), "--target", " there", "--rate", "0.003", "--top", "5", "--model", shipped);
      for (const field of ["loss_before", "loss_after", "gradient_norm"]) near(mine[field], theirs[field], field);
      sameTop(mine.after, theirs.after, "after the step");
    });

    test("a run of training: the program's numbers, in slices as at once, and a file that holds the result", async () => {
      const [text, target] = ["The king sat on", " her"];
      const body = { prompt: text, target, rate: 0.0002, top: 5 };
      const untouched = await ask("next", { prompt: text, top: 5 });
      const theirs = run("train", "--one-step", text, "--target", target, "--rate", "0.0002", "--steps", "20", "--top", "5", "--model", shipped);
      const whole = await ask("train", { ...body, steps: 20 });
      /** @param {any} mine @param {any} other @param {string} what */
      const sameCourse = (mine, other, what) => {
        assert.equal(mine.losses.length, other.losses.length);
        mine.losses.forEach((/** @type {number} */ loss, /** @type {number} */ i) => near(loss, other.losses[i], `${what}, loss after ${i} steps`));
        assert.deepEqual(mine.followed.map((/** @type {any} */ one) => one.piece), other.followed.map((/** @type {any} */ one) => one.piece));
        mine.followed.forEach((/** @type {any} */ one, /** @type {number} */ k) => one.logprobs.forEach((/** @type {number} */ value, /** @type {number} */ i) => near(value, other.followed[k].logprobs[i], `${what}, ${one.piece} after ${i} steps`)));
      };
      sameCourse(whole, theirs, "at once");
      sameTop(whole.after, theirs.after, "after the run");
      assert.ok(theirs.after[0].token === theirs.target[0].token && theirs.before[0].token !== theirs.target[0].token, "the answer flips");

      // As the page asks, and stopped after 7 steps: what is there then are the weights behind 7 steps, no others.
      const losses = [];
      for (let taken = 0; taken < 7; ++taken) losses.push((await ask("train", { ...body, goes_on: taken > 0 })).loss_after);
      assert.deepEqual(losses, whole.losses.slice(1, 8));
      const stopped = join(folder, "stopped.gguf");
      const { bytes, error } = await engine.ask("train", { ...body, steps: 0, goes_on: true, format: "gguf" }, stopped);
      assert.equal(error, undefined, JSON.stringify(error));
      assert.equal(statSync(stopped).size, bytes);
      near(-run("predict", text, "--top", "8000", "--model", stopped, "--compute", "f32").predictions[0].top.find((/** @type {any} */ one) => one.token === theirs.target[0].token).logprob, theirs.losses[7], "the file in the program");
      // And goes on from there.
      assert.deepEqual((await ask("train", { ...body, steps: 13, goes_on: true })).losses, whole.losses.slice(7));

      const other = await openEngine(stopped);
      near(-(await other.ask("next", { prompt: text, top: 8000 })).next.find((/** @type {any} */ one) => one.token === theirs.target[0].token).logprob, theirs.losses[7], "the file in the engine");
      other.end();
      assert.deepEqual(await ask("next", { prompt: text, top: 5 }), untouched, "the page's own weights stay as they are, to the bit");
      assert.deepEqual((await ask("train", { ...body, steps: 20 })).losses, whole.losses, "a run that does not go on begins with them");
    });

    test("every picture of the page", async () => {
      const prompt = "Once upon a time there was a king";
      const theirs = run("explain", prompt, "--no-gradients", ...model);
      const mine = await ask("document", { prompt, gradients: false });
      assert.equal(mine.error, undefined, JSON.stringify(mine.error));
      assert.deepEqual(Object.keys(mine.pictures), Object.keys(theirs.pictures));
      assert.deepEqual(mine.steps, theirs.steps);
      let compared = 0;
      /** @param {any} a @param {any} b @param {string} path */
      const compare = (a, b, path) => {
        if (typeof a === "number" && typeof b === "number") {
          assert.ok(Math.abs(a - b) <= 1e-4 + 1e-3 * Math.abs(b), `${path}: ${a} in WebAssembly, ${b} in the program`);
          ++compared;
        } else if (typeof a === "object" && a !== null && b !== null) {
          assert.deepEqual(Object.keys(a), Object.keys(b), path);
          for (const key of Object.keys(a)) compare(a[key], b[key], `${path}.${key}`);
        } else if ([a, b].every((x) => x === null || x > 1e20)) {
          // The stream without norms grows until f32 ends, which other sums reach a step earlier.
        } else assert.equal(typeof a, typeof b, path);
      };
      compare(mine.pictures, theirs.pictures, "pictures");
      assert.ok(compared > 1000, `${compared} numbers were compared`);
    });

    test("what is wrong is told in words", async () => {
      for (const [request, body, word] of /** @type {const} */ ([
        ["nothing", {}, "no request"],
        ["next", {}, "prompt"],
        ["next", { prompt: [] }, "not empty"],
        ["next", { prompt: [1 << 30] }, "the vocabulary has the ids"],
        ["next", { prompt: "a", temperature: "hot" }, "temperature"],
        ["patch", { prompt: "a", interventions: [{ head: "99.0", do: "zero" }] }, "99"],
        ["inspect", { prompt: "a", hooks: ["no.such.hook"] }, "no.such.hook"],
        ["train", { prompt: "a", target: " b", steps: 201 }, "steps.*from 0 to 200"],
      ]))
        assert.match((await ask(request, body)).error.message, new RegExp(word), request);
      await assert.rejects(openEngine(join(folder, "absent.gguf")), /absent\.gguf/);
    });
  });
});
