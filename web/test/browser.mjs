// Chromium for the tests: the packaged browser, driven by playwright-core. The headless shell is the same engine without windows,
// and opens a page in half the time.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { drawn, hang } from "./wait.mjs";

const candidates = [process.env["VITRINE_CHROMIUM"], "/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Starts the browser. VITRINE_CHROMIUM names another program. */
export async function launch() {
  const executablePath = candidates.find((path) => path !== undefined && existsSync(path));
  if (executablePath === undefined) throw new Error(`no Chromium at ${candidates.filter((c) => c !== undefined).join(", ")}: apt-get install chromium-headless-shell, or set VITRINE_CHROMIUM`);
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"], timeout: hang });
}

/**
 * Opens a page from the file system and collects what should not happen: console errors, exceptions, requests.
 * @param {import("playwright-core").Browser} browser
 * @param {string} path
 * @param {{width?: number, height?: number, dark?: boolean, calm?: boolean}} [options]
 */
export async function open(browser, path, options = {}) {
  const opened = await openAddress(browser, `file://${path}`, (url) => url === `file://${path}`, options);
  await opened.page.waitForSelector("#vitrine[data-ready=true]");
  await drawn(opened.page);
  return opened;
}

/**
 * Opens an address; requests to others than the permitted ones are faults.
 * @param {import("playwright-core").Browser} browser
 * @param {string} address
 * @param {(url: string) => boolean} permitted
 * @param {{width?: number, height?: number, dark?: boolean, calm?: boolean, first?: () => void}} [options] first: runs in the page before its own script
 */
export async function openAddress(browser, address, permitted, { width = 1280, height = 900, dark = false, calm = false, first } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    reducedMotion: calm ? "reduce" : "no-preference",
    hasTouch: width < 600,
  });
  context.setDefaultTimeout(hang);
  if (first !== undefined) await context.addInitScript(first);
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.stack ?? error.message}`));
  page.on("request", (request) => {
    if (!permitted(request.url())) faults.push(`request: ${request.url()}`);
  });
  await page.goto(address);
  return { page, faults };
}

/** Opens the folds for engineers, then scrolls to what is drawn when it comes near the window, the small squares of attention, until all of it is drawn; then back. @param {import("playwright-core").Page} page */
export async function settle(page) {
  await page.evaluate(() => {
    document.documentElement.style.scrollBehavior = "auto";
    for (const fold of document.querySelectorAll(".fold.engineers")) /** @type {HTMLDetailsElement} */ (fold).open = true;
  });
  await drawn(page);
  const next = () => page.evaluate(() => {
    const blank = [...document.querySelectorAll(".thumb")].find((square) => {
      // What lies beside a grid that scrolls sideways is drawn when a reader scrolls there.
      const [box, seen] = [square.getBoundingClientRect(), square.closest(".thumbs-scroll")?.getBoundingClientRect()];
      return seen !== undefined && box.right > seen.left && box.left < seen.right && !square.querySelector("canvas")?.hasAttribute("width");
    });
    window.scrollTo(0, blank === undefined ? 0 : blank.getBoundingClientRect().top + window.scrollY - window.innerHeight / 2);
    return blank !== undefined;
  });
  while (await next()) await drawn(page);
  await drawn(page);
}
