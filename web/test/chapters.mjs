// The chapters of the book as live pages, for tests of all of them: VITRINE_BOOK names a book that is there, else VITRINE_PROGRAM writes its chapters.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { openAddress } from "./browser.mjs";

export const names = /** @type {const} */ (["next-word", "gpt2", "heads", "gemma2", "trainable"]);

const given = process.env["VITRINE_BOOK"];
export const program = process.env["VITRINE_PROGRAM"];

/** A folder with the chapters, and what removes it. @returns {{folder: string, remove: () => void}} */
export function chapters() {
  if (given !== undefined) return { folder: resolve(given), remove: () => undefined };
  const folder = mkdtempSync(join(tmpdir(), "vitrine-chapters-"));
  assert.ok(program !== undefined);
  execFileSync(program, ["book", "--out", folder, "--pages", names.join(",")], { stdio: "pipe" });
  return { folder, remove: () => rmSync(folder, { recursive: true }) };
}

/** Why there is nothing to open, or false. */
export const nothing = program === undefined && "VITRINE_PROGRAM is not set";

/**
 * Opens a chapter from the file system, without a network, and waits for its engine's first answer.
 * @param {import("playwright-core").Browser} browser @param {string} path @param {{width?: number, height?: number, dark?: boolean, calm?: boolean}} [look]
 */
export async function openChapter(browser, path, look) {
  const opened = await openAddress(browser, `file://${path}`, (url) => url === `file://${path}` || url.startsWith("blob:null/"), look);
  await opened.page.context().setOffline(true);
  await opened.page.locator(".dock-next li").first().waitFor();
  return opened;
}
