// What must be true of every page, as questions whose answer is a list of what is wrong. spoilt.test.mjs shows that each of
// them finds the fault it is for.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** @typedef {import("playwright-core").Page} Page */

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Names of pictures of the data that the page does not draw, or whose absence it does not explain. @param {Page} page */
export const missingPictures = (page) => page.evaluate(() => {
  /** @type {any} */
  const { pictures } = window.vitrine;
  return Object.keys(pictures).filter((name) => {
    const element = document.querySelector(`[data-picture="${name}"]`);
    if (element === null) return true;
    if (!pictures[name].available) return !element.textContent?.includes(pictures[name].reason);
    const drawn = element.querySelector(".figure-body :is(svg, canvas, .token, .split, .cell)");
    return drawn === null || drawn.getBoundingClientRect().width < 1;
  });
});

/** Pixels by which the page is wider than the window. @param {Page} page */
export const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Words of drawings that the window's edge cuts off. @param {Page} page */
export const cutOff = (page) => page.evaluate(() => [...document.querySelectorAll("svg.drawing text, .heat-names text")].filter((text) => {
  // What lies in a part that scrolls sideways is reached by scrolling.
  if (text.closest(".trees, .thumbs-scroll, .heat-scroll") !== null) return false;
  const box = text.getBoundingClientRect();
  return box.width > 0 && (box.left < -1 || box.right > document.documentElement.clientWidth + 1);
}).map((text) => text.textContent));

/** Words of one drawing that stand on each other by more than a hair. @param {Page} page */
export const overlaps = (page) => page.evaluate(() => {
  /** @type {string[]} */
  const found = [];
  for (const drawing of document.querySelectorAll("svg.drawing, svg.heat-names")) {
    const words = [...drawing.querySelectorAll("text")].filter((text) => text.textContent !== "" && !text.getAttribute("transform")?.includes("rotate") && Number(getComputedStyle(text).opacity) > 0.5);
    const boxes = words.map((text) => text.getBoundingClientRect());
    for (let a = 0; a < words.length; ++a)
      for (let b = a + 1; b < words.length; ++b) {
        const [p, q] = [boxes[a], boxes[b]];
        if (p === undefined || q === undefined) continue;
        const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        // A line of text is higher than its letters: a third of it may be shared.
        if (wide > 2 && high > Math.min(p.height, q.height) * 0.36) found.push(`${drawing.getAttribute("aria-label") ?? drawing.closest("figure")?.getAttribute("data-picture")}: “${words[a]?.textContent}” on “${words[b]?.textContent}”`);
      }
  }
  return found;
});

/** Accessibility faults that axe-core finds, serious and critical ones, or all of them. @param {Page} page @param {boolean} [all] */
export async function graveFaults(page, all = false) {
  await page.evaluate(axe);
  const result = await page.evaluate(() => /** @type {any} */ (window).axe.run(document, { resultTypes: ["violations"] }));
  const grave = result.violations.filter((/** @type {any} */ v) => all || v.impact === "serious" || v.impact === "critical");
  return grave.map((/** @type {any} */ v) => `${v.id}: ${v.nodes.slice(0, 3).map((/** @type {any} */ n) => n.html.slice(0, 160)).join(" | ")}`);
}

/** Text of the note, "" while it is hidden. @param {Page} page */
export const tip = (page) => page.evaluate(() => (document.querySelector("#tip.shown") === null ? "" : [...document.querySelectorAll("#tip > *")].map((e) => e.textContent).join("\n")));

/** Brings a part to the middle of the window and waits until what follows a scroll has happened. @param {import("playwright-core").Locator} part */
export async function show(part) {
  await part.evaluate(async (element) => {
    element.scrollIntoView({ block: "center", behavior: "instant" });
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))));
  });
}
