// The chapter about Gemma 2, written by the program: designs to scale, shared heads, masks, and the numbers that `vitrine picture` gives.
// VITRINE_PROGRAM names the program; without it there is nothing to open, and the tests say that they were skipped.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, open, settle } from "./browser.mjs";
import { cutOff, graveFaults, missingPictures, tooWide } from "./checks.mjs";

const program = process.env["VITRINE_PROGRAM"];
const golden = resolve(dirname(fileURLToPath(import.meta.url)), "../../tests/golden/models");
const models = { "the shipped model": [], "GPT-2": ["--model", join(golden, "gpt2_a/model")] };
const folder = mkdtempSync(join(tmpdir(), "vitrine-gemma2-"));

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  if (program !== undefined) browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/** @param {string[]} args */
const run = (...args) => execFileSync(resolve(program ?? ""), args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });

for (const [what, args] of Object.entries(models))
  describe(`chapter gemma2 with ${what}`, { skip: program === undefined && "VITRINE_PROGRAM is not set" }, () => {
    const path = join(folder, "page.html");
    before(() => run("explain", "--chapter", "gemma2", "--out", path, "Once upon a time there was a king", ...args));

    test("every picture is drawn, at two widths", async () => {
      for (const width of [1280, 390]) {
        const { page, faults } = await open(browser, path, { width });
        await settle(page);
        assert.deepEqual(await missingPictures(page), []);
        assert.equal(await tooWide(page), 0, `${width} px`);
        assert.deepEqual(await cutOff(page), [], `${width} px`);
        assert.deepEqual(await graveFaults(page), []);
        assert.deepEqual(faults, []);
        await page.context().close();
      }
    });

    test("designs and shared heads have a mark for each number", async () => {
      const { page } = await open(browser, path);
      await settle(page);
      const { designs, sharing } = await page.evaluate(() => {
        const { pictures } = /** @type {any} */ (window).vitrine;
        return { designs: pictures.designs.designs, sharing: pictures["head-sharing"].kinds };
      });
      assert.equal(await page.locator("svg.designs > g").count(), designs.length);
      assert.equal(await page.locator("svg.designs .design-mlp").count(), designs.length);
      const changes = designs.reduce((/** @type {number} */ sum, /** @type {any} */ d) => sum + d.windows.filter((/** @type {any} */ window, /** @type {number} */ i) => i > 0 && window !== d.windows[i - 1]).length, 0);
      assert.equal(await page.locator("svg.designs g > :is(.design-attention, .design-local, .design-recurrent)").count(), designs.length + changes);
      const heads = sharing.reduce((/** @type {number} */ sum, /** @type {any} */ kind) => sum + kind.heads, 0);
      assert.equal(await page.locator("svg.sharing .design-attention").count(), heads);
      const alone = JSON.parse(run("picture", "designs", "--config", "gemma-2-2b", "--json")).pictures.designs;
      assert.deepEqual(designs.slice(0, -1), alone.designs.slice(0, -1));
      assert.equal(alone.designs.at(-1).title, "Gemma 2 of this page");
      await page.context().close();
    });
  });
