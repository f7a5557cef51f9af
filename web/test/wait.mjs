// What tests wait for: a state of the page or of a server, never a time. A busy machine may need any time for anything.
// source.test.mjs refuses sleeps and limits of their own in the other files of this folder.

/** In milliseconds: what has not come by then never comes. No test passes or fails by this limit on a machine that works. */
export const hang = 10 * 60 * 1000;

/** @typedef {import("playwright-core").Page} Page */

/** Asks until the answer is yes: for what does not report its changes. @param {() => boolean | Promise<boolean>} holds @param {string} what */
export async function until(holds, what) {
  for (const from = performance.now(); !(await holds()); ) {
    if (performance.now() - from > hang) throw new Error(`never came: ${what}`);
    await new Promise((done) => setTimeout(done, 10));
  }
}

/**
 * Waits until the browser has drawn what was changed and has run what follows. A frame starts with scroll events and ends with
 * the observers of sizes, and Preact runs the effects of what it has rendered in a task after a frame. The task that ends this
 * wait comes after all of them, however long they take.
 * @param {Page} page
 */
export const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(undefined)))));

/** Waits until everything that fades or slides in has arrived. @param {Page} page */
export const still = (page) => page.evaluate(async () => {
  const ends = document.getAnimations().filter((one) => Number.isFinite(Number(one.effect?.getComputedTiming().endTime)));
  await Promise.allSettled(ends.map((one) => one.finished));
});

/**
 * Opens every fold of `selector` that is closed, and waits until their insides are made, which they are when they are first opened.
 * All at once: a page with long tables is laid out once, not with each of them.
 * @param {Page} page @param {string} [selector]
 */
export async function unfoldAll(page, selector = "details.fold") {
  const covered = await page.evaluate((folds) => {
    const closed = [...document.querySelectorAll(`${folds}:not([open]) > summary`)];
    // A reader has to get at them.
    const covered = closed.filter((summary) => {
      summary.scrollIntoView({ block: "center", behavior: "instant" });
      const box = summary.getBoundingClientRect();
      return !summary.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2));
    });
    for (const summary of closed) /** @type {HTMLElement} */ (summary).click();
    return covered.map((summary) => summary.textContent);
  }, selector);
  if (covered.length > 0) throw new Error(`something stands over what unfolds: ${covered.join(" | ")}`);
  await page.waitForFunction((folds) => [...document.querySelectorAll(folds)].every((fold) => fold.querySelector(":scope > .fold-inside") !== null), selector);
}
