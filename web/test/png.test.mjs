// A figure as a PNG: twice as fine as on the page, with everything that the figure shows, on the page's color or on white.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { launch, open, settle } from "./browser.mjs";
import { writePage } from "./fixture.mjs";

/** @typedef {import("playwright-core").Page} Page */

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** Saves a figure and returns the file. @param {Page} page @param {string} name @param {"On white" | "On the page's color"} button */
async function saved(page, name, button) {
  const figure = page.locator(`figure[data-picture="${name}"]`);
  const fold = figure.locator("details", { hasText: "As a file" });
  if (!(await fold.evaluate((one) => /** @type {HTMLDetailsElement} */ (one).open))) await fold.locator("summary").click();
  const [download] = await Promise.all([page.waitForEvent("download"), figure.getByRole("button", { name: button }).click()]);
  assert.equal(download.suggestedFilename(), `${name}.png`);
  return readFileSync(await download.path());
}

/** The image as a browser decodes it: its size, its corner's color, and the share of pixels of other colors in each of 8 × 8 fields.
 * @param {Page} page @param {Buffer} file */
const looked = (page, file) => page.evaluate(async (base64) => {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  const corner = [...data.subarray(0, 4)];
  const colors = new Set();
  const fields = Array.from({ length: 64 }, () => 0);
  for (let y = 0; y < image.height; ++y)
    for (let x = 0; x < image.width; ++x) {
      const at = 4 * (y * image.width + x);
      if (corner.every((value, i) => data[at + i] === value)) continue;
      colors.add(data[at] + 256 * data[at + 1] + 65536 * data[at + 2]);
      ++fields[8 * Math.floor((8 * y) / image.height) + Math.floor((8 * x) / image.width)];
    }
  return { width: image.width, height: image.height, corner, colors: colors.size, fields: fields.filter((count) => count > 0).length };
}, file.toString("base64"));

describe("a figure as a PNG", () => {
  for (const dark of [false, true])
    test(`${dark ? "dark" : "light"}: drawings, canvases and words, twice as fine`, async () => {
      const { page, faults } = await open(browser, writePage("short"), { dark });
      await settle(page);
      // A drawing, squares of attention on canvases, a grid of words, rows of tokens.
      for (const name of ["dot-product", "attention", "next-tokens", "tokens", "update-scale"]) {
        const body = await page.locator(`figure[data-picture="${name}"] .figure-body`).evaluate((element) => [element.scrollWidth, element.getBoundingClientRect().height]);
        for (const [button, paper] of /** @type {const} */ ([["On the page's color", dark ? [0x14, 0x18, 0x1f, 255] : [0xfd, 0xfc, 0xfa, 255]], ["On white", [255, 255, 255, 255]]])) {
          const file = await saved(page, name, button);
          const seen = await looked(page, file);
          assert.deepEqual([file.readUInt32BE(16), file.readUInt32BE(20)], [seen.width, seen.height], name);
          assert.deepEqual(seen.corner, [...paper], `${name}, ${button}`);
          assert.ok(seen.width >= 2 * (body[0] ?? 0) && seen.height >= 1.6 * (body[1] ?? 0), `${name}: ${seen.width} × ${seen.height} for ${body.join(" × ")}`);
          assert.ok(seen.colors > 40 && seen.fields > 20, `${name}, ${button}: ${seen.colors} colors in ${seen.fields} of 64 fields`);
        }
      }
      assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), dark ? "dark" : "light");
      assert.deepEqual(faults, []);
      await page.context().close();
    });
});
