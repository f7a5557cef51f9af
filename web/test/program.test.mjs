// What the page tells a reader to type works: every command and recipe that a click offers is run with the program that made
// the page. VITRINE_PROGRAM names it; without it there is nothing to run, and the tests say that they were skipped.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, open, settle } from "./browser.mjs";
import { show, tip } from "./checks.mjs";

const program = process.env["VITRINE_PROGRAM"];
const golden = resolve(dirname(fileURLToPath(import.meta.url)), "../../tests/golden/models");
const prompts = {
  "the shipped model": ["Once upon a time there was a little girl who"],
  "GPT-2, a prompt with quotes": ["It's \"so\" $HOME", "--model", join(golden, "gpt2_a/model")],
  "a text that begins with a dash, without BOS": ["--no-special", "--", "- said the king"],
  "GPT-2 with an adapter": ["The quick brown fox", "--model", join(golden, "gpt2_a/model"), "--adapter", join(golden, "../lora/gpt2_a/adapter")],
  "a classic decoder, ids": ["--tokens", "5,3,7,9,11,2", "--model", join(golden, "classic_post/model")],
};

const folder = mkdtempSync(join(tmpdir(), "vitrine-page-"));
/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  if (program === undefined) return;
  mkdirSync(join(folder, "bin"));
  symlinkSync(resolve(program), join(folder, "bin/vitrine"));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/** Runs a command line as a reader would, in the folder with the recipe. @param {string} line */
const run = (line) => execFileSync("sh", ["-c", line], { cwd: folder, encoding: "utf8", env: { ...process.env, PATH: `${join(folder, "bin")}:${process.env["PATH"]}` }, stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });

/** A tensor of f32 from a safetensors file. @param {string} path @param {string} name */
function tensor(path, name) {
  const file = readFileSync(path);
  const length = Number(file.readBigUInt64LE(0));
  const { dtype, shape, data_offsets } = JSON.parse(file.subarray(8, 8 + length).toString())[name];
  assert.equal(dtype, "F32");
  const [begin, end] = data_offsets;
  return { shape, values: new Float32Array(file.buffer.slice(file.byteOffset + 8 + length + begin, file.byteOffset + 8 + length + end)) };
}

/** Equal, with numbers to 1e-5. @param {any} one @param {any} two @param {string} where */
function assertClose(one, two, where) {
  if (typeof one === "number" && typeof two === "number") return assert.ok(Math.abs(one - two) <= 1e-5 * (1 + Math.abs(two)), `${where}: ${one} and ${two}`);
  if (typeof one !== "object" || one === null || two === null) return assert.equal(one, two, where);
  assert.deepEqual(Object.keys(one), Object.keys(two), where);
  for (const key of Object.keys(one)) assertClose(one[key], two[key], `${where}.${key}`);
}

/** Opens each picture's commands by keyboard: the texts to copy, by the figure's name. @param {import("playwright-core").Page} page */
async function offers(page) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  for (const place of await page.locator("figure[data-picture] [role=application]").all()) {
    const name = (await place.evaluate((e) => e.closest("figure")?.getAttribute("data-picture"))) ?? "";
    await show(place);
    await place.focus();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    const box = page.locator(`figure[data-picture="${name}"] .reproduce`);
    if ((await box.count()) === 0) continue;
    found.set(`${name} ${found.size}`, await box.locator(".copyable code").allTextContents());
    await page.keyboard.press("Escape");
    assert.equal(await box.count(), 0, `${name} stays open`);
  }
  return found;
}

for (const [what, args] of Object.entries(prompts))
  describe(what, { skip: program === undefined && "VITRINE_PROGRAM is not set" }, () => {
    test("commands and recipes run, and their numbers are the page's", async () => {
      const path = join(folder, "page.html");
      execFileSync(join(folder, "bin/vitrine"), ["explain", "--out", path, ...args], { stdio: "pipe" });
      const { page, faults } = await open(browser, path);
      await settle(page);
      /** @type {import("../src/data.ts").Vitrine} */
      const shown = await page.evaluate(() => /** @type {any} */ (window.vitrine));
      const next = shown.pictures["next-tokens"];
      assert.ok(next?.available);

      const made = await offers(page);
      const names = [...made.keys()].map((key) => key.split(" ")[0]);
      for (const name of ["update-scale", "residual-scale", "norm-statistics", "attention", "logit-lens", "logit-attribution", "gradient-norms", "gradient-hooks"])
        if (/** @type {any} */ (shown.pictures)[name].available) assert.ok(names.includes(name), `${name} offers nothing to reproduce`);
      for (const [name, codes] of made) {
        const [trace = "", recipe = "", intervene = ""] = codes;
        assert.match(trace, /^vitrine trace /, name);
        run(trace);
        if (recipe === "") continue;
        writeFileSync(join(folder, "recipe.yaml"), recipe);
        const report = JSON.parse(run(`${intervene} --json`));
        const last = report.before.find((/** @type {any} */ at) => at.position === shown.tokens.length - 1) ?? report.before.at(-1);
        assert.equal(last.top[0].token, next.ids[last.position]?.[0], `${name}: the run before the change is the page's run`);
        assert.ok(report.kl.at(-1) > 0 || recipe.includes("positions: "), `${name}: the recipe changes nothing`);
      }
      assert.deepEqual(faults, []);
      await page.context().close();
    });

    test("the weight in the note of a cell is the traced one", async () => {
      const { page } = await open(browser, join(folder, "page.html"));
      await settle(page);
      const n = await page.evaluate(() => /** @type {any} */ (window.vitrine).tokens.length);
      const grid = page.locator(".enlarged-grid .heat-area");
      await show(grid);
      const area = await grid.boundingBox();
      assert.ok(area !== null);
      const [target, source] = [n - 2, 1];
      await page.mouse.move(area.x + ((source + 0.5) * area.width) / n, area.y + ((target + 0.5) * area.height) / n);
      const said = /weight ([\d.×⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)\nlayer (\d+), head (\d+)/.exec(await tip(page));
      assert.ok(said !== null, await tip(page));
      await page.mouse.down();
      await page.mouse.up();
      run((await page.locator(".reproduce .copyable code").first().textContent()) ?? "");
      const { shape, values } = tensor(join(folder, "values.safetensors"), `blocks.${said[2]}.attn.hook_pattern`);
      const traced = values[(Number(said[3]) * shape[1] + target) * shape[2] + source] ?? NaN;
      const weight = Number(said[1]?.replace("×10", "e").replace("⁻", "-").replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (c) => String("⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c))));
      // The note has four digits.
      assert.ok(Math.abs(weight - traced) <= 0.5 / 65535 + 0.5e-3 * traced + 1e-6, `${weight} on the page, ${traced} traced`);
      await page.context().close();
    });

    test("the length in the note of a gradient's cell is that of the traced gradient", async () => {
      const { page } = await open(browser, join(folder, "page.html"));
      await settle(page);
      const figure = page.locator('figure[data-picture="gradient-hooks"]');
      await figure.getByText("attn.hook_z", { exact: true }).click();
      const grid = figure.locator(".heat-area");
      await show(grid);
      await grid.focus();
      for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
      const said = /^(blocks\.1\.attn\.hook_z)\nat .*position 1\)\nlength of the gradient (\S+)/.exec(await page.locator("#tip").evaluate((e) => [...e.children].map((line) => line.textContent).join("\n")));
      assert.ok(said !== null, await tip(page));
      const codes = await figure.locator(".reproduce .copyable code").allTextContents();
      assert.equal(codes.length, 1, "a gradient has no recipe");
      run(codes[0] ?? "");
      const { shape, values } = tensor(join(folder, "values.safetensors"), `grad.${said[1]}`);
      const width = shape.slice(1).reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
      const traced = Math.hypot(...values.subarray(width, 2 * width));
      const length = Number(said[2]?.replace("×10", "e").replace("⁻", "-").replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (c) => String("⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c))));
      assert.ok(traced > 0 && Math.abs(length - traced) <= 6e-4 * traced, `${length} on the page, ${traced} traced`);
      await page.context().close();
    });

    test("the gradients of a picture alone are the page's", async () => {
      const { page } = await open(browser, join(folder, "page.html"));
      await settle(page);
      for (const name of ["gradient-norms", "gradient-hooks", "input-attribution"]) {
        const figure = page.locator(`figure[data-picture="${name}"]`);
        await figure.getByText("As a file").click();
        await figure.locator(".copyable code").nth(1).waitFor();
        const [, json = ""] = await figure.locator(".copyable code").allTextContents();
        assert.deepEqual(JSON.parse(run(json)).pictures[name], await page.evaluate((n) => /** @type {any} */ (window.vitrine).pictures[n], name), name);
      }
      await page.context().close();
    });

    test("a picture's own command gives the page's data, and its drawing", async () => {
      const { page } = await open(browser, join(folder, "page.html"));
      await settle(page);
      const figure = page.locator('figure[data-picture="next-tokens"]');
      await figure.getByText("As a file").click();
      await figure.locator(".copyable code").nth(1).waitFor(); // the lines are drawn when the part has opened
      const [svg = "", json = ""] = await figure.locator(".copyable code").allTextContents();
      const alone = JSON.parse(run(json));
      // The page listens to more than the picture alone, and what is listened to is computed step by step: 1e-5 between them.
      assertClose(alone.pictures["next-tokens"], await page.evaluate(() => /** @type {any} */ (window.vitrine).pictures["next-tokens"]), "next-tokens");
      run(svg);
      assert.match(readFileSync(join(folder, "next-tokens.svg"), "utf8"), /^(<\?xml[^>]*>\s*)?<svg /);
      await page.context().close();
    });
  });
