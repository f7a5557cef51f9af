// The pictures of the chapter on heads that have drawings of their own: a block, shuffles, wheels. Of made-up numbers.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, settle } from "./browser.mjs";
import { cutOff, graveFaults, labelsOnLabels, overlaps, tooWide, unexplained } from "./checks.mjs";
import { fixture, html, list, put } from "./fixture.mjs";

const n = 4;
/** @param {number[]} values */
const packed = (values) => ({ type: /** @type {const} */ ("f32"), shape: [n, n], layout: /** @type {const} */ ("dense"), scale: 1, offset: 0, base64: Buffer.from(Float32Array.from(values).buffer).toString("base64") });
/** Weights of row i, column j. @param {number} i @param {number} j */
const weight = (i, j) => ((i + 2 * j) % 4) / 6;
/** @param {number[]} order */
const pattern = (order) => packed(order.flatMap((i) => order.map((j) => weight(i, j))));
const usual = [0, 1, 2, 3];
const shuffles = [{ name: "last one first", order: [3, 2, 1, 0], inverse: 0, mlp: 0 }, { name: "first two swapped", order: [1, 0, 2, 3], inverse: 0, mlp: 0 }];
const head = (/** @type {string} */ name, /** @type {string} */ title) => ({
  name, title, available: /** @type {const} */ (true), caption: "A picture of made-up numbers, for a test of the page.", alt: "Made-up numbers.", made: [/** @type {const} */ ("run")], wide: false, tables: [],
});
const part = { heads: null, normBefore: "RMSNorm", normBehind: null, normAfter: null, factor: null, adds: true, streamLength: 5 };

function page() {
  const document = fixture({ tokens: 6 });
  const step = document.steps[0];
  assert.ok(step);
  document.steps = [{ ...step, id: "heads", title: "Heads", pictures: ["block-diagram", "permutations", "sinusoid-wheel"] }];
  document.pictures = /** @type {any} */ ({
    "block-diagram": {
      ...head("block-diagram", "One block"), name: "block-diagram", layer: 1, lengths: [3, 4, 5],
      parts: [
        { ...part, id: "attention", title: "4 heads", heads: 4, hook: "blocks.1.hook_attn_out", length: 2, words: "RMSNorm, 4 heads, +" },
        { ...part, id: "mlp", title: "MLP: 32 hidden units, GeGLU", normAfter: "RMSNorm", hook: "blocks.1.hook_mlp_out", length: 1, words: "RMSNorm, MLP, +, RMSNorm" },
      ],
    },
    permutations: {
      ...head("permutations", "Vectors in another order"), name: "permutations", n, layer: 1, head: 2, shuffles,
      conditions: [
        { id: "none_of_both", name: "no mask, no positions", A: pattern(usual), most: 1e-15, shuffles: shuffles.map((s) => ({ pattern: 1e-16, output: 1e-15, A: pattern(s.order) })) },
        { id: "mask", name: "with the mask", A: pattern(usual), most: 0.9, shuffles: shuffles.map((s) => ({ pattern: 0.5, output: 0.9, A: pattern(s.order) })) },
      ],
    },
    "sinusoid-wheel": {
      ...head("sinusoid-wheel", "Positions as wheels"), name: "sinusoid-wheel", E: 4, N: 16, C: 32,
      wheels: [{ pair: 0, frequency: 1, turn: 6.283 }, { pair: 1, frequency: 0.25, turn: 25.13 }],
      positions: list(3, (k) => [Math.sin(k), Math.cos(k), Math.sin(k / 4), Math.cos(k / 4)]),
    },
  });
  return put("heads", html(document));
}

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

for (const width of [320, 720, 1280])
  test(`${width} pixels wide: accessible, nothing cut off or on top of each other`, async () => {
    const { page: tab, faults } = await open(browser, page(), { width, height: 900, dark: width === 720 });
    await settle(tab);
    assert.deepEqual(await graveFaults(tab, true, { colors: true }), []);
    assert.equal(await tooWide(tab), 0);
    for (const check of [cutOff, overlaps, labelsOnLabels, unexplained]) assert.deepEqual(await check(tab), []);
    assert.deepEqual(faults, []);
    await tab.context().close();
  });

test("a press shuffles, and the law fails with the mask", async () => {
  const { page: tab, faults } = await open(browser, page(), { width: 1280, height: 900 });
  await settle(tab);
  const figure = tab.locator('figure[data-picture="permutations"]');
  assert.match((await figure.locator(".shuffle-name").textContent()) ?? "", /last one first/);
  assert.deepEqual(await figure.locator(".law strong").allTextContents(), ["holds", "holds", "holds"]);
  await figure.getByRole("button", { name: "Shuffle" }).click();
  assert.match((await figure.locator(".shuffle-name").textContent()) ?? "", /first two swapped/);
  await figure.getByText("with the mask").click();
  assert.deepEqual(await figure.locator(".law strong").allTextContents(), ["fails", "holds", "fails"]);
  assert.deepEqual(faults, []);
  await tab.context().close();
});

test("the block stands in its order, and a wheel turns with the slider", async () => {
  const { page: tab, faults } = await open(browser, page(), { width: 390, height: 900 });
  await settle(tab);
  const block = tab.locator('figure[data-picture="block-diagram"]');
  assert.deepEqual(await block.locator(".block-box text").allTextContents(), ["RMSNorm", "4 heads", "RMSNorm", "MLP: 32 hidden units, GeGLU", "RMSNorm"]);
  assert.equal(await block.locator(".head-mark").count(), 4);
  const wheels = tab.locator('figure[data-picture="sinusoid-wheel"]');
  await wheels.locator("input[type=range]").fill("2");
  assert.match((await wheels.locator(".remark").textContent()) ?? "", /e\(2\) = \(0\.909, −0\.416, 0\.479, 0\.878\)/);
  assert.deepEqual(faults, []);
  await tab.context().close();
});
