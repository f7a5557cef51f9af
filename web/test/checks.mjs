// What must be true of every page, as questions whose answer is a list of what is wrong. spoilt.test.mjs shows that each of
// them finds the fault it is for.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { drawn, still } from "./wait.mjs";

/** @typedef {import("playwright-core").Page} Page */

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Names of pictures of the data that the page does not draw, or whose absence it does not explain. @param {Page} page */
export const missingPictures = (page) => page.evaluate(() => {
  /** @type {any} */
  const { pictures, steps } = window.vitrine;
  // A chapter whose steps do not show these has their data for its opening.
  /** @param {string} name */
  const opens = (name) => ["attention", "next-tokens", "logit-lens"].includes(name) && pictures[name].available && document.querySelector(".machine") !== null && !steps.some((/** @type {any} */ step) => step.pictures.includes(name) || step.engineers.pictures.includes(name));
  return Object.keys(pictures).filter((name) => {
    const element = document.querySelector(`[data-picture="${name}"]`);
    if (element === null) return !opens(name);
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
  if (text.closest(".trees, .thumbs-scroll, .heat-scroll, .scroll-x") !== null) return false;
  const box = text.getBoundingClientRect();
  return box.width > 0 && (box.left < -1 || box.right > document.documentElement.clientWidth + 1);
}).map((text) => text.textContent));

/** Words of a part of the page that stand outside of it, or that something cuts off which does not scroll. Names that end with an ellipsis are none. @param {import("playwright-core").Locator} part */
export const spilt = (part) => part.evaluate((root) => {
  const found = [];
  const edge = root.getBoundingClientRect();
  const words = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let word = words.nextNode(); word !== null; word = words.nextNode()) {
    const parent = word.parentElement;
    if (parent === null || word.textContent?.trim() === "" || parent.closest(".unseen, svg, pre, option, textarea") !== null || getComputedStyle(parent).clipPath !== "none") continue;
    const range = document.createRange();
    range.selectNodeContents(word);
    for (const box of range.getClientRects()) {
      let [left, right] = [edge.left, Math.min(edge.right, document.documentElement.clientWidth)];
      let scrolls = false;
      for (let outer = /** @type {Element | null} */ (parent); outer !== null && outer !== root && !scrolls; outer = outer.parentElement) {
        const style = getComputedStyle(outer);
        if (style.textOverflow === "ellipsis" || style.overflowX === "auto" || style.overflowX === "scroll") scrolls = true;
        else if (style.overflowX !== "visible") [left, right] = [Math.max(left, outer.getBoundingClientRect().left), Math.min(right, outer.getBoundingClientRect().right)];
      }
      if (!scrolls && box.width > 0 && (box.left < left - 1 || box.right > right + 1)) found.push(word.textContent);
    }
  }
  return found;
});

/** Columns of grids of words of which the reader sees a part, as the grid stands when the page opens. @param {Page} page */
export const slivers = (page) => page.evaluate(() => [...document.querySelectorAll(".cells")].flatMap((grid) => {
  const edge = grid.getBoundingClientRect();
  const left = Math.max(edge.left, ...[...grid.querySelectorAll(".row-name")].map((name) => name.getBoundingClientRect().right));
  return [...grid.querySelectorAll(".cell-name")].filter((name) => {
    const box = name.getBoundingClientRect();
    const seen = Math.min(box.right, edge.right) - Math.max(box.left, left + 4);
    return seen > 1 && seen < box.width - 5;
  }).map((name) => `${grid.closest("figure")?.dataset["picture"]}: ${name.textContent}`);
}));

/** Words of one drawing that stand on each other by more than a hair. @param {Page} page */
export const overlaps = (page) => page.evaluate(() => {
  /** @type {string[]} */
  const found = [];
  for (const drawing of document.querySelectorAll("svg.drawing, svg.heat-names, svg.heat-numbers")) {
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

/**
 * Accessibility faults that axe-core finds, serious and critical ones, or all of them.
 * @param {Page} page @param {boolean} [all]
 * @param {{colors?: boolean, contrast?: boolean, within?: string}} [where]  colors: only what a theme changes; contrast: false leaves out the slowest rule; within: only in this part of the page
 */
export async function graveFaults(page, all = false, { colors = false, contrast = true, within } = {}) {
  await still(page);  // half faded in, words have other colors
  await page.evaluate(axe);
  const result = await page.evaluate(({ part, which }) => /** @type {any} */ (window).axe.run(part ?? document, { resultTypes: ["violations"], ...which }), { part: within, which: { ...(colors ? { runOnly: ["color-contrast", "link-in-text-block"] } : {}), rules: { "target-size": { enabled: all && !colors }, ...(contrast ? {} : { "color-contrast": { enabled: false } }) } } });
  const grave = result.violations.filter((/** @type {any} */ v) => all || v.impact === "serious" || v.impact === "critical");
  return grave.map((/** @type {any} */ v) => `${v.id}: ${v.nodes.slice(0, 3).map((/** @type {any} */ n) => n.html.slice(0, 160)).join(" | ")}`);
}

/** Text of the note, "" while it is hidden. @param {Page} page */
export const tip = (page) => page.evaluate(() => (document.querySelector("#tip.shown") === null ? "" : [...document.querySelectorAll("#tip > *")].map((e) => e.textContent).join("\n")));

/** Brings a part to the middle of the window and waits until what follows a scroll has happened. @param {import("playwright-core").Locator} part */
export async function show(part) {
  await part.evaluate((element) => element.scrollIntoView({ block: "center", behavior: "instant" }));
  await drawn(part.page());
}

/** Waits until the beginning of a part is in the window's upper half (or anywhere in it) with nothing over it. @param {import("playwright-core").Locator} part @param {boolean} [anywhere] */
export async function inSight(part, anywhere = false) {
  const seen = part.page().waitForFunction(({ element, high }) => {
    const box = element?.getBoundingClientRect();
    if (element === null || box === undefined || box.top < 0 || box.top + Math.min(box.height, 60) > high * window.innerHeight) return false;
    const over = document.elementFromPoint(box.left + Math.min(box.width, 20) / 2, box.top + Math.min(box.height, 60) / 2);
    return element.contains(over);
  }, { element: await part.elementHandle(), high: anywhere ? 1 : 0.5 });
  await seen.catch(() => assert.fail(`not in sight: ${part}`));
}

/** What the page says without explaining it, or of what its reader cannot see. @param {Page} page */
export const unexplained = (page) => page.evaluate(() => {
  const found = [];
  const text = document.body.innerText;
  for (const words of ["toy of the text", "example of the text", "Why it is done", "Every number on this page", "Below:"]) if (text.includes(words)) found.push(words);
  for (const figure of document.querySelectorAll("figure[data-picture]")) if (figure.querySelector(".figure-title .made") === null) found.push(`${figure.getAttribute("data-picture")} does not say where its numbers come from`);
  if (document.querySelector(".made-legend") === null) found.push("no legend for where numbers come from");
  // Marks of a vocabulary are its own affair; the reader sees one mark, and what it means.
  if (/[▁Ġ]/.test(text)) found.push(`a vocabulary's mark for a space: ${text.match(/.{0,20}[▁Ġ].{0,20}/)?.[0]}`);
  if (text.includes("␣") && document.querySelector(".space-legend") === null) found.push("␣ has no legend");
  return found;
});

/** Numbers in sight with more digits than anybody reads. @param {Page} page */
export const floatsWithLongTails = (page) => page.evaluate(() => {
  const found = [];
  const words = document.createTreeWalker(document.querySelector("main") ?? document.body, NodeFilter.SHOW_TEXT);
  for (let word = words.nextNode(); word !== null; word = words.nextNode()) {
    if (word.parentElement?.closest("table, code, pre, .unseen, .listing, script, style") !== null) continue;
    for (const number of word.textContent?.match(/\d+\.\d+/g) ?? []) if (number.replace(".", "").replace(/^0+/, "").length > 5) found.push(number);
  }
  return found;
});

/** Grids of wide figures that stand further left than the text, though they are narrower than it. @param {Page} page */
export const hangingLeft = (page) => page.evaluate(() => [...document.querySelectorAll("figure.wide .heat-area, figure.wide .cells, figure.wide .thumbs-scroll, figure.wide figcaption, figure.wide .figure-title")].filter((part) => {
  if (part.closest(".half, .enlarged, .regions") !== null) return false;
  const text = part.closest("section")?.querySelector(":scope > p")?.getBoundingClientRect();
  const box = part.getBoundingClientRect();
  return text !== undefined && box.width < text.width - 60 && box.left < text.left - 1;
}).map((part) => `${part.className} of ${part.closest("figure")?.getAttribute("data-picture")}`));

/** Titles and headings that the note covers. @param {Page} page */
export const headingsUnderTip = (page) => page.evaluate(() => {
  const tip = document.querySelector("#tip.shown")?.getBoundingClientRect();
  if (tip === undefined) return [];
  return [...document.querySelectorAll("h2, .figure-title")].filter((heading) => {
    const box = heading.getBoundingClientRect();
    return Math.min(box.right, tip.right) > Math.max(box.left, tip.left) && Math.min(box.bottom, tip.bottom) > Math.max(box.top, tip.top);
  }).map((heading) => heading.textContent);
});

/** Words beside drawings that stand on each other: names of rows and columns, titles of panels, keys, choices. @param {Page} page */
export const labelsOnLabels = (page) => page.evaluate(() => [...document.querySelectorAll("figure")].flatMap((figure) => {
  const words = [...figure.querySelectorAll(".thumbs-names span, .scale-key span, .below-grid > span, .panel-title, .row-title, .figure-title, .choice label, .choice legend, .slider-label, .slider output, .remark, figcaption")].filter((one) => one.childElementCount === 0 || one.matches(".panel-title, .row-title, .figure-title, .remark, figcaption"));
  const boxes = words.map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return range.getBoundingClientRect();
  });
  return words.flatMap((one, a) => words.slice(a + 1).flatMap((other, i) => {
    const [p, q] = [boxes[a], boxes[a + 1 + i]];
    if (p === undefined || q === undefined || one.contains(other) || other.contains(one)) return [];
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    return wide > 2 && high > Math.min(p.height, q.height) * 0.36 ? [`${figure.id}: “${one.textContent}” on “${other.textContent}”`] : [];
  }));
}));
