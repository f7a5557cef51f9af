// Screenshots to look at: every step of a page on a desktop and a phone, light and dark, into out/shots.
// The folder keeps what earlier calls wrote under other names.
//   node test/shots.mjs [PAGE.html | NAME …]      NAME: of a made-up document; without arguments all of them
// SHOTS="desktop light" keeps to one kind.

import { mkdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, open, settle } from "./browser.mjs";
import { documents, writePage } from "./fixture.mjs";

const out = join(dirname(fileURLToPath(import.meta.url)), "..", "out", "shots");
mkdirSync(out, { recursive: true });
const names = /** @type {(keyof typeof documents)[]} */ (Object.keys(documents));
const pages = process.argv.length > 2 ? process.argv.slice(2).map((path) => names.find((name) => name === path) ?? path).map((path) => (path in documents ? writePage(/** @type {keyof typeof documents} */ (path)) : resolve(path))) : names.map(writePage);
const sizes = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
const browser = await launch();
for (const path of pages)
  for (const [size, box] of Object.entries(sizes))
    for (const dark of [false, true]) {
      if (process.env["SHOTS"] !== undefined && !`${size} ${dark ? "dark" : "light"}`.includes(process.env["SHOTS"])) continue;
      const { page, faults } = await open(browser, path, { ...box, dark });
      await settle(page);
      await page.screenshot({ path: join(out, `${basename(path, ".html")}-${size}-${dark ? "dark" : "light"}-top.png`) });
      for (const part of await page.locator("header.opening, main > section, footer").all()) {
        const id = (await part.getAttribute("id")) ?? (await part.evaluate((e) => e.tagName.toLowerCase()));
        await part.screenshot({ path: join(out, `${basename(path, ".html")}-${size}-${dark ? "dark" : "light"}-${id}.png`) });
      }
      const across = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (across > 0) console.log(`${basename(path)} ${size}: ${across} pixels wider than the window`);
      for (const fault of faults) console.log(`${basename(path)} ${size}: ${fault}`);
      await page.context().close();
    }
await browser.close();
