// Pages for research in a real browser, made by the program: head scores, a run's checkpoints, a patching grid, two models, a text.
// VITRINE_PROGRAM names the program; without it the tests say that they were skipped.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, open, settle } from "./browser.mjs";
import { cutOff, floatsWithLongTails, graveFaults, labelsOnLabels, overlaps, show, tip, tooWide } from "./checks.mjs";
import { unfoldAll } from "./wait.mjs";

const program = process.env["VITRINE_PROGRAM"];
const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const golden = join(root, "tests/golden");
const folder = mkdtempSync(join(tmpdir(), "vitrine-study-"));
const wrong = /undefined|NaN|\[object|not a number/;
/** By name: the command that makes the page, without the page. */
const made = {
  heads: ["circuits", "--repeat", "12", "--page"],
  film: ["circuits", "--checkpoints", join(folder, "run"), "--repeat", "8", "--page"],
  patch: ["intervene", join(root, "examples/patch-king-queen.yaml"), "--compute", "f32", "--page"],
  ablate: ["intervene", join(root, "examples/ablate-heads.yaml"), "--page"],
  path: ["intervene", join(root, "examples/path-patch.yaml"), "--page"],
  two: ["compare", join(golden, "models/llama/model"), join(golden, "gguf/llama_q4_0.gguf"), "The quick brown fox jumps over it", "--page"],
  text: ["eval", "perplexity", "--file", join(folder, "text.txt"), "--context", "64", "--out"],
};
const path = (/** @type {string} */ name) => join(folder, `${name}.html`);

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  if (program === undefined) return;
  for (const step of ["step-100", "step-20"]) {
    mkdirSync(join(folder, "run"), { recursive: true });
    symlinkSync(join(golden, "models/llama/model"), join(folder, "run", step));
  }
  writeFileSync(join(folder, "text.txt"), "The king and the queen lived in a castle.\n\n<b>\"One day\" the king said:\n");
  for (const [name, line] of Object.entries(made)) execFileSync(program, [...line, path(name)], { stdio: "pipe" });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

describe("pages for research", { skip: program === undefined && "VITRINE_PROGRAM is not set" }, () => {
  for (const name of Object.keys(made))
    test(`${name}: no fault, no request, accessible, with notes under pointer and keys`, async () => {
      for (const [width, dark] of /** @type {const} */ ([[1280, false], [390, true]])) {
        const { page, faults } = await open(browser, path(name), { width, height: 850, dark });
        await settle(page);
        assert.equal(await tooWide(page), 0, "pixels by which the page is wider than the window");
        for (const check of [cutOff, overlaps, labelsOnLabels, floatsWithLongTails]) assert.deepEqual(await check(page), [], `${check.name} at ${width}`);
        assert.deepEqual(await graveFaults(page, true), []);
        assert.doesNotMatch((await page.locator("main").textContent()) ?? "", wrong);
        assert.deepEqual(faults, []);
        if (width < 1280) {
          await page.context().close();
          continue;
        }
        for (const place of await page.locator("figure [role=application]").all()) {
          const label = (await place.getAttribute("aria-label")) ?? "";
          await show(place);
          await place.focus();
          for (const key of ["ArrowRight", "ArrowDown"]) await page.keyboard.press(key);
          assert.match(await tip(page), /\w/, label);
          assert.doesNotMatch(await tip(page), wrong, label);
          await page.keyboard.press("Enter");
          await page.keyboard.press("Escape");
        }
        await unfoldAll(page);
        assert.doesNotMatch((await page.locator("main").textContent()) ?? "", wrong);
        assert.deepEqual(await graveFaults(page, true), [], "with everything picked and unfolded");
        assert.deepEqual(faults, []);
        await page.context().close();
      }
    });

  test("a cell of the grid shows its run, and its recipe makes it again", async () => {
    const { page } = await open(browser, path("patch"));
    const grid = page.locator("figure[data-picture=patch] .heat-area");
    await show(grid);
    await grid.focus();
    for (const key of ["ArrowRight", "Home", "ArrowDown", "End", "Enter"]) await page.keyboard.press(key);
    const box = page.locator(".picked");
    assert.match((await box.locator(".picked-title").textContent()) ?? "", /^layer 1, position 4 ␣on/);
    const [recipe = "", command = ""] = await box.locator(".copyable code").allTextContents();
    writeFileSync(join(folder, "recipe.yaml"), recipe);
    const words = command.split(" ").slice(1);
    const report = JSON.parse(execFileSync(program ?? "", [...words, "--json"], { cwd: folder, encoding: "utf8" }));
    /** @type {import("../src/study/data.ts").StudyDocument} */
    const shown = await page.evaluate(() => /** @type {any} */ (window.vitrine));
    const section = shown.sections[0];
    assert.ok(section?.picture === "patch");
    const cell = section.cells[1 * section.columns.length + 4];
    assert.ok(cell !== null && cell !== undefined && cell.value !== null);
    assert.ok(Math.abs(cell.value - report.metric.after) < 1e-4, `${cell.value} and ${report.metric.after}`);
    assert.equal(cell.likely[0], report.after[0].top[0].token);
    await page.context().close();
  });

  test("the film goes over the checkpoints, in the order of their steps", async () => {
    const { page } = await open(browser, path("film"));
    const slider = page.locator(".film input");
    assert.match((await page.locator(".film output").textContent()) ?? "", /^step 100, loss /);
    await slider.focus();
    await page.keyboard.press("Home");
    assert.match((await page.locator(".film output").textContent()) ?? "", /^step 20, loss /);
    await page.getByRole("button", { name: "Play" }).click();
    await page.locator(".film output", { hasText: "step 100" }).waitFor();
    await page.getByRole("button", { name: "Play" }).waitFor();  // it stops at the end
    await page.context().close();
  });

  test("a word of the text shows what was likely in its place", async () => {
    const { page } = await open(browser, path("text"));
    const word = page.locator(".loss-text span", { hasText: "queen" }).first();
    await show(word);
    await word.hover();
    assert.match(await tip(page), /^“␣queen”\n[\d.]+ %, −ln p [\d.]+\nexpected: /);
    await word.click();
    assert.equal(await page.locator(".picked-title").textContent(), "In the place of “␣queen”");
    assert.equal(await page.locator(".picked .bar").count(), 5);
    await page.context().close();
    const two = await open(browser, path("two"));
    assert.equal(await two.page.locator(".loss-key span").count(), 5);
    await two.page.locator(".worst button").first().click();
    assert.equal(await two.page.locator(".picked .bars").count(), 2);
    assert.match((await two.page.locator(".picked-title").textContent()) ?? "", /KL [\d.]+/);
    await two.page.context().close();
  });
});
