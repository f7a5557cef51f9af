// The book as a static host serves it: every link leads to a page that opens, and the start page is accessible and needs no script.
// VITRINE_BOOK names a whole book; else a part of one is made with VITRINE_PROGRAM.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, openAddress } from "./browser.mjs";
import { graveFaults, tooWide } from "./checks.mjs";

const program = process.env["VITRINE_PROGRAM"];
const given = process.env["VITRINE_BOOK"];
const book = given === undefined ? mkdtempSync(join(tmpdir(), "vitrine-book-")) : resolve(given);
const types = /** @type {Record<string, string>} */ ({ ".html": "text/html; charset=utf-8", ".png": "image/png", ".svg": "image/svg+xml" });
// Any static host: a path is a file, and nothing else is served.
const server = createServer((request, response) => {
  const path = join(book, normalize(decodeURIComponent(new URL(request.url ?? "/", "http://host").pathname)).replace(/\/$/, "/index.html"));
  if (existsSync(path)) response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" }).end(readFileSync(path));
  else response.writeHead(request.url === "/favicon.ico" ? 204 : 404).end();
});
let address = "";
/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  if (program === undefined && given === undefined) return;
  if (given === undefined) execFileSync(program ?? "", ["book", "--out", book, "--pages", "next-word,patch"], { stdio: "pipe" });
  await new Promise((done) => server.listen(0, "127.0.0.1", () => done(undefined)));
  const at = server.address();
  assert.ok(at !== null && typeof at === "object");
  address = `http://127.0.0.1:${at.port}/`;
  browser = await launch();
});
after(async () => {
  await browser?.close();
  server.close();
  if (given === undefined) rmSync(book, { recursive: true });
});

describe("the book", { skip: program === undefined && given === undefined && "neither VITRINE_PROGRAM nor VITRINE_BOOK is set" }, () => {
  for (const [width, dark] of /** @type {const} */ ([[1280, false], [390, true]]))
    test(`the start page at ${width}: accessible, no script, no request`, async () => {
      const { page, faults } = await openAddress(browser, address, (url) => url === address || url === `${address}opening.svg`, { width, dark });
      assert.equal(await page.locator("script").count(), 0);
      assert.equal(await tooWide(page), 0);
      assert.deepEqual(await graveFaults(page, true), []);
      assert.deepEqual(faults, []);
      await page.context().close();
    });

  test("every link leads to a page that opens, and every page is linked", async () => {
    const start = await openAddress(browser, address, (url) => url === address || url === `${address}opening.svg`);
    const links = await start.page.locator("a").evaluateAll((all) => all.map((a) => a.getAttribute("href") ?? ""));
    assert.ok(links.length > 0);
    assert.deepEqual(readdirSync(book).filter((name) => name.endsWith(".html") && name !== "index.html").sort(), [...links].sort());
    await start.page.context().close();
    for (const link of links) {
      const page = address + link;
      const { page: opened, faults } = await openAddress(browser, page, (url) => url === page || url.startsWith("blob:"));
      await opened.waitForSelector("#vitrine[data-ready=true]");
      assert.equal(await tooWide(opened), 0, link);
      assert.deepEqual(faults, [], link);
      assert.doesNotMatch((await opened.locator("main").textContent()) ?? "", /\/(home|root|tmp|work)\//, `${link} names a folder of the machine that made it`);
      await opened.context().close();
    }
  });
});
