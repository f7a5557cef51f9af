// A hundred random states of the chapters' live pages: a prompt of the model's words, parts that are switched off, a place that is looked
// at, a patch, a step of training. Whatever a page then shows is what the program computes for the same prompt and the same changes.
// VITRINE_PROGRAM names the program; without it the tests say that they were skipped. VITRINE_SEED: other states than the usual ones.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { launch, settle } from "./browser.mjs";
import { chapters, names, nothing, openChapter, program } from "./chapters.mjs";
import { bars, drawnOf, near, offered, quiet, sameBars, trained, trial } from "./live-panel.mjs";
import { unpacked } from "./packed.mjs";
import { promptOf, randomly, stateOf, wordsOf } from "./random-state.mjs";
import { among, levelAt, numbersIn, sameNumbers, sameTops } from "./same.mjs";
import { serve } from "./server.mjs";
import { unfoldAll } from "./wait.mjs";

/** @typedef {import("playwright-core").Page} Page */
/** @typedef {import("./random-state.mjs").State} State */

/** Of each chapter: how many prompts, and states of each. With another prompt all pictures are drawn again, which takes its time. */
const plan = { "next-word": [6, 5], gpt2: [6, 3], heads: [6, 3], gemma2: [6, 3], trainable: [4, 4] };
const seed = Number(process.env["VITRINE_SEED"] ?? 2026);

const folder = mkdtempSync(join(tmpdir(), "vitrine-states-"));
/** @type {import("playwright-core").Browser} */
let browser;
/** @type {ReturnType<typeof chapters>} */
let book;
before(async () => {
  if (nothing !== false || program === undefined) return;
  book = chapters();
  mkdirSync(join(folder, "bin"));
  symlinkSync(resolve(program), join(folder, "bin/vitrine"));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  book?.remove();
  rmSync(folder, { recursive: true });
});

/** The program beside a page: `ask` it for what the page asks its engine, `run` the commands that the page shows. @typedef {Awaited<ReturnType<typeof programFor>>} Program */

/** The program with the model of a chapter's page, in a folder of its own. @param {string} name @param {string} path */
async function programFor(name, path) {
  const [, model = "", text = ""] = /<script id="vitrine-weights" type="text\/plain" data-name="([^"]+)">([^<]+)</.exec(readFileSync(path, "utf8")) ?? [];
  const home = join(folder, name);
  mkdirSync(home);
  const bytes = unpacked(text);
  writeFileSync(join(home, model), bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes) : bytes);
  const { url, server } = await serve(resolve(program ?? ""), ["--model", model, "--compute", "f32"], home);
  return {
    model,
    /** @param {string} request @param {object} body @returns {Promise<any>} */
    ask: async (request, body) => {
      const answer = await (await fetch(`${url}v1/live/${request}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
      assert.equal(answer.error, undefined, JSON.stringify(answer.error));
      return answer;
    },
    /** What a command line prints as JSON, run as a reader would. @param {string} line @param {string} [recipe] saved as recipe.yaml @returns {any} */
    run: (line, recipe) => {
      if (recipe !== undefined) writeFileSync(join(home, "recipe.yaml"), recipe);
      return JSON.parse(execFileSync("sh", ["-c", `${line} --json`], { cwd: home, encoding: "utf8", env: { ...process.env, PATH: `${join(folder, "bin")}:${process.env["PATH"]}` }, stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 }));
    },
    end: () => server.kill(),
  };
}

/** Puts the state into the page's address and waits until the page shows it. @param {Page} page @param {State} state */
async function enter(page, state) {
  await page.evaluate((address) => {
    location.hash = address;
  }, state.address);
  await page.waitForFunction((prompt) => /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea")).value === prompt, state.prompt);
  await page.locator(".dock-changes").waitFor({ state: state.edits.length > 0 ? "attached" : "detached" });
  await quiet(page);
}

/** Every picture of the page is that of the program. @param {Page} page @param {any} theirs @param {string} what */
async function samePictures(page, theirs, what) {
  const mine = await page.evaluate(() => /** @type {any} */ (window.vitrine));
  assert.deepEqual(mine.prompt.ids, theirs.prompt.ids, what);
  let compared = 0;
  for (const [name, picture] of Object.entries(theirs.pictures)) {
    if (!picture.available && mine.pictures[name] === undefined) continue;  // what runs the model backward, until a reader sees it
    assert.ok(mine.pictures[name] !== undefined, `${what}: ${name} is missing`);
    compared += sameNumbers(mine.pictures[name], picture, `${what}, ${name}`);
  }
  assert.ok(compared > 1000, `${what}: ${compared} numbers were compared`);
}

/** A cell of a table as a number; null: it holds none. @param {string} text */
function numberOf(text) {
  const plain = text.replace("−", "-").replaceAll("\u202f", "").replace("×10", "e").replace("⁻", "-").replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (digit) => String("⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(digit)));
  return plain === "" || Number.isNaN(Number(plain)) ? null : Number(plain);
}

/** What the figures' tables say is what the program computed. @param {Page} page @param {any} theirs @param {string} what */
async function sameTables(page, theirs, what) {
  await settle(page);
  await unfoldAll(page, "figure[data-picture] .fold.data");
  const shown = await page.locator("figure[data-picture]").evaluateAll((figures) => figures.map((figure) => ({
    name: figure.getAttribute("data-picture") ?? "", cells: [...figure.querySelectorAll(".fold.data td.number")].map((cell) => cell.textContent ?? ""),
  })));
  let compared = 0;
  for (const { name, cells } of shown) {
    const picture = theirs.pictures[name];
    if (picture?.available !== true) continue;
    const known = numbersIn(picture);
    for (const cell of cells) {
      const value = numberOf(cell);
      if (value === null || Number.isInteger(value)) continue;  // numbers of rows and tokens
      assert.ok(among(known, value, 6), `${what}: ${name} shows ${cell}, which the program has not computed`);
      ++compared;
    }
  }
  assert.ok(compared > 100, `${what}: ${compared} cells were compared`);
  await page.evaluate(() => { for (const fold of document.querySelectorAll("figure[data-picture] .fold.data")) /** @type {HTMLDetailsElement} */ (fold).open = false; });
}

/** The opening's list is the program's reading at that depth of that token. @param {Page} page @param {State} state @param {Program} native @param {string} what */
async function sameOpening(page, state, native, what) {
  const reading = async (/** @type {object[]} */ edits) => {
    const { layers } = await native.ask("lens", { prompt: state.prompt, positions: [state.token ?? -1], top: 100, edits });
    return layers.at(state.depth ?? -1).positions[0].top;
  };
  const lists = { after: await reading(state.edits), before: state.edits.length === 0 ? [] : await reading([]) };
  const shown = await page.locator(".opening-answer li").evaluateAll((all) => all.map((one) => ({ token: Number(one.getAttribute("data-token")), after: one.getAttribute("data-probability"), before: one.getAttribute("data-before") })));
  assert.ok(shown.length >= 5, `${what}: ${shown.length} tokens`);
  if (!levelAt(lists.after, 0)) assert.equal(shown[0]?.token, lists.after[0].token, `${what}: the most likely token`);
  for (const when of /** @type {const} */ (["after", "before"]))
    for (const one of shown) {
      const text = one[when];
      if (text === null || text === "") continue;
      const other = lists[when].find((/** @type {any} */ candidate) => candidate.token === one.token);
      assert.ok(other !== undefined, `${what}: token ${one.token} is not likely ${when} the change`);
      near(Number(text), other.prob, `${what}: token ${one.token} ${when} the change`);
    }
}

/** The pictures that show the changed model. @param {Page} page @param {any} theirs @param {string} what */
async function sameEdited(page, theirs, what) {
  const table = async (/** @type {string} */ picture, /** @type {number} */ place) => {
    const figure = page.locator(`figure[data-picture=${picture}]`);
    if ((await figure.count()) === 0) return null;
    await unfoldAll(page, `figure[data-picture=${picture}] .fold.data`);
    assert.match((await figure.locator(".edited").textContent()) ?? "", /^With your /, what);
    const rows = await figure.locator(".fold.data table").nth(place).locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent ?? "")));
    return rows.map((row) => row.map((cell) => numberOf(cell) ?? NaN));
  };
  const { "next-tokens": next, attention } = theirs.pictures;
  const rows = await table("next-tokens", 1);
  if (rows !== null) {
    assert.equal(rows.length, next.ids.flat().length, what);
    next.ids.forEach((/** @type {number[]} */ ids, /** @type {number} */ position) => {
      const mine = ids.map((_, rank) => rows[position * ids.length + rank] ?? []).map((row) => ({ token: row[4] ?? NaN, prob: row[5] ?? NaN }));
      sameTops(mine, ids.map((token, rank) => ({ token, prob: next.probs[position][rank] })), `${what}, after token ${position}`);
    });
  }
  const heads = await table("attention", 2);
  for (const [layer = NaN, head = NaN, ...means] of heads ?? []) ["flatness", "onFirst", "onPrevious", "onSelf"].forEach((name, i) => near(means[i] ?? NaN, attention[name][layer][head], `${what}, ${name} of head ${layer}.${head}`));
}

/** The row of attention that is opened. @param {Page} page @param {State} state @param {any} theirs @param {string} what */
async function sameRow(page, { look }, theirs, what) {
  const [layer, head, query] = look;
  if (layer === undefined || head === undefined || query === undefined) return;
  const shown = await page.locator(".closer-row li").evaluateAll((all) => all.map((one) => Number(one.getAttribute("data-weight"))));
  const { shape, base64, scale } = theirs.pictures.attention.patterns[layer];
  const stored = Buffer.from(base64, "base64");
  const from = (head * shape.at(-1) * (shape.at(-1) + 1)) / 2 + (query * (query + 1)) / 2;
  assert.equal(shown.length, query + 1, what);
  shown.forEach((weight, source) => near(weight, scale * stored.readUInt16LE(2 * (from + source)), `${what}: head ${layer}.${head}, from ${query} to ${source}`));
}

/** The distribution of an experiment. @param {Page} page @param {State} state @param {Program} native @param {"next" | "off"} experiment @param {string} what */
async function sameDistribution(page, { prompt, edits }, native, experiment, what) {
  const { next } = await native.ask("next", { prompt, top: 200, edits });
  const shown = await bars(await trial(page, experiment));
  sameBars(shown.filter((one) => one.probability > 0), next, what);
}

/** Values of one prompt, put into the run of another. @param {Page} page @param {State} state @param {Program} native @param {string} other @param {string} kind @param {string} what */
async function samePatch(page, { prompt }, native, other, kind, what) {
  const part = await trial(page, "patch");
  await part.getByLabel("Second prompt").fill(other);
  await part.getByText(kind, { exact: true }).click();
  await part.getByRole("button", { name: "Patch", exact: true }).click();
  await part.locator(".heat-numbers text").first().waitFor();
  await quiet(page);
  const shown = (await part.locator(".heat-numbers text").allTextContents()).map((text) => Number(text.replace("−", "-")));
  const [recipe = "", command = ""] = await offered(part);
  assert.ok(recipe.includes(prompt) && recipe.includes(other), `${what}: ${recipe}`);
  const { grid, metric } = native.run(command, recipe);
  const values = grid.values.flat();
  assert.equal(shown.length, values.length, what);
  values.forEach((/** @type {number} */ value, /** @type {number} */ i) => near(shown[i] ?? NaN, (value - metric.corrupt) / (metric.clean - metric.corrupt), `${what}: patch ${i}`, 0.0051));
}

/** A step of training. @param {Page} page @param {Program} native @param {string} what */
async function sameStep(page, native, what) {
  const [loss, command] = await trained(page);
  near(loss / native.run(command).loss_after, 1, `${what}: the loss behind the step`, 1e-3);
}

/** Parts, positions, sampling and a seed as a reader chooses them: the numbers are those of the recipe and the commands that the page
 * shows. @param {Page} page @param {State} state @param {Program} native @param {(n: number) => number} draw @param {number} round @param {string} what */
async function byHand(page, { prompt }, native, draw, round, what) {
  const off = await trial(page, "off");
  if (round % 7 !== 5) {  // else as the address says
    const all = await off.locator(".parts .part").all();
    for (let i = 0, n = 1 + draw(3); i < n; ++i) await all[draw(all.length)]?.click();
    if (draw(3) === 0) await off.locator(".positions .part").nth(1 + draw(3)).click();
    if (draw(3) === 0) await off.locator("select").selectOption(String(draw(3)));
  }
  if (round === 4) {
    await page.getByText("Steer: add a direction").click();
    await page.getByRole("button", { name: "Try: The queen" }).click();
  }
  const part = await trial(page, "next");
  const [temperature, topK, topP, number] = [(1 + draw(6)) / 4, draw(3) * 7, draw(2) === 0 ? 1 : (10 + draw(9)) / 20, draw(1000)];
  for (const [label, value] of /** @type {const} */ ([["Temperature", temperature], ["Top-k", topK], ["Top-p", topP]])) await part.getByRole("slider", { name: label }).fill(String(value));
  for (const [label, value] of /** @type {const} */ ([["Tokens", 6], ["Seed", number]])) await part.getByRole("spinbutton", { name: label }).fill(String(value));
  await quiet(page);
  // An even number of clicks on one part changes nothing.
  const edited = (await page.locator(".dock-changes").count()) > 0;
  const texts = await offered(part);
  const [recipe = "", command = ""] = edited ? texts : ["", ...texts];
  const generate = texts.at(-1) ?? "";
  const report = native.run(command.replace("vitrine predict", "vitrine predict --top 6144").replace("recipe.yaml", "recipe.yaml --top 6144"), recipe);
  const { top } = edited ? report.after[0] : report.predictions[0];
  const shown = await bars(part);
  const told = `${what}, ${generate}\n${recipe}`;
  sameBars(shown.filter((one) => one.probability > 0), top, told);
  const drawn = drawnOf(top, temperature, topK, topP);
  for (const one of shown) near(one.kept, drawn.get(one.token) ?? 0, `${told}, drawn, token ${one.token}`);
  if (!levelAt(top, 0)) assert.equal(await page.locator(".dock-next bdi").first().textContent(), top[0].piece.replaceAll("▁", "␣"), `${told}: the most likely token`);
  if (round % 3 === 2) {
    await page.getByRole("button", { name: "Continue 6 tokens" }).click();
    await page.waitForFunction((text) => /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea")).value.length > text.length, prompt);
    assert.equal(await page.locator(".dock textarea").inputValue(), prompt + native.run(generate).text, told);
    await quiet(page);
  }
  if (edited) await page.locator(".dock-changes").click();
  return edited;
}

/** The most likely tokens, one after the other. @param {Page} page @param {State} state @param {Program} native @param {string} what */
async function sameGreedy(page, { prompt, edits }, native, what) {
  const part = await trial(page, "next");
  await part.getByRole("slider", { name: "Temperature" }).fill("0");
  await part.getByRole("spinbutton", { name: "Tokens" }).fill("6");
  await quiet(page);
  await page.getByRole("button", { name: "Continue 6 tokens" }).click();
  await page.waitForFunction((text) => /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea")).value.length > text.length, prompt);
  const { text } = await native.ask("generate", { prompt, max_tokens: 6, temperature: 0, edits });
  assert.equal(await page.locator(".dock textarea").inputValue(), prompt + text, what);
  await quiet(page);
  await part.getByRole("slider", { name: "Temperature" }).fill("1");
}

describe("a hundred random states", { skip: nothing, concurrency: 2 }, () => {
  for (const name of names)
    test(`${name}: the page shows what the program computes`, async (t) => {
      const path = join(book.folder, `${name}.html`);
      const native = await programFor(name, path);
      t.after(native.end);
      const { page, faults } = await openChapter(browser, path, { width: 1280, height: 900, calm: true });
      const { layers, heads } = await page.evaluate(() => ({ layers: /** @type {any} */ (window.vitrine).model.nLayers, heads: /** @type {any} */ (window.vitrine).model.nHeads }));
      const words = wordsOf(native.model.startsWith("gpt2") ? "book/gpt2-tales" : "tales9m");
      const draw = randomly(seed + names.indexOf(name));
      const has = async (/** @type {string} */ experiment) => (await page.locator(`.experiment[data-experiment=${experiment}]`).count()) > 0;
      const [next, off, patch, train] = [await has("next"), await has("off"), await has("patch"), await has("train")];
      const [prompts = 0, each = 0] = plan[name];
      let changedByHand = 0;
      for (let group = 0; group < prompts; ++group) {
        const prompt = promptOf(draw, words);
        const theirs = await native.ask("document", { prompt, chapter: name, gradients: false });
        const tokens = theirs.tokens.length;
        assert.ok(tokens >= 3 && tokens <= 16, `${prompt}: ${tokens} tokens`);
        for (let i = 0; i < each; ++i) {
          const state = stateOf(draw, prompt, { layers, heads, tokens }, i === 0 ? 0 : 1 + draw(2));
          const what = `seed ${seed}, ${name}, state ${group * each + i}: #${state.address}`;
          await page.evaluate(() => window.scrollTo(0, 0));
          await enter(page, state);
          if (i === 0) await samePictures(page, theirs, what);
          if (i === 0 && group === prompts - 1) await sameTables(page, theirs, what);
          await sameOpening(page, state, native, what);
          const changed = state.edits.length === 0 ? null : await native.ask("document", { prompt, pictures: ["next-tokens", "attention"], edits: state.edits });
          if (changed !== null) await sameEdited(page, changed, what);
          await sameRow(page, state, changed ?? theirs, what);
          if (off) await sameDistribution(page, state, native, "off", what);
          if (next) await sameDistribution(page, state, native, "next", what);
          if (i === 0 && patch && group % 3 === 1) await samePatch(page, state, native, prompt.replace(/\S+$/, () => words[draw(words.length)] ?? ""), ["residual stream", "attention", "MLPs", "heads"][draw(4)] ?? "", what);
          if (i === 0 && train && group === 0) await sameStep(page, native, what);
          if (name === "next-word") changedByHand += Number(await byHand(page, state, native, draw, group * each + i, what));
          else if (next && i === each - 1) await sameGreedy(page, state, native, what);
        }
      }
      if (name === "next-word") assert.ok(changedByHand >= 18, `${changedByHand} states were changed by hand`);
      assert.deepEqual(faults, []);
      await page.context().close();
    });
});
