// The pictures of the chapter on GPT-2 that have drawings of their own: the film of the shipped training run, and a beam search.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, open, settle } from "./browser.mjs";
import { show, tip } from "./checks.mjs";
import { documents, html, put } from "./fixture.mjs";

const story = JSON.parse(readFileSync(join(dirname(fileURLToPath(import.meta.url)), "../../models/book/gpt2-tales/story.json"), "utf8"));
const head = { available: true, caption: "A caption.", alt: "Made up.", wide: true, tables: [], charts: [] };
const beams = {
  ...head, name: "beam-search", title: "Beam search", made: ["run"], beams: 2, length: 2, same: null,
  nodes: [
    { step: 1, id: 5, parent: null, text: " one", logprob: -0.5, total: -0.5, kept: true, best: false },
    { step: 1, id: 6, parent: null, text: " two", logprob: -1, total: -1, kept: true, best: true },
    { step: 2, id: 7, parent: 0, text: " one more", logprob: -2, total: -2.5, kept: true, best: false },
    { step: 2, id: 8, parent: 0, text: " one less", logprob: -3, total: -3.5, kept: false, best: false },
    { step: 2, id: 9, parent: 1, text: " two of", logprob: -0.25, total: -1.25, kept: true, best: true },
  ],
  found: [{ ids: [6, 9], text: " two of", tokens: 2, score: -0.625, total: -1.25 }, { ids: [5, 7], text: " one more", tokens: 2, score: -1.25, total: -2.5 }],
  greedy: { ids: [5, 7], text: " one more", tokens: 2, score: -1.25, total: -2.5 },
};
const grown = {
  ...head, name: "vocabulary-growth", title: "The vocabulary grows", made: ["model"],
  charts: [{ kind: "remark", text: "{start} parts at first." }], start: 100,
  steps: [
    { known: 1, left: "▁", right: "t", piece: "▁t", times: 3, tokens: 90, tokensPerByte: 0.9, pieces: ["▁t", "h", "e"] },
    { known: 2, left: "h", right: "e", piece: "he", times: 2, tokens: 80, tokensPerByte: 0.8, pieces: ["▁t", "he"] },
  ],
};
const document_ = /** @type {any} */ (documents.short());
document_.pictures["training-film"] = { ...head, name: "training-film", title: "A training run", made: ["log"], ...story };
document_.pictures["beam-search"] = beams;
document_.pictures["vocabulary-growth"] = grown;
document_.steps = [{ ...document_.steps[0], id: "training", title: "A run", pictures: ["training-film"] }, { ...document_.steps[0], id: "beams", title: "Beams", pictures: ["beam-search", "vocabulary-growth"] }];
const path = put("gpt2", html(document_));

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

describe("the film of a training run", () => {
  test("the slider leads through the checkpoints: loss, sample, attention, words", async () => {
    const { page, faults } = await open(browser, path, { width: 1280, height: 900 });
    await settle(page);
    const film = page.locator("figure[data-picture=training-film]");
    const slider = film.getByRole("slider", { name: "Checkpoint" });
    await show(slider);
    await slider.focus();
    for (const at of [story.checkpoints.length - 1, 0]) {
      await page.keyboard.press(at === 0 ? "Home" : "End");
      const one = story.checkpoints[at];
      assert.match((await film.locator("output").textContent()) ?? "", new RegExp(`^step ${one.step.toLocaleString("en").replaceAll(",", ".?")}, `));
      assert.equal(await film.locator(".sampled bdi").nth(1).textContent(), one.sample);
      const grid = film.locator(".heat-area");
      await show(grid);
      await grid.focus();
      for (const key of ["ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
      assert.match(await tip(page), new RegExp(`step ${one.step}`));
      await slider.focus();
    }
    assert.equal(await film.locator(".series text.halo").count(), story.words.length);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("nothing is wider than a small screen", async () => {
    const { page, faults } = await open(browser, path, { width: 320, height: 640 });
    await settle(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});

describe("a beam search", () => {
  test("every continuation is there with its sum, and the text that won is marked", async () => {
    const { page, faults } = await open(browser, path, { width: 1280, height: 900 });
    await settle(page);
    const tree = page.locator("figure[data-picture=beam-search]");
    assert.equal(await tree.locator(".part").count(), beams.nodes.length);
    assert.equal(await tree.locator(".part.now").count(), 2);
    assert.equal(await tree.locator(".part.later").count(), 1);
    assert.match((await tree.locator(".remark").textContent()) ?? "", /another text, with a sum of −2\.5 against −1\.25/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});

describe("a vocabulary that grows", () => {
  test("the slider cuts the prompt by the pairs known so far", async () => {
    const { page, faults } = await open(browser, path, { width: 1280, height: 900 });
    await settle(page);
    const figure = page.locator("figure[data-picture=vocabulary-growth]");
    assert.deepEqual(await figure.locator(".grown bdi").allTextContents(), ["␣t", "he"]);
    assert.equal(await figure.locator(".remark").textContent(), "100 parts at first.");
    const slider = figure.getByRole("slider", { name: "Vocabulary" });
    await show(slider);
    await slider.focus();
    await page.keyboard.press("Home");
    assert.deepEqual(await figure.locator(".grown bdi").allTextContents(), ["␣t", "h", "e"]);
    assert.match((await figure.locator("output").textContent()) ?? "", /^1 pair known; the last one joined ␣ and t to ␣t, 3 times/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});
