// The opening of the page: the drawing follows the reader, its numbers are the document's, the state is in the address, and a head
// that is switched off changes what every token would say. VITRINE_PROGRAM names the program, whose server makes the live page.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { launch, open, openAddress } from "./browser.mjs";
import { graveFaults, tip, tooWide } from "./checks.mjs";
import { documents, writePage } from "./fixture.mjs";
import { serve } from "./server.mjs";
import { drawn, until } from "./wait.mjs";

const program = process.env["VITRINE_PROGRAM"];
const serves = program !== undefined && spawnSync(program, ["serve", "--help"]).status === 0;

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** @typedef {import("playwright-core").Page} Page */

/** What the list beside the drawing says. @param {Page} page */
const answers = (page) => page.locator(".opening-answer li").evaluateAll((all) => all.map((one) => ({
  token: Number(one.getAttribute("data-token")), probability: Number(one.getAttribute("data-probability") || NaN), before: one.hasAttribute("data-before") ? Number(one.getAttribute("data-before") || NaN) : null,
})));

/** The picture that the drawing shows. @param {Page} page */
const pixels = (page) => page.locator(".machine canvas").first().evaluate((canvas) => /** @type {HTMLCanvasElement} */ (canvas).toDataURL());

/** Waits until the part of the address that the page keeps is so: it is written after a frame. @param {Page} page @param {RegExp} expected */
const addressBecomes = (page, expected) => until(async () => expected.test(await page.evaluate(() => decodeURIComponent(location.hash))), `the address ${expected}`);

const calm = { width: 1280, height: 900, calm: true };

describe("the drawing", () => {
  const document_ = documents.short();
  const lens = /** @type {any} */ (document_.pictures["logit-lens"]);
  const next = /** @type {any} */ (document_.pictures["next-tokens"]);
  const last = document_.tokens.length - 1;

  test("the list is the prediction at the end, and the lens on the way to it", async () => {
    const { page, faults } = await open(browser, writePage("short"), calm);
    assert.deepEqual((await answers(page)).map((one) => one.token), next.ids[last].slice(0, 5));
    await page.locator(".machine-controls input").first().fill("3");
    assert.deepEqual(await answers(page), lens.ids[last][3].map((/** @type {number} */ token, /** @type {number} */ i) => ({ token, probability: lens.probs[last][3][i], before: null })));
    await page.locator(".machine-controls input").last().fill("5");
    assert.deepEqual((await answers(page)).map((one) => one.token), lens.ids[5][3]);
    await addressBecomes(page, /^#depth=3&token=5$/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("from the whole model to one row of attention and out again, by keyboard", async () => {
    const { page, faults } = await open(browser, writePage("short"), calm);
    const canvas = page.locator(".machine canvas").first();
    const path = () => page.locator(".closer-path [aria-current]").textContent();
    await canvas.focus();
    await page.keyboard.press("Home");
    for (const key of ["ArrowRight", "ArrowRight", "ArrowUp"]) await page.keyboard.press(key);
    const words = await tip(page);
    assert.match(words, /after layer 1\nwould say /);
    assert.match(words, new RegExp(`length of the residual stream ${Number(lens.lengths[last - 1][2].toPrecision(3))}`));
    for (const key of ["Enter", "Enter", "Enter"]) await page.keyboard.press(key);
    await drawn(page);
    assert.match((await path()) ?? "", /looks back/);
    // The weights of the row are those of the picture of attention.
    const attention = /** @type {any} */ (document_.pictures.attention);
    const stored = Buffer.from(attention.patterns[1].base64, "base64");
    const weights = await page.locator(".closer-row li").evaluateAll((all) => all.map((one) => Number(one.getAttribute("data-weight"))));
    assert.equal(weights.length, last);
    weights.forEach((weight, source) => assert.ok(Math.abs(weight - stored.readUInt16LE(2 * (((last - 1) * last) / 2 + source)) / 65535) < 1e-6, `${source}: ${weight}`));
    await addressBecomes(page, new RegExp(`^#token=${last - 1}&look=1\\.0\\.${last - 1}$`));
    for (const _ of [1, 2, 3]) {
      await canvas.focus();
      await page.keyboard.press("Escape");
    }
    assert.equal(await path(), "Whole model");
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a click opens a layer where it is, and the drawing changes", async () => {
    const { page } = await open(browser, writePage("short"), calm);
    const before = await pixels(page);
    const box = await page.locator(".machine canvas").first().boundingBox();
    assert.ok(box !== null);
    await page.mouse.click(box.x + 104 + ((box.width - 208) * 2.5) / 8, box.y + 60);
    await drawn(page);
    assert.equal(await page.locator(".closer-path [aria-current]").textContent(), "Layer 2");
    assert.ok((await pixels(page)) !== before);
    await page.locator(".closer-head").nth(1).click();
    await addressBecomes(page, /look=2\.1$/);
    await page.context().close();
  });

  test("it plays to its end and can be paused; with less motion asked for it stands still", async () => {
    const { page } = await open(browser, writePage("short"), { width: 1280, height: 900 });
    // It begins by itself; the pause button stops it.
    await page.getByRole("button", { name: "Pause" }).click();
    const held = await pixels(page);
    await drawn(page);
    await drawn(page);
    assert.ok((await pixels(page)) === held, "it moves on");
    await page.getByRole("button", { name: "Play the run" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await page.getByRole("button", { name: "Play the run" }).waitFor();
    assert.equal(await page.locator(".machine-controls input").first().inputValue(), "8");
    await page.context().close();
    const still = await open(browser, writePage("short"), calm);
    assert.equal(await still.page.getByRole("button", { name: "Pause" }).count(), 0);
    await still.page.context().close();
  });

  test("a run that plays ends when the reader asks for less motion", async () => {
    const { page } = await open(browser, writePage("short"), { width: 1280, height: 900 });
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await page.emulateMedia({ reducedMotion: "reduce" });
    await drawn(page);
    await drawn(page);
    assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0, "it plays on");
    assert.equal(await page.locator(".machine-controls input").first().inputValue(), "8", "all of the run is there");
    const held = await pixels(page);
    await drawn(page);
    await drawn(page);
    assert.ok((await pixels(page)) === held, "it moves on");
    await page.context().close();
  });

  for (const [width, dark] of /** @type {const} */ ([[320, false], [390, true], [768, false], [1280, true], [1920, false]]))
    test(`${width} pixels, ${dark ? "dark" : "light"}: every level fits and is accessible`, async () => {
      const { page, faults } = await open(browser, writePage("short"), { width, height: 900, dark, calm: true });
      for (const look of ["", "#look=3", "#look=3.1", "#look=3.1.9", "#look=3.1.9.8"]) {
        await page.evaluate((hash) => { location.hash = hash; }, look);
        await drawn(page);
        assert.equal(await tooWide(page), 0, look);
        assert.deepEqual(await graveFaults(page, true, { within: ".opening" }), [], look);
      }
      assert.deepEqual(faults, []);
      await page.context().close();
    });

  test("a model without a lens, and a long prompt", async () => {
    for (const name of /** @type {const} */ (["bare", "long"])) {
      const { page, faults } = await open(browser, writePage(name), calm);
      assert.ok((await answers(page)).length > 0, name);
      assert.deepEqual(faults, []);
      await page.context().close();
    }
  });
});

describe("the address", () => {
  /** @param {string} hash */
  const opened = async (hash) => {
    const path = writePage("short");
    const shown = await openAddress(browser, `file://${path}${hash}`, (url) => url.startsWith(`file://${path}`), calm);
    await shown.page.waitForSelector("#vitrine[data-ready=true]");
    await drawn(shown.page);
    return shown;
  };

  test("brings the page into the state that it was copied from", async () => {
    const { page, faults } = await opened("#depth=3&token=5&look=2.1.5.4");
    assert.equal(await page.locator(".closer-path [aria-current]").textContent().then((text) => text?.startsWith("at ")), true);
    assert.equal(await page.locator(".machine-controls input").first().inputValue(), "3");
    assert.equal(await page.locator(".machine-controls input").last().inputValue(), "5");
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  for (const hash of ["#depth=99&look=77.1", "#look=1.99.0", "#look=-1", "#depth=1e3&token=0x4", "#off=a.b,9999999999.1,..,&prompt=%E0%A4%A", "#=&&&=%", `#prompt=${"x".repeat(9000)}`, "#look=2.1.3.9", "#depth=NaN&at=<b>", "#__proto__=1"])
    test(`ignores what is malformed: ${hash.slice(0, 40)}`, async () => {
      const { page, faults } = await opened(hash);
      assert.ok((await answers(page)).length > 0);
      assert.doesNotMatch((await page.locator(".opening").textContent()) ?? "", /undefined|NaN|\[object/);
      assert.deepEqual(faults, []);
      await page.context().close();
    });

  test("links of the page still lead to their sections, and the state stays", async () => {
    const { page, faults } = await opened("#look=2.1");
    await page.locator(".rail a[href='#attention']").click();
    await page.waitForFunction(() => window.scrollY > 500);
    await addressBecomes(page, /^#look=2\.1&at=attention$/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});

describe("a head that is switched off", { skip: !serves && "VITRINE_PROGRAM is not set, or has no `vitrine serve`" }, () => {
  /** @type {Awaited<ReturnType<typeof serve>>} */
  let started;
  before(async () => {
    started = await serve(program ?? "", ["--exact"]);
  });
  after(() => {
    started.server.kill("SIGKILL");
  });
  const prompt = "Once upon a time there was a king who";

  /** The server's own answer. @param {string} request @param {object} body @returns {Promise<any>} */
  const asked = async (request, body) => (await fetch(`${started.url}v1/live/${request}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ prompt, ...body }) })).json();
  /** @param {string} hash */
  const opened = async (hash) => {
    const shown = await openAddress(browser, `${started.url}explain?prompt=${encodeURIComponent(prompt)}${hash}`, (url) => url.startsWith(started.url) || url.startsWith("data:"), calm);
    await shown.page.waitForSelector(".opening-answer li");
    await shown.page.locator(".dock-next li").first().waitFor();
    return shown;
  };

  test("goes grey, and answer and words are those of the changed model, before and after", async () => {
    const { page, faults } = await opened("#look=0");
    const edits = [{ head: "0.2", do: "zero" }];
    const [plain, changed, lens] = await Promise.all([asked("next", { top: 64 }), asked("next", { top: 64, edits }), asked("lens", { top: 5, edits })]);
    const was = await pixels(page);
    await page.getByRole("button", { name: "Switch off head 2 of layer 0" }).click();
    await page.waitForFunction(() => document.querySelector(".opening-answer li[data-before]") !== null);
    assert.equal(await page.locator(".closer-heads li.gone").count(), 1);
    const first = (await answers(page))[0];
    assert.equal(first?.token, changed.next[0].token);
    assert.ok(Math.abs((first?.probability ?? 0) - changed.next[0].prob) < 1e-6);
    const before = plain.next.find((/** @type {any} */ one) => one.token === first?.token)?.prob;
    assert.ok(Math.abs((first?.before ?? 0) - before) < 1e-6);
    await page.locator(".machine-legend i.outline").waitFor();
    assert.ok((await pixels(page)) !== was, "the drawing shows the change");
    await page.locator(".machine-controls input").first().fill("4");
    assert.equal((await answers(page))[0]?.token, lens.layers[4].positions.at(-1).top[0].token);
    assert.ok(Math.abs(((await answers(page))[0]?.probability ?? 0) - lens.layers[4].positions.at(-1).top[0].prob) < 1e-6);
    await addressBecomes(page, /off=0\.2/);
    assert.deepEqual(await graveFaults(page, true, { within: ".opening" }), []);
    await page.getByRole("button", { name: "Switch on head 2 of layer 0" }).click();
    await page.locator(".machine-legend i.outline").waitFor({ state: "detached" });
    await addressBecomes(page, /^(?!.*off=)/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("comes from the address, with the prompt", async () => {
    const { page, faults } = await opened("#off=1.3,mlp.2&prompt=The+queen+had");
    await page.locator(".dock-changes", { hasText: "2 changes" }).waitFor();
    assert.equal(await page.locator(".dock textarea").inputValue(), "The queen had");
    await page.locator("h1", { hasText: "The queen had" }).waitFor();
    await addressBecomes(page, /^#prompt=The\+queen\+had&off=1\.3,mlp\.2$/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("one dot product is the sum of its products, and becomes the weight of the row", async () => {
    const { page, faults } = await opened("#look=5.1.9.8");
    const sum = page.locator(".closer-sum [data-dot]");
    await sum.waitFor();
    const seen = await asked("inspect", { hooks: ["blocks.5.attn.hook_rot_q[heads=1,positions=9]", "blocks.5.attn.hook_rot_k[heads=0]"] });
    const [q, k] = [seen.hooks[0].values[0][0], seen.hooks[1].values[8][0]];
    const dot = q.reduce((/** @type {number} */ all, /** @type {number} */ x, /** @type {number} */ i) => all + x * k[i], 0);
    assert.ok(Math.abs(Number(await sum.getAttribute("data-dot")) - dot) < 1e-3);
    assert.equal(await page.locator(".closer-products rect").count(), q.length);
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});
