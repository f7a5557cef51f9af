// Every chapter of the book at every width, light and dark, with less motion and on paper. A page is opened once and resized: opening
// takes as long as most checks.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, settle } from "./browser.mjs";
import { chapters, names, nothing, openChapter } from "./chapters.mjs";
import { cutOff, graveFaults, missingPictures, spilt, tooWide } from "./checks.mjs";
import { quiet } from "./live-panel.mjs";
import { drawn } from "./wait.mjs";

/** @typedef {import("playwright-core").Page} Page */

const widths = [1280, 1920, 768, 390, 320];
/** Colors differ between the desktop's page and the phone's alone, and to compare them takes longer than everything else. */
const contrastAt = [1280, 320];

/** @type {import("playwright-core").Browser} */
let browser;
/** @type {ReturnType<typeof chapters>} */
let book;
before(async () => {
  if (nothing !== false) return;
  book = chapters();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  book?.remove();
});

/** What is wider than the window, cut off by its edge or by the dock. @param {Page} page */
async function cut(page) {
  const wide = await tooWide(page);
  return [
    ...(wide === 0 ? [] : [`the page is ${wide} pixels wider than the window`]),
    ...(await cutOff(page)).map((words) => `the window's edge cuts off “${words}”`),
    ...(await spilt(page.locator(".dock"))).map((words) => `the dock cuts off “${words}”`),
  ];
}

describe("every chapter", { skip: nothing }, () => {
  for (const name of names)
    describe(name, () => {
      /** @type {Page} */
      let page;
      /** @type {string[]} */
      let faults;
      before(async () => ({ page, faults } = await openChapter(browser, join(book.folder, `${name}.html`), { width: 1280, height: 900, calm: true })));
      after(() => page.context().close());

      test(`${widths.join(", ")} pixels wide: nothing is cut off, accessible, in both themes`, async () => {
        await settle(page);
        await quiet(page);
        assert.deepEqual(await missingPictures(page), []);
        const found = [];
        for (const width of widths) {
          await page.setViewportSize({ width, height: 900 });
          await drawn(page);
          found.push(...[...(await cut(page)), ...(await graveFaults(page, true, { contrast: contrastAt.includes(width) }))].map((fault) => `${width} px: ${fault}`));
        }
        await page.emulateMedia({ colorScheme: "dark" });
        await page.waitForFunction(() => document.documentElement.dataset["theme"] === "dark");
        found.push(...[...(await cut(page)), ...(await graveFaults(page, true, { colors: true }))].map((fault) => `dark: ${fault}`));
        assert.deepEqual(found, []);
        assert.deepEqual(faults, []);
      });

      test("with less motion nothing moves", async () => {
        const moving = await page.evaluate(() => document.getAnimations().filter((one) => one.playState === "running").map((one) => /** @type {KeyframeEffect | null} */ (one.effect)?.target?.className));
        assert.deepEqual(moving, []);
        assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0, "the run plays");
        assert.deepEqual(faults, []);
      });

      test("on paper: nothing is wider than the sheet, scrolls or can be tried", async () => {
        const state = await page.evaluate(async () => {
          window.dispatchEvent(new Event("beforeprint"));
          await Promise.resolve();
          await Promise.resolve();
          const main = /** @type {Element} */ (document.querySelector("main")).getBoundingClientRect();
          /** @param {Element} element */
          const told = (element) => `${element.tagName} ${element.getAttribute("class")} in ${element.closest("[data-picture], section")?.id}`;
          return {
            scrolled: [...document.querySelectorAll("main *")].filter((element) => /auto|scroll/.test(getComputedStyle(element).overflowX) && element.scrollWidth > element.clientWidth + 1).map(told),
            wide: [...document.querySelectorAll("main *")].filter((element) => {
              const box = element.getBoundingClientRect();
              return box.width > 1 && element.closest(".unseen, svg") === null && box.right > main.left + 688;
            }).map(told),
            tried: [...document.querySelectorAll(".dock, .experiment, .redraw, .rail, input[type=range]")].filter((element) => element.getBoundingClientRect().width > 0).map(told),
            closed: document.querySelectorAll(".fold.engineers:not([open])").length,
            paper: getComputedStyle(document.documentElement).backgroundColor,
          };
        });
        assert.deepEqual(state, { scrolled: [], wide: [], tried: [], closed: 0, paper: "rgb(255, 255, 255)" });
        await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
        assert.deepEqual(faults, []);
      });
    });
});
