// The picture that goes with a link to the book: the opening of the page that index.html names first.
//   vitrine book --out BOOK && node social.mjs BOOK     writes BOOK/social.png, 1200 by 630 pixels, and names it in index.html

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { launch } from "./browser.mjs";
import { drawn, still } from "./wait.mjs";

const book = resolve(process.argv[2] ?? "");
if (!existsSync(join(book, "index.html"))) throw new Error("usage: node social.mjs BOOK");
const first = /<li>.*?<a href="([^"]+)"/.exec(readFileSync(join(book, "index.html"), "utf8"))?.[1] ?? "index.html";
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1200, height: 630 }, colorScheme: "light" });
await page.goto(`file://${join(book, first)}`);
await page.waitForSelector("#vitrine[data-ready=true]");
// What belongs to the reader's side of the page is left out; the opening stands in the middle.
await page.addStyleTag({ content: ".theme, .rail, .bar-top, .contents, .dock, .skip { display: none !important } body:has(.rail) { padding-left: 0 !important } .opening { padding-top: 2.2rem !important }" });
await drawn(page);
await still(page);
await page.screenshot({ path: join(book, "social.png") });
await browser.close();
const index = join(book, "index.html");
const text = readFileSync(index, "utf8");
if (!text.includes("og:image")) writeFileSync(index, text.replace("<link rel=", '<meta property="og:image" content="social.png">\n<link rel='));
