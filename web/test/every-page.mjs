// What is checked of every page of `vitrine explain`, made up (page.test.mjs) or real (real.test.mjs). A page is opened three times,
// on a desktop, on a phone and for paper, because opening it takes as long as most checks.

import assert from "node:assert/strict";
import { basename } from "node:path";
import { after, before, describe, test } from "node:test";
import { open, settle } from "./browser.mjs";
import { cutOff, floatsWithLongTails, graveFaults, hangingLeft, headingsUnderTip, labelsOnLabels, missingPictures, overlaps, show, slivers, tip, tooWide, unexplained } from "./checks.mjs";
import { drawn, unfoldAll } from "./wait.mjs";

/** @typedef {import("playwright-core").Page} Page */

const desktop = { width: 1280, height: 900 };
const phone = { width: 360, height: 740 };

/** Every picture is there, nothing is cut off or stands on something else. @param {Page} page */
async function looksRight(page) {
  await settle(page);
  assert.deepEqual(await missingPictures(page), [], "pictures that are not there");
  assert.equal(await tooWide(page), 0, "pixels by which the page is wider than the window");
  assert.deepEqual(await cutOff(page), [], "words that are cut off at the window's edge");
  assert.deepEqual(await overlaps(page), [], "words that stand on each other");
}

/** @param {Page} page @param {boolean} dark */
async function changeTheme(page, dark) {
  await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
  await page.waitForFunction((name) => document.documentElement.dataset["theme"] === name, dark ? "dark" : "light");
}

/**
 * @param {() => import("playwright-core").Browser} browser @param {string} path
 * @param {{bothThemes: boolean, paper: boolean}} options  bothThemes: on the desktop and on the phone; else light here and dark there
 */
export function everyPage(browser, path, { bothThemes, paper }) {
  describe(basename(path), () => {
    /** @type {Page} */
    let page;
    /** @type {string[]} */
    let faults;
    /** @param {{width: number, height: number, dark?: boolean}} look */
    const opens = (look) => {
      before(async () => ({ page, faults } = await open(browser(), path, look)));
      after(() => page.context().close());
    };

    describe("on a desktop", () => {
      opens(desktop);

      test("every picture, no fault, no request, accessible", async () => {
        assert.equal(await page.locator(".fold.engineers[open]").count(), 0, "what is for engineers is closed at first");
        await looksRight(page);
        assert.deepEqual(await graveFaults(page, true), []);
        assert.deepEqual(faults, []);
      });

      test("says where numbers come from, asks its questions, and speaks of nothing that the reader has not seen", async () => {
        assert.deepEqual(await unexplained(page), []);
        assert.deepEqual(await floatsWithLongTails(page), []);
        assert.deepEqual(await hangingLeft(page), []);
        const questions = await page.locator("section > .question").allTextContents();
        assert.ok(questions.every((words) => words.endsWith("?")), questions.join(" | "));
        assert.equal(new Set(questions).size, questions.length, "a question is asked twice");
        for (const heading of await page.locator("h2").allTextContents()) assert.match(heading, /^(\d+ )?\p{L}/u);
      });

      test("every drawing and grid answers to the keyboard with numbers, and the note stays off titles and headings", async () => {
        const places = await page.locator("[role=application]").all();
        assert.ok(places.length > 20, `${places.length} pictures can be walked through`);
        for (const place of places) {
          const label = (await place.getAttribute("aria-label")) ?? "";
          assert.notEqual(label, "");
          await show(place);
          await place.focus();
          await page.keyboard.press("ArrowRight");
          assert.deepEqual(await headingsUnderTip(page), [], label);
          await page.keyboard.press("ArrowDown");
          const words = await tip(page);
          assert.match(words, /\S/, `no note on the arrow keys: ${label}`);
          assert.doesNotMatch(words, /undefined|NaN|\[object/, label);
          assert.equal(await page.locator("[role=status]").textContent(), words.replace(/\n/g, ", "));
          await page.keyboard.press("Escape");
        }
        assert.deepEqual(faults, []);
      });

      test("every picture answers to the pointer with numbers", async () => {
        for (const name of await page.locator("figure[data-picture]").evaluateAll((all) => all.map((e) => e.getAttribute("data-picture")))) {
          const target = page.locator(`figure[data-picture="${name}"] :is([role=application], .token, .split)`).first();
          await show(target);
          const area = await target.boundingBox();
          assert.ok(area !== null, `${name} has no area`);
          let words = "";
          for (const [fx, fy] of [[0.2, 0.7], [0.5, 0.5], [0.3, 0.8], [0.1, 0.9], [0.7, 0.4], [0.55, 0.5]]) {
            await page.mouse.move(area.x + area.width * fx, area.y + Math.min(area.height * fy, 700));
            words = await tip(page);
            if (words !== "") break;
          }
          assert.match(words, /\S/, `no note under the pointer: ${name}`);
          assert.doesNotMatch(words, /undefined|NaN|\[object/, name ?? "");
          await page.mouse.move(2, 2);
        }
        assert.deepEqual(faults, []);
      });

      test("720 pixels wide: no label stands on another or at the window's edge", async () => {
        await page.setViewportSize({ width: 720, height: 844 });
        await drawn(page);
        await looksRight(page);
        assert.deepEqual(await labelsOnLabels(page), []);
        await page.setViewportSize(desktop);
        await drawn(page);
      });

      if (bothThemes)
        test("dark: every picture, no fault", async () => {
          await changeTheme(page, true);
          await looksRight(page);
          assert.deepEqual(await graveFaults(page, true, { colors: true }), []);
          assert.deepEqual(faults, []);
        });

      test("tables, descriptions, sources and commands unfold, and hold what they should", async () => {
        await unfoldAll(page);
        const tables = await page.locator("figure[data-picture]").evaluateAll((all) => all.map((figure) => ({
          name: figure.getAttribute("data-picture"),
          rows: figure.querySelectorAll(".fold.data tbody tr").length,
          bad: [...figure.querySelectorAll(".fold.data td")].filter((cell) => /undefined|NaN|\[object/.test(cell.textContent ?? "")).length,
          alt: figure.querySelector("[id^=alt-]")?.textContent ?? "",
          command: figure.querySelector(".copyable code")?.textContent ?? "",
        })));
        for (const table of tables) {
          assert.ok(table.rows > 0, `${table.name} has an empty table`);
          assert.equal(table.bad, 0, `${table.name} has cells that are no values`);
          assert.notEqual(table.alt, "", `${table.name} has no text alternative`);
          assert.ok(table.command.startsWith(`vitrine picture ${table.name} `), table.command);
        }
        const sources = await page.evaluate(() => /** @type {any} */ (window.vitrine).steps.flatMap((/** @type {any} */ s) => s.source));
        const listings = await page.locator(".listing pre").evaluateAll((all) => all.map((pre) => [...pre.querySelectorAll("code")].map((c) => (c.textContent === " " ? "" : c.textContent)).join("\n")));
        assert.deepEqual(listings, sources.map((/** @type {any} */ s) => s.code));
        assert.deepEqual(faults, []);
      });
    });

    describe("on a phone", () => {
      opens({ ...phone, dark: true });

      test("dark: every picture, no fault, no request, accessible", async () => {
        await looksRight(page);
        assert.deepEqual(await graveFaults(page, true), []);
        assert.deepEqual(faults, []);
      });

      if (bothThemes)
        test("light: every picture, no fault", async () => {
          await changeTheme(page, false);
          await looksRight(page);
          assert.deepEqual(await graveFaults(page, true, { colors: true }), []);
          assert.deepEqual(faults, []);
        });

      test("390 pixels wide: no label stands on another or at the window's edge, grids show whole columns", async () => {
        await page.setViewportSize({ width: 390, height: 844 });
        await drawn(page);
        await looksRight(page);
        assert.deepEqual(await slivers(page), []);
        assert.deepEqual(await labelsOnLabels(page), []);
        assert.deepEqual(faults, []);
      });
    });

    if (paper)
      describe("on paper", () => {
        // Not scrolled through first: what is far down has not been drawn yet.
        opens({ ...desktop, dark: true });

        test("everything is painted, nothing is cut, nothing scrolls", async () => {
          // What the sheets are laid out from: the state right behind the event, before any frame.
          const state = await page.evaluate(async () => {
            window.dispatchEvent(new Event("beforeprint"));
            await Promise.resolve();
            await Promise.resolve();
            const blank = [...document.querySelectorAll("canvas")].filter((canvas) => {
              const context = canvas.getContext("2d");
              return canvas.width === 0 || canvas.height === 0 || context === null || context.getImageData(0, 0, canvas.width, canvas.height).data.every((v) => v === 0);
            });
            return {
              blank: blank.map((canvas) => canvas.closest("[data-picture]")?.getAttribute("data-picture")),
              scrolled: [...document.querySelectorAll("main *")].filter((element) => /auto|scroll/.test(getComputedStyle(element).overflowX) && element.scrollWidth > element.clientWidth + 1).map((element) => element.className),
              wide: [...document.querySelectorAll("main *")].filter((element) => {
                const box = element.getBoundingClientRect();
                const main = /** @type {Element} */ (document.querySelector("main")).getBoundingClientRect();
                return box.width > 1 && element.closest(".unseen, svg") === null && box.right > main.left + 688;
              }).map((element) => `${element.tagName} ${element.className} in ${element.closest("[data-picture]")?.getAttribute("data-picture")}`),
              // A part that may not be cut and does not fit leaves so much of a sheet empty: at most half of one, 1017 pixels high.
              // Grids with a row for each of many layers are as high as they are.
              high: /** @type {any} */ (window.vitrine).model.nLayers > 12 ? [] : [...document.querySelectorAll("main *")].filter((element) => getComputedStyle(element).breakInside === "avoid" && element.getBoundingClientRect().height > 508).map((element) => `${element.getAttribute("class")} in ${element.closest("[data-picture]")?.getAttribute("data-picture")}`),
              dark: getComputedStyle(document.documentElement).backgroundColor,
              closed: [...document.querySelectorAll(".fold.engineers")].filter((fold) => !/** @type {HTMLDetailsElement} */ (fold).open).length,
              rail: [...document.querySelectorAll(".rail, .bar-top, .theme, input[type=range]")].filter((element) => element.getBoundingClientRect().width > 0).length,
            };
          });
          assert.deepEqual(state, { blank: [], scrolled: [], wide: [], high: [], dark: "rgb(255, 255, 255)", closed: 0, rail: 0 });
          await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
          assert.notEqual(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor), "rgb(255, 255, 255)");
          // And the browser's own printing raises the same events.
          await page.evaluate(() => {
            /** @type {any} */ (window).wide = 0;
            window.addEventListener("beforeprint", () => (/** @type {any} */ (window).wide = document.querySelector("main")?.getBoundingClientRect().width));
          });
          const pdf = await page.pdf({ preferCSSPageSize: true, printBackground: true });
          assert.equal(await page.evaluate(() => /** @type {any} */ (window).wide), 680);
          assert.match(pdf.toString("latin1"), /MediaBox ?\[0 0 59[45](\.\d+)? 84[12]/, "A4");
          assert.deepEqual(faults, []);
        });
      });
  });
}
