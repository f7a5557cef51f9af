// Each check finds the fault it is for: a page is spoilt in one way at a time.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { launch, open, settle } from "./browser.mjs";
import { cutOff, floatsWithLongTails, graveFaults, hangingLeft, headingsUnderTip, labelsOnLabels, missingPictures, overlaps, show, tooWide, unexplained } from "./checks.mjs";
import { writePage } from "./fixture.mjs";
import { until } from "./wait.mjs";

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** Opens the small page after `change`, made to its text or, once it is open, to its elements. @param {(html: string) => string} change @param {() => void} [then] */
async function spoilt(change, then) {
  const path = writePage("bare").replace(/\.html$/, "-spoilt.html");
  writeFileSync(path, change(readFileSync(path.replace("-spoilt", ""), "utf8")));
  const opened = await open(browser, path, { width: 390, height: 800 });
  await settle(opened.page);
  if (then !== undefined) await opened.page.evaluate(then);
  return opened;
}
/** @param {string} script */
const withScript = (script) => (/** @type {string} */ html) => html.replace("</body>", `<script>${script}</script></body>`);
const asItIs = (/** @type {string} */ html) => html;

test("a page as it should be has none of the faults", async () => {
  const { page, faults } = await spoilt(asItIs);
  assert.deepEqual([faults, await missingPictures(page), await tooWide(page), await cutOff(page), await overlaps(page), await graveFaults(page)], [[], [], 0, [], [], []]);
  await page.context().close();
});

for (const [what, script, found] of /** @type {const} */ ([
  ["a console error", "console.error('spoilt')", /console: spoilt/],
  ["an exception", "throw new Error('spoilt')", /exception: Error: spoilt/],
  ["a request", "new Image().src = 'http://127.0.0.1:9/spoilt.png'", /request: http:\/\/127\.0\.0\.1:9\/spoilt\.png/],
]))
  test(`${what} is found`, async () => {
    const { page, faults } = await spoilt(withScript(script));
    await until(() => found.test(faults.join("\n")), what);
    await page.context().close();
  });

test("a picture that is not drawn is found, and one whose absence is not explained", async () => {
  const { page } = await spoilt(asItIs, () => {
    document.querySelector('[data-picture="dot-product"] .figure-body')?.replaceChildren();
    document.querySelector('[data-picture="attention"]')?.remove();
    document.querySelector(".absent")?.replaceChildren("no reason");
  });
  const missing = await missingPictures(page);
  assert.deepEqual([missing.length, missing.includes("dot-product"), missing.includes("attention")], [3, true, true]);
  await page.context().close();
});

test("what is wider than the window is found, and words at its edge and on each other", async () => {
  const { page } = await spoilt(asItIs, () => {
    document.querySelector("main")?.insertAdjacentHTML("beforeend", "<div style='width: 500px; height: 1px'></div>");
    const [one, two] = document.querySelectorAll("[data-picture] svg.drawing text");
    for (const [name, value] of [["x", "5"], ["y", "40"], ["text-anchor", "end"]]) for (const text of [one, two]) text?.setAttribute(name ?? "", value ?? "");
  });
  assert.ok((await tooWide(page)) > 50);
  assert.ok((await cutOff(page)).length >= 1);
  assert.ok((await overlaps(page)).length >= 1);
  await page.context().close();
});

test("an accessibility fault is found", async () => {
  const { page } = await spoilt(asItIs, () => {
    document.querySelector("[role=application]")?.removeAttribute("aria-label");
    document.querySelector("main")?.insertAdjacentHTML("beforeend", "<button></button><p style='color: #bbb; background: #fff'>pale</p>");
  });
  const found = (await graveFaults(page)).join("\n");
  assert.match(found, /button-name/);
  assert.match(found, /color-contrast/);
  await page.context().close();
});

test("what a reader cannot know is found, and long numbers, and a grid that hangs left", async () => {
  const { page } = await spoilt(asItIs);
  assert.deepEqual([await unexplained(page), await floatsWithLongTails(page), await hangingLeft(page)], [[], [], []]);
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.evaluate(() => {
    const section = document.querySelector("section");
    section?.insertAdjacentHTML("beforeend", "<p>As in the example of the text, ▁want has 0.281351.</p>");
    document.querySelector("figure .made")?.remove();
    document.querySelector("figure.wide .figure-body")?.insertAdjacentHTML("beforeend", "<div class='cells' style='width: 200px; margin-left: -300px'></div>");
  });
  assert.equal((await unexplained(page)).length, 3, (await unexplained(page)).join(" | "));
  assert.deepEqual(await floatsWithLongTails(page), ["0.281351"]);
  assert.equal((await hangingLeft(page)).length, 1);
  assert.deepEqual(await labelsOnLabels(page), []);
  // The last name of a row onto the first, however far the width of the window puts them from each other.
  await page.evaluate(() => {
    const [first, last] = [":first-child", ":last-child"].map((which) => document.querySelector(`.thumbs-names.side span${which}`));
    if (!(first instanceof HTMLElement) || !(last instanceof HTMLElement)) throw new Error("no names of rows");
    last.style.transform = `translateY(${first.getBoundingClientRect().top - last.getBoundingClientRect().top}px)`;
  });
  assert.ok((await labelsOnLabels(page)).length >= 1);
  await page.context().close();
});

test("a note over a title is found", async () => {
  const { page } = await spoilt(asItIs);
  await show(page.locator(".figure-title").first());  // a scroll puts the note away
  await page.evaluate(() => {
    const title = document.querySelector(".figure-title");
    const box = title?.getBoundingClientRect();
    const tip = document.getElementById("tip");
    if (tip === null || box === undefined) throw new Error("no note");
    tip.textContent = "spoilt";
    tip.className = "shown";
    tip.style.transform = `translate(${box.left}px, ${box.top}px)`;
  });
  assert.equal((await headingsUnderTip(page)).length, 1);
  await page.context().close();
});
