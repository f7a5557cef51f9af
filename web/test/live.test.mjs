// The live page in a real browser, from the file system and without a network: it recomputes what a reader changes, and its
// numbers are the program's. VITRINE_PROGRAM names the program, which makes the page and runs every command that the page
// shows; without it the tests say that they were skipped. VITRINE_LIVE_PAGE: a page made before (live-page.mjs).

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { launch, open, openAddress } from "./browser.mjs";
import { graveFaults, tooWide } from "./checks.mjs";
import { writePage } from "./fixture.mjs";
import { bars, drawnOf, near, offered, quiet, sameBars, trained, unfold } from "./live-panel.mjs";

const program = process.env["VITRINE_PROGRAM"];
const prompt = "Once upon a time there was a king who";
const folder = mkdtempSync(join(tmpdir(), "vitrine-live-"));
const path = join(folder, "page.html");
const looks = /** @type {const} */ ([[1280, false], [720, true], [390, false], [390, true]]);
const parts = ["Next token", "Switch off", "Patch", "Train one step", "A row of attention", "The stream"];

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
  if (program === undefined) return;
  mkdirSync(join(folder, "bin"));
  symlinkSync(resolve(program), join(folder, "bin/vitrine"));
  const made = process.env["VITRINE_LIVE_PAGE"];
  if (made === undefined) execFileSync(program, ["explain", "--live", "--no-gradients", "--out", path, prompt], { stdio: "pipe" });
  else copyFileSync(made, path);
  // The model that the page's commands name, as the page would save it.
  const element = /<script id="vitrine-weights" type="text\/plain" data-name="([^"]+)">([^<]+)</.exec(readFileSync(path, "utf8"));
  assert.ok(element !== null, "the page holds no weights");
  const bytes = Buffer.from(element[2] ?? "", "base64");
  writeFileSync(join(folder, element[1] ?? ""), bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes) : bytes);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Runs a command line as a reader would, in the folder with the recipe and the model. @param {string} line */
const run = (line) => execFileSync("sh", ["-c", line], { cwd: folder, encoding: "utf8", env: { ...process.env, PATH: `${join(folder, "bin")}:${process.env["PATH"]}` }, stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });

/** Opens the live page and waits for the first answer. @param {number} [width] @param {boolean} [dark] */
async function openLive(width = 1280, dark = false) {
  const opened = await openAddress(browser, `file://${path}`, (url) => url === `file://${path}` || url.startsWith("blob:null/"), { width, dark, height: 850 });
  await opened.page.context().setOffline(true);
  await opened.page.locator(".dock-next li").first().waitFor();
  return opened;
}

/** Numbers that look random and are the same at every run. */
function random() {
  let state = 2024;
  return (/** @type {number} */ n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

test("a page without engine and weights has no panel", async () => {
  const { page, faults } = await open(browser, writePage("short"));
  assert.equal(await page.locator(".dock").count(), 0);
  assert.deepEqual(faults, []);
  await page.context().close();
});

describe("the live page", { skip: program === undefined && "VITRINE_PROGRAM is not set" }, () => {
  for (const [width, dark] of looks)
    test(`${width} pixels, ${dark ? "dark" : "light"}: every part without a fault, accessible`, async (t) => {
      const from = performance.now();
      const { page, faults } = await openLive(width, dark);
      t.diagnostic(`opened in ${((performance.now() - from) / 1000).toFixed(2)} s`);
      for (const part of parts) {
        await unfold(page, part);
        await quiet(page);
        assert.equal(await tooWide(page), 0, part);
        // The page around the panel stays the same.
        assert.deepEqual(await graveFaults(page, false, part === "Next token" ? {} : { within: ".dock" }), [], part);
      }
      assert.deepEqual(faults, []);
      await page.context().close();
    });

  test("typing changes the answer at once, and then the pictures", async () => {
    const { page, faults } = await openLive();
    assert.match((await page.locator("footer pre code").textContent()) ?? "", /^vitrine explain --live --out page\.html /);
    await page.locator(".dock textarea").fill("");
    await page.locator(".dock textarea").pressSequentially("The old queen sat on");
    await unfold(page, "Next token");
    await quiet(page);
    const [command = ""] = await offered(page);
    const report = JSON.parse(run(`${command.replace("vitrine predict", "vitrine predict --json --top 64")}`));
    assert.equal(report.text, "The old queen sat on");
    sameBars(await bars(page), report.predictions[0].top, "typed");
    await page.locator("h1", { hasText: "The old queen sat on" }).waitFor();
    const shown = await page.evaluate(() => /** @type {any} */ (window.vitrine));
    assert.deepEqual(shown.prompt.ids, report.tokens);
    assert.equal(await page.locator("figure[data-picture=next-tokens]").count(), 1);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a token that is clicked becomes part of the prompt, and the text goes on as the program's", async () => {
    const { page, faults } = await openLive();
    const had = await page.locator(".dock-next .live-token").first().textContent();
    await page.locator(".dock-next .live-token").first().click();
    assert.equal(await page.locator(".dock textarea").inputValue(), prompt + had?.replace("␣", " "));
    await unfold(page, "Next token");
    await quiet(page);
    await page.getByLabel("Seed").fill("7");
    await page.getByLabel("Temperature").fill("0.8");
    await page.getByLabel("Top-k").fill("12");
    await page.getByLabel("Top-p").fill("0.9");
    await quiet(page);
    const [, command = ""] = await offered(page);
    assert.match(command, /--temperature 0.8 --top-k 12 --top-p 0.9 --seed 7/);
    const before = await page.locator(".dock textarea").inputValue();
    await page.getByRole("button", { name: "Continue 20 tokens" }).click();
    await page.waitForFunction((text) => /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea")).value.length > text.length, before);
    assert.equal(await page.locator(".dock textarea").inputValue(), before + JSON.parse(run(`${command} --json`)).text);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("temperature, top-k and top-p change what is kept as their rules say", async () => {
    const { page, faults } = await openLive();
    await unfold(page, "Next token");
    for (const [temperature, topK, topP] of [[1, 0, 1], [0.5, 0, 1], [1, 3, 1], [1, 0, 0.7], [1.5, 10, 0.8]]) {
      await page.getByLabel("Temperature").fill(String(temperature));
      await page.getByLabel("Top-k").fill(String(topK));
      await page.getByLabel("Top-p").fill(String(topP));
      await quiet(page);
      const shown = await bars(page);
      const [command = ""] = await offered(page);
      // The whole distribution from the program, and the rules in their order.
      const { top } = JSON.parse(run(`${command} --json --top 6144`)).predictions[0];
      const drawn = drawnOf(top, temperature ?? 1, topK ?? 0, topP ?? 1);
      const told = new Map(top.map((/** @type {any} */ one) => [one.token, one.kept ?? one.prob]));
      const what = `temperature ${temperature}, top-k ${topK}, top-p ${topP}`;
      for (const one of shown) near(one.kept, drawn.get(one.token) ?? 0, `${what}: token ${one.token}`);
      for (const one of shown) near(one.kept, told.get(one.token) ?? NaN, `${what}: token ${one.token}, in the command`);
    }
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("thirty random states: prompt, changes, sampling, seed: the numbers and the text are those of the recipe and the commands", async () => {
    const { page, faults } = await openLive();
    const draw = random();
    const prompts = ["The king sat on", "Hansel and Gretel, Hansel and", "It's \"so\" $HOME: a test", prompt, "In the forest there stood a house, and in the house lived", "- said the wolf", "\n\nOnce"];
    const endings = ["", " the", " and then", " little girl"];
    let changed = 0, continued = 0;
    for (let round = 0; round < 30; ++round) {
      await unfold(page, "Switch off");
      // Three states of each prompt: with another one all pictures are drawn again, which takes its time.
      if (round % 3 === 0) await page.locator(".dock textarea").fill(`${prompts[(round / 3) % prompts.length]}${endings[draw(endings.length)]}`);
      await quiet(page);
      if (round % 7 !== 5) {  // else the model as it is
        const all = await page.locator(".parts .part").all();
        for (let i = 0, n = 1 + draw(3); i < n; ++i) await all[draw(all.length)]?.click();
        if (draw(3) === 0) await page.locator(".positions .part").nth(1 + draw(3)).click();
        if (draw(3) === 0) await page.locator(".dock select").selectOption(String(draw(3)));
      }
      if (round === 4) {
        await page.getByText("Steer: add a direction").click();
        await page.getByRole("button", { name: "Try: The queen" }).click();
      }
      await unfold(page, "Next token");
      const [temperature, topK, topP, seed] = [(1 + draw(6)) / 4, draw(3) * 7, draw(2) === 0 ? 1 : (10 + draw(9)) / 20, draw(1000)];
      for (const [label, value] of /** @type {const} */ ([["Temperature", temperature], ["Top-k", topK], ["Top-p", topP]])) await page.locator(".dock").getByRole("slider", { name: label }).fill(String(value));
      for (const [label, value] of /** @type {const} */ ([["Tokens", 6], ["Seed", seed]])) await page.locator(".dock").getByRole("spinbutton", { name: label }).fill(String(value));
      await quiet(page);
      // An even number of clicks on one part changes nothing.
      const edited = (await page.locator(".dock-changes").count()) > 0;
      const texts = await offered(page);
      const [recipe = "", command = ""] = edited ? texts : ["", ...texts];
      const generate = texts.at(-1) ?? "";
      writeFileSync(join(folder, "recipe.yaml"), recipe);
      const report = JSON.parse(run(`${command.replace("vitrine predict", "vitrine predict --top 6144 --json").replace("recipe.yaml", "recipe.yaml --top 6144 --json")}`));
      const { top } = edited ? report.after[0] : report.predictions[0];
      const shown = await bars(page);
      const what = `round ${round}, ${generate}\n${recipe}`;
      sameBars(shown.filter((one) => one.probability > 0), top, what);
      const drawn = drawnOf(top, temperature, topK, topP);
      for (const one of shown) near(one.kept, drawn.get(one.token) ?? 0, `${what}, drawn, token ${one.token}`);
      const greatest = await page.locator(".dock-next bdi").first().textContent();
      assert.equal(greatest, top[0].piece.replaceAll("▁", "␣"), "the most likely token");
      if (edited) ++changed;
      if (round % 3 === 2) {
        const before = await page.locator(".dock textarea").inputValue();
        await page.getByRole("button", { name: "Continue 6 tokens" }).click();
        await page.waitForFunction((text) => /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea")).value.length > text.length, before);
        assert.equal(await page.locator(".dock textarea").inputValue(), before + JSON.parse(run(generate.replace("vitrine generate", "vitrine generate --json"))).text, what);
        ++continued;
      }
      if (edited) await page.locator(".dock-changes").click();
    }
    assert.ok(changed >= 18 && continued === 10, `${changed} changed, ${continued} continued`);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a head that is switched off changes the answer, by keyboard alone", async () => {
    const { page, faults } = await openLive();
    await unfold(page, "Switch off");
    const before = await bars(page);
    await page.locator("[data-cell='0 0']").focus();
    for (const key of ["ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"]) await page.keyboard.press(key);
    assert.equal(await page.locator("[data-part='head 1.3']").getAttribute("aria-pressed"), "true");
    await page.locator(".dock-changes").waitFor();
    await quiet(page);
    const after = await bars(page);
    assert.ok(Math.abs((after[0]?.probability ?? 0) - (before[0]?.probability ?? 0)) > 0.01, "the answer stays the same");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".dock-inside").count(), 0);
    await page.locator(".dock-changes").click();
    await page.locator(".dock-changes").waitFor({ state: "detached" });
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("patching and a step of training give the program's numbers", async () => {
    const { page, faults } = await openLive();
    await unfold(page, "Patch");
    await page.getByLabel("Second prompt").fill(prompt.replace("king", "queen"));
    await page.getByText("heads", { exact: true }).click();
    await page.getByRole("button", { name: "Patch", exact: true }).click();
    await page.locator(".dock .heat-numbers text").first().waitFor();
    const shown = (await page.locator(".dock .heat-numbers text").allTextContents()).map((text) => Number(text.replace("−", "-")));
    const [recipe = "", command = ""] = await offered(page);
    writeFileSync(join(folder, "recipe.yaml"), recipe);
    const { grid, metric } = JSON.parse(run(`${command} --json`));
    grid.values.flat().forEach((/** @type {number} */ value, /** @type {number} */ i) => assert.ok(Math.abs((shown[i] ?? NaN) - (value - metric.corrupt) / (metric.clean - metric.corrupt)) <= 0.0051, `cell ${i}`));

    const [loss, train] = await trained(page);
    const step = JSON.parse(run(`${train} --json`));
    assert.ok(Math.abs(loss - step.loss_after) <= 1e-3 * step.loss_after, `${loss} on the page, ${step.loss_after} in the program`);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a row of attention adds up, step by step, and its weights are the traced ones", async () => {
    const { page, faults } = await openLive();
    await unfold(page, "A row of attention");
    await page.locator(".row-steps").waitFor();
    while (await page.getByRole("button", { name: "Next step" }).isEnabled()) await page.getByRole("button", { name: "Next step" }).click();
    const rows = await page.locator(".row-steps tbody tr").evaluateAll((all) => all.map((row) => [...row.querySelectorAll("td[data-value]")].map((cell) => Number(/** @type {HTMLElement} */ (cell).dataset["value"]))));
    const weights = rows.map((row) => row.at(-2) ?? NaN);
    near(weights.reduce((a, b) => a + b, 0), 1, "the sum of the weights");
    // Computed on the page from q and k, and given by the engine as scores.
    for (const row of rows) near((row[2] ?? NaN) / Math.max(1, Math.abs(row[3] ?? 0)), (row[3] ?? NaN) / Math.max(1, Math.abs(row[3] ?? 0)), "capped by the page, and the run's score");
    const rest = /differ by ([^)]+)\)/.exec((await page.locator(".live-says").textContent()) ?? "")?.[1] ?? "";
    assert.ok(rest === "0" || rest.includes("×10⁻"), `z and the sum differ by ${rest}`);
    const [command = ""] = await offered(page);
    run(command);
    const file = readFileSync(join(folder, "values.safetensors"));
    const length = Number(file.readBigUInt64LE(0));
    const head = JSON.parse(file.subarray(8, 8 + length).toString());
    const name = Object.keys(head).find((key) => key.endsWith("hook_pattern")) ?? "";
    const [begin, end] = head[name].data_offsets;
    const traced = new Float32Array(file.buffer.slice(file.byteOffset + 8 + length + begin, file.byteOffset + 8 + length + end));
    weights.forEach((weight, j) => near(weight, traced[j] ?? NaN, `weight of token ${j}`));
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("the stream and the units give the numbers of their commands", async () => {
    const { page, faults } = await openLive();
    await unfold(page, "The stream");
    await page.locator(".unit-list tbody tr").first().waitFor();
    await page.locator(".dock").getByRole("slider", { name: "of layer" }).fill("4");
    await page.locator(".dock").getByRole("slider", { name: "Position" }).fill("3");
    await quiet(page);
    const [trace = "", lens = "", units = ""] = await offered(page);
    assert.match(units, /--layer 4 --position 3 /);
    const { units: theirs } = JSON.parse(run(`${units} --json`));
    const rows = await page.locator(".unit-list tbody tr").evaluateAll((all) => all.map((row) => ({
      unit: Number(/** @type {HTMLElement} */ (row).dataset["unit"]),
      value: Number(row.querySelector("[data-value]")?.getAttribute("data-value")),
      written: [...row.querySelectorAll("[data-logit]")].map((one) => [Number(one.getAttribute("data-token")), Number(one.getAttribute("data-logit"))]),
    })));
    assert.equal(rows.length, 8);
    rows.forEach((row, i) => {
      assert.equal(row.unit, theirs[i].unit);
      near(row.value, theirs[i].value, `unit ${row.unit}`);
      const list = [...theirs[i].promoted, ...theirs[i].suppressed];
      assert.equal(row.written.length, list.length);
      row.written.forEach(([token = NaN, logit = NaN], k) => {
        near(logit, list[k].logit, `unit ${row.unit}, place ${k}`);
        // Of two tokens that are level, either may come first.
        if (!list.some((/** @type {any} */ other, /** @type {number} */ j) => j !== k && Math.abs(other.logit - list[k].logit) < 2e-4)) assert.equal(token, list[k].token);
      });
    });
    run(trace);
    assert.ok(JSON.parse(run(lens)).pictures["logit-lens"].available);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("what the engine refuses is said, and the page goes on", async () => {
    const { page, faults } = await openLive();
    await page.locator(".dock textarea").fill(`${"word ".repeat(1100)}`);
    await page.locator(".dock-trouble").waitFor();
    assert.match((await page.locator(".dock-trouble").textContent()) ?? "", /1024|context/);
    await page.locator(".dock textarea").fill(prompt);
    await page.locator(".dock-trouble").waitFor({ state: "detached" });
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a page with a spoilt engine says so", async () => {
    const spoilt = join(folder, "spoilt.html");
    writeFileSync(spoilt, readFileSync(path, "utf8").replace(/(<script id="vitrine-engine"[^>]*>)[^<]{40}/, "$1AAAA"));
    const { page } = await openAddress(browser, `file://${spoilt}`, () => true);
    await page.locator(".dock-trouble").waitFor();
    assert.match((await page.locator(".dock-trouble").textContent()) ?? "", /\S/);
    await page.context().close();
  });
});
