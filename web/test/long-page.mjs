// A page of a long prompt: how large it may be, and that its grids with many thousands of cells answer.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { open, settle } from "./browser.mjs";
import { show, tip } from "./checks.mjs";

// Times are printed; they are held to their limits where VITRINE_TIMED=1 says that the machine does nothing else.
const timed = process.env["VITRINE_TIMED"] === "1";

/** @param {() => import("playwright-core").Browser} browser @param {string} path */
export function longPage(browser, path) {
  test(`${basename(path)}: at most 30 MB, opens, every place answers the pointer${timed ? " in time" : ""}`, async (t) => {
    assert.ok(statSync(path).size <= 30e6, `${statSync(path).size} bytes`);
    // Where times are held to limits: the best of three openings, and of three hovers at each place.
    const tries = timed ? 3 : 1;
    let opened = Infinity;
    for (let again = 1; again < tries && opened >= 3000; ++again) {
      const start = performance.now();
      const { page } = await open(browser(), path);
      opened = Math.min(opened, performance.now() - start);
      await page.context().close();
    }
    const start = performance.now();
    const { page, faults } = await open(browser(), path);
    opened = Math.min(opened, performance.now() - start);
    if (timed) assert.ok(opened < 3000, `opened in ${opened.toFixed(0)} ms`);
    await settle(page);
    const slowest = await page.evaluate(async (tries) => {
      const frame = () => new Promise((done) => requestAnimationFrame(() => done(null)));
      let worst = { ms: 0, where: "" };
      for (const area of document.querySelectorAll(".thumbs-area, .heat-area, .cells, .surface, figure[data-picture] svg.drawing")) {
        area.scrollIntoView({ block: "center" });
        await frame();
        const box = area.getBoundingClientRect();
        for (let i = 1; i < 8; ++i) {
          const at = { clientX: box.left + (box.width * i) / 8, clientY: box.top + Math.min(box.height, 800) * (0.9 - i / 30), bubbles: true };
          let best = Infinity;
          for (let again = 0; again < tries && best > 50; ++again) {
            area.dispatchEvent(new PointerEvent("pointerleave"));
            if (tries > 1) await frame();
            const begin = performance.now();
            // What lies under the pointer gets the event, as from a mouse.
            (document.elementFromPoint(at.clientX, at.clientY) ?? area).dispatchEvent(new PointerEvent("pointermove", at));
            if (tries > 1) await frame();
            document.getElementById("tip")?.getBoundingClientRect();
            best = Math.min(best, performance.now() - begin);
          }
          if (best > worst.ms) worst = { ms: best, where: area.getAttribute("aria-label") ?? "" };
        }
      }
      return worst;
    }, tries);
    t.diagnostic(`${(statSync(path).size / 1e6).toFixed(1)} MB, opened in ${opened.toFixed(0)} ms, slowest hover ${slowest.ms.toFixed(0)} ms`);
    if (timed) assert.ok(slowest.ms < 100, `the slowest hover took ${slowest.ms.toFixed(0)} ms: ${slowest.where}`);
    const overview = page.locator(".enlarged-grid .heat-area").first();
    await show(overview);
    const area = await overview.boundingBox();
    assert.ok(area !== null);
    await page.mouse.click(area.x + area.width * 0.4, area.y + area.height * 0.5);
    const detail = page.locator(".enlarged-grid .heat-area").nth(1);
    await detail.waitFor();
    await page.mouse.move(0, 0);  // the browser tells the grid that the pointer left it, and its note goes
    await show(detail);
    await detail.focus();
    await page.keyboard.press("ArrowRight");
    assert.match(await tip(page), /looks at/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });
}
