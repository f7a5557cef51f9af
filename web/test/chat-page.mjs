// The page of the server in the tests: opened from a server, and what a reader does on it.

import { openAddress } from "./browser.mjs";
import { drawn } from "./wait.mjs";

/** @typedef {import("playwright-core").Page} Page */

/**
 * Opens the page; faults are console errors, exceptions and requests to anybody else.
 * @param {import("playwright-core").Browser} browser @param {string} url @param {{width?: number, height?: number, dark?: boolean, calm?: boolean}} [options]
 */
export async function openChat(browser, url, options = {}) {
  const permitted = (/** @type {string} */ to) => to.startsWith(url) || to.startsWith("data:image/svg+xml") || to.startsWith(`blob:${url}`);
  // The seeds that the page draws are the same in every run.
  const first = () => {
    let state = 20;
    Math.random = () => (state = (state * 16807) % 2147483647) / 2147483647;
  };
  const opened = await openAddress(browser, url, permitted, { ...options, first });
  await opened.page.waitForSelector("#vitrine[data-ready=true]");
  await opened.page.waitForSelector("#vitrine h1 bdi:not(:text-is('vitrine')), .trouble");
  await drawn(opened.page);
  return opened;
}

/** Opens the page again, with what it has kept. @param {Page} page */
export async function reload(page) {
  await page.reload();
  await page.waitForSelector("#vitrine h1 bdi:not(:text-is('vitrine'))");
  await drawn(page);
}

/** Sends a message, and waits for the answer's end. @param {Page} page @param {string} text */
export async function say(page, text) {
  await page.fill("#text", text);
  await page.keyboard.press("Enter");
  await ended(page);
}

/** Waits until no answer comes. @param {Page} page */
export async function ended(page) {
  await page.waitForFunction(() => document.querySelector(".message.running") === null && document.querySelector(".message") !== null);
}

/** Messages as they are read: who, text. @param {Page} page */
export const messages = (page) => page.locator(".message").evaluateAll((all) => all.map((one) => [one.querySelector("h2")?.textContent ?? "", one.querySelector(".text")?.textContent ?? ""]));

/** Opens the glass on a token of the last answer and one of its views. @param {Page} page @param {number} token @param {string} [view] */
export async function lookAt(page, token, view) {
  await page.locator(".message.assistant").last().locator(`[data-token="${token}"]`).click();
  if (view !== undefined) await page.locator(".glass").getByText(view, { exact: true }).click();
}

/** The lines of “Reproduce this” of the view that is shown. @param {Page} page */
export async function reproduction(page) {
  if ((await page.locator(".glass .again[open]").count()) === 0) await page.locator(".glass .again summary").click();
  await page.locator(".glass .again .copyable").nth(1).waitFor();
  return page.locator(".glass .again .copyable code").allTextContents();
}
