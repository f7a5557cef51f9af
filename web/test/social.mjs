// The picture that goes with a link to a gallery (scripts/make_gallery.sh): the opening of the page that index.html names first.
//   node social.mjs GALLERY     writes GALLERY/social.png, 1200 by 630 pixels

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { launch } from "./browser.mjs";
import { drawn, still } from "./wait.mjs";

const gallery = resolve(process.argv[2] ?? "");
if (!existsSync(join(gallery, "index.html"))) throw new Error("usage: node social.mjs GALLERY");
const first = /<li><a href="([^"]+)"/.exec(readFileSync(join(gallery, "index.html"), "utf8"))?.[1] ?? "index.html";
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1200, height: 630 }, colorScheme: "light" });
await page.goto(`file://${join(gallery, first)}`);
await page.waitForSelector("#vitrine[data-ready=true]");
// What belongs to the reader's side of the page is left out; the opening stands in the middle.
await page.addStyleTag({ content: ".theme, .rail, .bar-top, .contents, .dock, .skip { display: none !important } body:has(.rail) { padding-left: 0 !important } .opening { padding-top: 2.2rem !important }" });
await drawn(page);
await still(page);
await page.screenshot({ path: join(gallery, "social.png") });
await browser.close();
