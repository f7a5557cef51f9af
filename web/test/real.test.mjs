// The pages that VITRINE_PAGES names, separated by ":" (of `vitrine explain`), in a real browser.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { after, before, test } from "node:test";
import { launch } from "./browser.mjs";
import { everyPage } from "./every-page.mjs";
import { longPage } from "./long-page.mjs";

const real = (process.env["VITRINE_PAGES"] ?? "").split(":").filter((path) => path !== "").map((path) => resolve(path));

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  if (real.length > 0) browser = await launch();
});
after(() => browser?.close());

if (real.length === 0) test("pages of the program", { skip: "VITRINE_PAGES is not set" });
// Words take their places by the window's size, colors follow the theme: two looks show both of each.
for (const path of real) everyPage(() => browser, path, { bothThemes: false, paper: !path.includes("long") });
// A long prompt has its attention in tiles.
for (const path of real.filter((one) => readFileSync(one, "utf8").includes('"level":"tiles"'))) longPage(() => browser, path);
