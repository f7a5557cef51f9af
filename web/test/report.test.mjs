// The report of a merge in a real browser. VITRINE_REPORTS names more pages (of `vitrine merge --report`), separated by ":".

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { basename, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, open, settle } from "./browser.mjs";
import { cutOff, graveFaults, overlaps, show, tip, tooWide } from "./checks.mjs";
import { reports, writeReport } from "./report-fixture.mjs";
import { unfoldAll } from "./wait.mjs";

const made = /** @type {(keyof typeof reports)[]} */ (Object.keys(reports)).map(writeReport);
const real = (process.env["VITRINE_REPORTS"] ?? "").split(":").filter((path) => path !== "").map((path) => resolve(path));
const sizes = { desktop: { width: 1280, height: 900 }, phone: { width: 360, height: 740 } };

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** @param {import("playwright-core").Page} page */
const figures = (page) => page.locator("figure[data-picture]").evaluateAll((all) => all.map((e) => e.getAttribute("data-picture")));
/** Text of a column of the table of tensors. @param {import("playwright-core").Page} page @param {number} column */
const column = (page, column) => page.locator(`table.tensors tbody tr > :nth-child(${column + 1})`).allTextContents();

for (const path of [...made, ...real])
  describe(basename(path), () => {
    for (const [size, dark] of /** @type {const} */ ([["desktop", false], ["phone", true]]))
      test(`${size}, ${dark ? "dark" : "light"}: no fault, no request, accessible`, async () => {
        const { page, faults } = await open(browser, path, { ...sizes[size], dark });
        await settle(page);
        assert.equal(await tooWide(page), 0, "pixels by which the page is wider than the window");
        assert.deepEqual(await cutOff(page), [], "words that are cut off at the window's edge");
        assert.deepEqual(await overlaps(page), [], "words that stand on each other");
        assert.deepEqual(await graveFaults(page), []);
        assert.doesNotMatch((await page.locator("main").textContent()) ?? "", /undefined|NaN|null|\[object|not a number/);
        assert.deepEqual(faults, []);
        await page.context().close();
      });

    test("every chart answers to the pointer and to the keyboard, every table has rows", async () => {
      const { page, faults } = await open(browser, path, sizes.desktop);
      await settle(page);
      for (const place of await page.locator("[role=application]").all()) {
        const label = (await place.getAttribute("aria-label")) ?? "";
        await show(place);
        await place.focus();
        await page.keyboard.press("ArrowRight");
        await page.keyboard.press("ArrowDown");
        const words = await tip(page);
        assert.match(words, /layer \d/, label);
        assert.doesNotMatch(words, /undefined|NaN|\[object|not a number/, label);
        await page.keyboard.press("Escape");
      }
      await unfoldAll(page);
      const tables = await page.locator("figure[data-picture]").evaluateAll((all) => all.map((figure) => ({
        name: figure.getAttribute("data-picture"),
        rows: figure.querySelectorAll(".fold.data tbody tr").length,
        bad: [...figure.querySelectorAll(".fold.data td")].filter((cell) => /undefined|NaN|\[object|not a number/.test(cell.textContent ?? "")).length,
      })));
      for (const { name, rows, bad } of tables) {
        assert.ok(rows > 0, `${name} has an empty table`);
        assert.equal(bad, 0, `${name} has cells that are no values`);
      }
      assert.equal(await page.locator("figure .copyable").count(), 0, "no command draws a part of a report");
      assert.deepEqual(faults, []);
      await page.context().close();
    });
  });

describe("what a report shows", () => {
  test("the numbers of a merge with a base, with what is absent as a dash", async () => {
    const document_ = reports["report-ties"]();
    const { page, faults } = await open(browser, writeReport("report-ties"), sizes.desktop);
    assert.deepEqual(await figures(page), ["parameter-density", "norms", "cosines", "signs", "kept", "angles"]);
    assert.match((await page.locator("#parameters").textContent()) ?? "", /The same for every tensor and input: weight 0\.5, lambda 1\./);
    assert.equal(await page.locator("main a[href='https://arxiv.org/abs/2311.03099']").count(), 1);
    assert.equal(await page.locator(".recipe code").textContent(), document_.recipe);
    assert.match((await page.locator("#summary li").first().textContent()) ?? "", /^lm_head\.weight is tied/);
    const cells = await page.locator("table.tensors tbody tr").first().locator("td").allTextContents();
    assert.equal(cells[0], "model.embed_tokens.weight");
    assert.equal(cells[1], "–");  // of no layer
    // The joint norm of an input is the root of the sum of squares.
    const joint = Math.sqrt(document_.tensors.reduce((sum, t) => sum + (t.norms[1] ?? 0) ** 2, 0));
    assert.equal(await page.locator("#summary tbody tr").nth(1).locator("td").nth(2).textContent(), String(Number(joint.toPrecision(4))));
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a layer's norm and cosine are those of its tensors as one vector", async () => {
    const document_ = reports["report-ties"]();
    const { page } = await open(browser, writeReport("report-ties"), sizes.desktop);
    const tensors = document_.tensors.filter((t) => t.layer === 2);
    const norm = (/** @type {number} */ i) => Math.hypot(...tensors.map((t) => t.norms[i] ?? 0));
    const dot = tensors.reduce((sum, t) => sum + (t.cosines[2] ?? 0) * (t.norms[1] ?? 0) * (t.norms[2] ?? 0), 0);
    for (const name of ["norms", "cosines"]) await page.locator(`figure[data-picture=${name}] .fold.data summary`).click();
    const cell = async (/** @type {string} */ figure, /** @type {number} */ at) => Number(((await page.locator(`figure[data-picture=${figure}] .fold.data tbody tr`).nth(2).locator("td").nth(at).textContent()) ?? "").replace("−", "-"));
    assert.ok(Math.abs((await cell("norms", 1)) - norm(1)) < 1e-4);
    assert.ok(Math.abs((await cell("norms", 2)) - norm(2)) < 1e-4);
    assert.ok(Math.abs((await cell("cosines", 1)) - dot / norm(1) / norm(2)) < 1e-5);
    await page.context().close();
  });

  test("SLERP without a base: parameters over layers, no signs, no pruning", async () => {
    const { page } = await open(browser, writeReport("report-slerp"), sizes.desktop);
    assert.deepEqual(await figures(page), ["parameter-t", "norms", "cosines", "angles"]);
    assert.equal(await page.locator("#signs .absent").textContent(), "Signs were not compared in this merge.");
    assert.equal(await page.locator("#kept .absent").textContent(), "Nothing was pruned in this merge.");
    // Two inputs of one name are told apart.
    assert.match((await page.locator("figure[data-picture=norms]").textContent()) ?? "", /0: final.*1: final/s);
    const chart = page.locator("figure[data-picture='parameter-t'] [role=application]");
    await show(chart);
    await chart.focus();
    await page.keyboard.press("End");
    assert.match(await tip(page), /^layer 7, attention\nmean of 4 tensors: 0\.875$/);
    await page.context().close();
  });

  test("one input and no layers leave pictures out and say why", async () => {
    const { page } = await open(browser, writeReport("report-one"), sizes.desktop);
    assert.deepEqual(await figures(page), ["norms"]);
    assert.equal(await page.locator("#cosines .absent").textContent(), "One input has no other to be compared with.");
    assert.match((await page.locator("#parameters").textContent()) ?? "", /This method has no parameters\./);
    await page.context().close();
    const flat = await open(browser, writeReport("report-flat"), sizes.desktop);
    assert.deepEqual(await figures(flat.page), []);
    assert.equal(await flat.page.locator("table.tensors tbody tr").count(), 2);
    await flat.page.context().close();
  });

  test("2,000 tensors of ten inputs: below 5 MB, sorted and searched", async () => {
    const path = writeReport("report-large");
    assert.ok(statSync(path).size < 5e6, `${statSync(path).size} bytes`);
    const { page, faults } = await open(browser, path, sizes.desktop);
    const document_ = reports["report-large"]();
    const heads = await page.locator("table.tensors th").allTextContents();
    assert.ok(heads.includes("smallest cosine") && !heads.some((head) => head.startsWith("cosine, ")));
    assert.equal((await column(page, 0)).length, 100);
    const by = heads.indexOf("sign conflict");
    const head = page.locator("table.tensors th").nth(by);
    await head.locator("button").click();
    assert.equal(await head.getAttribute("aria-sort"), "descending");
    const falling = (await column(page, by)).map(Number);
    assert.deepEqual(falling, [...falling].sort((a, b) => b - a));
    const most = document_.tensors.reduce((a, b) => ((b.signConflict ?? 0) > (a.signConflict ?? 0) ? b : a));
    assert.equal((await column(page, 0))[0], most.name);
    await head.locator("button").click();
    assert.equal(await head.getAttribute("aria-sort"), "ascending");
    // What is not known stands at the end of both orders.
    await page.locator("table.tensors th").nth(1).locator("button").click();
    assert.equal((await column(page, 1))[0], "79");
    await page.getByText(/^Show more/).click();
    assert.equal((await column(page, 0)).length, 600);
    await page.getByLabel(/Names that hold/).fill("layers.12. q_proj");
    assert.deepEqual(new Set((await column(page, 0)).map((name) => name.startsWith("model.layers.12.self_attn.q_proj"))), new Set([true]));
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});
