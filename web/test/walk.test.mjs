// The page that `vitrine serve` gives at /explain, in a real browser: what a reader changes is computed by the server, the numbers are
// those of the commands on the page, and nothing else is asked. VITRINE_PROGRAM names the program.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, openAddress } from "./browser.mjs";
import { graveFaults, tooWide } from "./checks.mjs";
import { bars, experiments, near, offered, quiet, sameBars, trained, trial } from "./live-panel.mjs";
import { serve } from "./server.mjs";

const program = process.env["VITRINE_PROGRAM"];
const golden = resolve(dirname(fileURLToPath(import.meta.url)), "../../tests/golden");
const folder = mkdtempSync(join(tmpdir(), "vitrine-walk-"));

/** @type {import("playwright-core").Browser} */
let browser;
/** @type {import("node:child_process").ChildProcess[]} */
let servers = [];
before(async () => {
  if (program === undefined) return;
  mkdirSync(join(folder, "bin"));
  symlinkSync(resolve(program), join(folder, "bin/vitrine"));
  browser = await launch();
});
afterEach(async () => {
  for (const context of browser?.contexts() ?? []) await context.close();
  for (const server of servers) server.kill("SIGKILL");
  servers = [];
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/** Starts a server and returns its address. @param {string[]} args @returns {Promise<string>} */
async function start(...args) {
  const { url, server } = await serve(program ?? "", args, folder);
  servers.push(server);
  return url;
}

/** Opens the page and notes what it asks. @param {string} url @param {string} [query] */
async function openWalk(url, query = "") {
  /** @type {string[]} */
  const asked = [];
  const opened = await openAddress(browser, `${url}explain${query}`, (to) => {
    asked.push(to);
    return to.startsWith(url);
  });
  return { ...opened, asked };
}

/** @param {import("playwright-core").Page} page */
const ready = (page) => page.locator(".dock-next li").first().waitFor();

/** Runs a command line as a reader would, in the folder with the recipe. @param {string} line */
const run = (line) => execFileSync("sh", ["-c", line], { cwd: folder, encoding: "utf8", env: { ...process.env, PATH: `${join(folder, "bin")}:${process.env["PATH"]}` }, stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });

describe("the walk-through of a server", { skip: program === undefined && "VITRINE_PROGRAM is not set" }, () => {
  test("opens from the chat page, asks its own server alone, and every part works", async () => {
    const url = await start("--compute", "f32");
    const { page, faults } = await openAddress(browser, url, (to) => to.startsWith(url));
    await page.getByRole("link", { name: "A walk through this model" }).click();
    await page.waitForURL(`${url}explain`);
    await ready(page);
    await page.getByRole("button", { name: "Draw the steps that run the model backward" }).click();
    await page.locator(".experiment[data-experiment=train]").waitFor();
    for (const name of experiments) {
      await trial(page, name);
      assert.equal(await tooWide(page), 0, name);
      // The page around the experiments stays the same.
      assert.deepEqual(await graveFaults(page, false, name === "next" ? {} : { within: `[data-experiment=${name}]` }), [], name);
    }
    assert.deepEqual(faults, []);
  });

  for (const [name, args] of /** @type {const} */ ([["in f32", ["--compute", "f32"]], ["as it is", ["--exact"]], ["quantized", ["--compute", "f32", "--model", join(folder, "small.gguf")]]]))
    test(`numbers are those of the program, ${name}`, async () => {
      if (name === "quantized") run("vitrine convert \"$0\" small.gguf --dtype q8_0".replace("$0", resolve(golden, "../../models/tales9m")));
      const url = await start(...args);
      const { page, faults, asked } = await openWalk(url, "?prompt=The%20king%20sat%20on");
      await ready(page);
      await page.locator(".dock textarea").fill("Hansel and Gretel, Hansel and");
      await page.locator("h1", { hasText: "Hansel and Gretel" }).waitFor();
      const next = await trial(page, "next");
      const [predict = "", generate = ""] = await offered(next);
      sameBars(await bars(next), JSON.parse(run(`${predict} --json --top 64`)).predictions[0].top, predict);

      const off = await trial(page, "off");
      await page.locator("[data-part='head 1.3']").click();
      await page.locator(".dock-changes").waitFor();
      await quiet(page);
      const [recipe = "", intervene = ""] = await offered(off);
      writeFileSync(join(folder, "recipe.yaml"), recipe);
      const report = JSON.parse(run(`${intervene} --json --top 100`));
      sameBars((await bars(off)).filter((one) => one.probability > 0), report.after[0].top, recipe);
      assert.ok(Math.abs(report.before[0].top[0].prob - report.after[0].top[0].prob) > 0.05, "the head does nothing");

      await trial(page, "next");
      await next.getByLabel("Seed").fill("11");
      await quiet(page);
      const before = await page.locator(".dock textarea").inputValue();
      const [, , edited = ""] = await offered(next);
      assert.match(edited, /--edits recipe\.yaml/);
      assert.notEqual(edited, generate);
      await page.getByRole("button", { name: "Continue 20 tokens" }).click();
      await page.waitForFunction((text) => /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea")).value.length > text.length, before);
      assert.equal(await page.locator(".dock textarea").inputValue(), before + JSON.parse(run(`${edited} --json`)).text);
      assert.deepEqual(faults, []);
      assert.deepEqual(asked.filter((to) => to !== `${url}explain?prompt=The%20king%20sat%20on` && !to.startsWith(`${url}v1/live`) && !to.startsWith("data:")), []);
    });

  test("a step of training leaves the served model as it was", async () => {
    const url = await start();
    const { page, faults } = await openWalk(url);
    await ready(page);
    await page.getByRole("button", { name: "Draw the steps that run the model backward" }).click();
    const [loss, train] = await trained(page);
    near(loss, JSON.parse(run(`${train} --json`)).loss_after, "the loss", 1e-3);
    const part = await trial(page, "next");
    const [predict = ""] = await offered(part);
    sameBars(await bars(part), JSON.parse(run(`${predict} --json --top 64`)).predictions[0].top, "behind the step");
    assert.deepEqual(faults, []);
  });

  test("a key is asked for, and a wrong one again", async () => {
    const url = await start("--api-key", "open-sesame");
    const { page } = await openWalk(url);
    await page.locator("input[name=key]").fill("wrong");
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.getByRole("alert").waitFor();
    await page.locator("input[name=key]").fill("open-sesame");
    await page.getByRole("button", { name: "Use this key" }).click();
    await ready(page);
    assert.equal(await page.locator(".dock textarea").inputValue(), "Once upon a time there was a king");
  });

  test("a model without a tokenizer goes by ids", async () => {
    const url = await start("--model", join(golden, "models/classic_post/model"));
    const { page, faults } = await openWalk(url);
    await ready(page);
    await page.locator(".dock textarea").fill("5, 3, 7, 9");
    const part = await trial(page, "next");
    const [predict = ""] = await offered(part);
    assert.match(predict, /--tokens 5,3,7,9/);
    sameBars(await bars(part), JSON.parse(run(`${predict} --json --top 64`)).predictions[0].top, predict);
    assert.deepEqual(faults, []);
  });

  test("what the server refuses is said, and a server that has ended", async () => {
    const url = await start();
    const { page } = await openWalk(url);
    await ready(page);
    await page.locator(".dock textarea").fill("word ".repeat(1100));
    await page.locator(".dock-trouble").waitFor();
    assert.match((await page.locator(".dock-trouble").textContent()) ?? "", /1024|context/);
    for (const server of servers) server.kill("SIGKILL");
    await page.locator(".dock textarea").fill("The king");
    await page.locator(".dock-trouble", { hasText: "does not answer" }).waitFor();
  });
});
