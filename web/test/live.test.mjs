// The live page in a real browser, from the file system and without a network: it recomputes what a reader changes, and its
// numbers are the program's. VITRINE_PROGRAM names the program, which makes the page and runs every command that the page
// shows; without it the tests say that they were skipped. VITRINE_LIVE_PAGE: a page made before (live-page.mjs).

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { launch, open, openAddress } from "./browser.mjs";
import { graveFaults, spilt, tooWide } from "./checks.mjs";
import { writePage } from "./fixture.mjs";
import { bars, drawnOf, experiments, near, offered, quiet, sameBars, trained, trial } from "./live-panel.mjs";
import { unpacked } from "./packed.mjs";

const program = process.env["VITRINE_PROGRAM"];
const prompt = "Once upon a time there was a king who";
const folder = mkdtempSync(join(tmpdir(), "vitrine-live-"));
const path = join(folder, "page.html");
const looks = /** @type {const} */ ([[1280, false], [720, true], [390, false], [390, true], [320, false]]);

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
  if (program === undefined) return;
  mkdirSync(join(folder, "bin"));
  symlinkSync(resolve(program), join(folder, "bin/vitrine"));
  const made = process.env["VITRINE_LIVE_PAGE"];
  if (made === undefined) execFileSync(program, ["explain", "--live", "--out", path, prompt], { stdio: "pipe" });
  else copyFileSync(made, path);
  // The model that the page's commands name, as the page would save it.
  const element = /<script id="vitrine-weights" type="text\/plain" data-name="([^"]+)">([^<]+)</.exec(readFileSync(path, "utf8"));
  assert.ok(element !== null, "the page holds no weights");
  const bytes = unpacked(element[2] ?? "");
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
      for (const name of experiments) {
        const part = await trial(page, name);
        assert.equal(await tooWide(page), 0, name);
        assert.deepEqual(await spilt(part), [], name);
        // The page around the experiments stays the same.
        assert.deepEqual(await graveFaults(page, false, name === "next" ? {} : { within: `[data-experiment=${name}]` }), [], name);
      }
      assert.deepEqual(faults, []);
      await page.context().close();
    });

  test("typing changes the answer at once, and then the pictures", async () => {
    const { page, faults } = await openLive();
    assert.match((await page.locator("footer pre code").textContent()) ?? "", /^vitrine explain --live --out page\.html /);
    await page.locator(".dock textarea").fill("");
    await page.locator(".dock textarea").pressSequentially("The old queen sat on");
    const part = await trial(page, "next");
    const [command = ""] = await offered(part);
    const report = JSON.parse(run(`${command.replace("vitrine predict", "vitrine predict --json --top 64")}`));
    assert.equal(report.text, "The old queen sat on");
    sameBars(await bars(part), report.predictions[0].top, "typed");
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
    const part = await trial(page, "next");
    await part.getByLabel("Seed").fill("7");
    await part.getByLabel("Temperature").fill("0.8");
    await part.getByLabel("Top-k").fill("12");
    await part.getByLabel("Top-p").fill("0.9");
    await quiet(page);
    const [, command = ""] = await offered(part);
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
    const part = await trial(page, "next");
    for (const [temperature, topK, topP] of [[1, 0, 1], [0.5, 0, 1], [1, 3, 1], [1, 0, 0.7], [1.5, 10, 0.8]]) {
      await part.getByLabel("Temperature").fill(String(temperature));
      await part.getByLabel("Top-k").fill(String(topK));
      await part.getByLabel("Top-p").fill(String(topP));
      await quiet(page);
      const shown = await bars(part);
      const [command = ""] = await offered(part);
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

  test("a head that is switched off changes the answer, by keyboard alone", async () => {
    const { page, faults } = await openLive();
    const part = await trial(page, "off");
    const before = await bars(part);
    await page.locator("[data-cell='0 0']").focus();
    for (const key of ["ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"]) await page.keyboard.press(key);
    assert.equal(await page.locator("[data-part='head 1.3']").getAttribute("aria-pressed"), "true");
    await page.locator(".dock-changes").waitFor();
    await quiet(page);
    const after = await bars(part);
    assert.ok(Math.abs((after[0]?.probability ?? 0) - (before[0]?.probability ?? 0)) > 0.01, "the answer stays the same");
    await page.locator(".dock-changes").click();
    await page.locator(".dock-changes").waitFor({ state: "detached" });
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("patching and a step of training give the program's numbers", async () => {
    const { page, faults } = await openLive();
    const part = await trial(page, "patch");
    await part.getByLabel("Second prompt").fill(prompt.replace("king", "queen"));
    await part.getByText("heads", { exact: true }).click();
    await part.getByRole("button", { name: "Patch", exact: true }).click();
    await part.locator(".heat-numbers text").first().waitFor();
    const shown = (await part.locator(".heat-numbers text").allTextContents()).map((text) => Number(text.replace("−", "-")));
    const [recipe = "", command = ""] = await offered(part);
    writeFileSync(join(folder, "recipe.yaml"), recipe);
    const { grid, metric } = JSON.parse(run(`${command} --json`));
    grid.values.flat().forEach((/** @type {number} */ value, /** @type {number} */ i) => assert.ok(Math.abs((shown[i] ?? NaN) - (value - metric.corrupt) / (metric.clean - metric.corrupt)) <= 0.0051, `cell ${i}`));

    const [loss, train] = await trained(page);
    const step = JSON.parse(run(`${train} --json`));
    assert.ok(Math.abs(loss - step.loss_after) <= 1e-3 * step.loss_after, `${loss} on the page, ${step.loss_after} in the program`);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a run of training: the pronoun is trained away, all pictures show it, and undoing brings the bits back", async () => {
    const { page, faults } = await openLive();
    const part = await trial(page, "train");
    await part.getByRole("button", { name: "“The king sat on”, then “her”" }).click();
    await page.locator("h1", { hasText: "The king sat on" }).waitFor();
    await quiet(page);
    const weights = () => page.evaluate(() => JSON.stringify(/** @type {any} */ (window.vitrine).pictures));
    const answer = () => page.locator(".dock-next .live-token").first().textContent();
    const [before, pronoun] = [await weights(), await answer()];
    assert.equal(pronoun, "␣his");
    await trial(page, "train");
    await part.getByLabel("Steps").fill("25");
    await part.getByRole("button", { name: "Train 25 steps" }).press("Enter");
    await part.getByRole("button", { name: "Keep the trained model" }).waitFor();
    const [command = ""] = await offered(part);
    assert.match(command, /--steps 25 /);
    const theirs = JSON.parse(run(`${command} --json`));
    const shown = await part.locator(".course-numbers li").allTextContents();
    theirs.followed.forEach((/** @type {any} */ one, /** @type {number} */ i) => {
      const [was = "", is = ""] = [...(shown[i] ?? "").matchAll(/(< )?([\d.]+) %/g)].map(([text]) => text);
      for (const [text, logprob] of /** @type {const} */ ([[was, one.logprobs[0]], [is, one.logprobs.at(-1)]])) near(Number(text.replace(/[<% ]/g, "")), 100 * Math.exp(logprob), one.piece, 0.06);
    });
    assert.equal(await page.locator(".course path.line").count(), 3);
    assert.equal(await weights(), before, "until the reader keeps it, the page's model stays");

    await part.getByRole("button", { name: "Keep the trained model" }).click();
    await page.locator(".dock-changes", { hasText: "Undo 1 change" }).waitFor();
    await quiet(page);
    assert.equal(await answer(), "␣her");
    const place = await part.boundingBox();
    assert.ok(place !== null && place.y < 850 && place.y + place.height > 0, `the reader stays at the experiment: ${JSON.stringify(place)}`);
    assert.notEqual(await weights(), before);
    assert.equal(await page.evaluate(() => /** @type {any} */ (window.vitrine).pictures["next-tokens"].ids.at(-1)[0]), theirs.after[0].token);
    await page.locator(".dock-changes").click();
    await page.locator(".dock-changes").waitFor({ state: "detached" });
    await quiet(page);
    assert.equal(await answer(), pronoun);
    assert.equal(await weights(), before, "the bits are back");
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a run that is stopped keeps the steps that it took; 390 pixels", async () => {
    const { page, faults } = await openLive(390, true);
    const part = await trial(page, "train");
    await part.getByLabel("Should follow").fill(" was");
    await part.getByLabel("Steps").fill("200");
    await part.getByRole("button", { name: "Train 200 steps" }).click();
    await part.locator("progress").waitFor();
    await part.getByRole("button", { name: "Stop" }).click();
    await part.getByRole("button", { name: "Train 200 steps" }).waitFor();
    const [command = ""] = await offered(part);
    const steps = Number(/--steps (\d+)/.exec(command)?.[1] ?? 1);
    assert.ok(steps < 200, command);
    const [, loss = ""] = /to ([\d.]+)/.exec((await part.locator(".live-head").first().textContent()) ?? "") ?? [];
    const theirs = JSON.parse(run(`${command} --json`));
    assert.equal(theirs.losses.length, steps + 1);
    near(Number(loss), theirs.loss_after, command, 1e-3 * theirs.loss_after);
    assert.equal(await tooWide(page), 0);
    assert.deepEqual(await spilt(part), []);
    assert.deepEqual(await graveFaults(page, false, { within: "[data-experiment=train]" }), []);
    await part.getByRole("button", { name: "Undo the training" }).click();
    assert.equal(await part.locator(".course").count(), 0);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a row of attention adds up, step by step, and its weights are the traced ones", async () => {
    const { page, faults } = await openLive();
    const part = await trial(page, "row");
    await part.locator(".row-steps").waitFor();
    while (await page.getByRole("button", { name: "Next step" }).isEnabled()) await page.getByRole("button", { name: "Next step" }).click();
    const rows = await page.locator(".row-steps tbody tr").evaluateAll((all) => all.map((row) => [...row.querySelectorAll("td[data-value]")].map((cell) => Number(/** @type {HTMLElement} */ (cell).dataset["value"]))));
    const weights = rows.map((row) => row.at(-2) ?? NaN);
    near(weights.reduce((a, b) => a + b, 0), 1, "the sum of the weights");
    // Computed on the page from q and k, and given by the engine as scores.
    for (const row of rows) near((row[2] ?? NaN) / Math.max(1, Math.abs(row[3] ?? 0)), (row[3] ?? NaN) / Math.max(1, Math.abs(row[3] ?? 0)), "capped by the page, and the run's score");
    const rest = /differ by ([^)]+)\)/.exec((await page.locator(".live-says").textContent()) ?? "")?.[1] ?? "";
    assert.ok(rest === "0" || rest.includes("×10⁻"), `z and the sum differ by ${rest}`);
    const [command = ""] = await offered(part);
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
    const stream = await trial(page, "stream");
    await stream.getByRole("slider", { name: "Position" }).fill("3");
    await quiet(page);
    const [trace = "", lens = ""] = await offered(stream);
    const part = await trial(page, "units");
    await part.locator(".unit-list tbody tr").first().waitFor();
    await part.getByRole("slider", { name: "Layer" }).fill("4");
    await part.getByRole("slider", { name: "Position" }).fill("3");
    await quiet(page);
    const [units = ""] = await offered(part);
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

  test("before and after a change: an outline and a bar of their own lengths, with a key", async () => {
    const { page, faults } = await openLive();
    const part = await trial(page, "off");
    assert.equal(await part.locator(".ba-key").count(), 0, "nothing is changed yet");
    await part.locator("[data-part='head 1.3']").click();
    await page.locator(".dock-changes").waitFor();
    await quiet(page);
    assert.deepEqual(await part.locator(".ba-key span").allTextContents(), ["before", "after"]);
    const rows = await part.locator(".ba-rows li").evaluateAll((all) => all.map((row) => ({
      said: [...row.querySelectorAll(".ba-figure")].map((one) => one.textContent).join(),
      widths: [".ba-before", ".ba-after"].map((name) => Number.parseFloat(/** @type {HTMLElement} */ (row.querySelector(name))?.style.width ?? "NaN")),
    })));
    assert.ok(rows.length >= 8);
    const largest = Math.max(...rows.flatMap((row) => row.widths));
    assert.equal(largest, 100);
    const written = rows.map((row) => (row.said.match(/[\d.]+(?= %)/g) ?? []).map(Number));
    const most = Math.max(...written.flat());
    for (const [i, row] of rows.entries()) for (const k of [0, 1]) near(row.widths[k] ?? NaN, (100 * (written[i]?.[k] ?? NaN)) / most, `${row.said}, bar ${k}`, 0.2);
    assert.ok(rows.some((row) => Math.abs((row.widths[0] ?? 0) - (row.widths[1] ?? 0)) > 3), "nothing has moved");
    // The dock and the rail say the same, and the dock in the same way.
    const [first = ""] = await page.locator(".dock-next li").evaluateAll((all) => all.map((one) => `${one.querySelector("bdi")?.textContent} ${one.querySelector("b")?.textContent}`));
    assert.ok(((await page.locator(".rail .answer-line").textContent()) ?? "").includes(`→ ${first} was `), first);
    assert.equal(await page.locator(".dock-next .ba-before").count(), await page.locator(".dock-next li").count());
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("pictures of the run are drawn of the changed model, or say that they show the model without the reader's changes", async () => {
    const { page, faults } = await openLive();
    await page.evaluate(() => { for (const fold of document.querySelectorAll(".fold.engineers")) /** @type {HTMLDetailsElement} */ (fold).open = true; });
    await page.locator("figure[data-picture=logit-lens]").waitFor();
    const ofRun = await page.locator("figure:has(.figure-title .made.run)").count();
    assert.ok(ofRun > 10);
    assert.equal(await page.locator(".unchanged").count(), 0);
    const part = await trial(page, "off");
    await part.locator("[data-part='head 1.3']").click();
    await part.locator("[data-part='mlp 2']").click();
    await page.locator(".dock-changes").waitFor();
    await quiet(page);
    assert.equal(await page.locator("figure .unchanged").count(), ofRun);
    const answer = (await page.locator(".dock-next li").first().textContent()) ?? "";
    const figure = page.locator("figure[data-picture=next-tokens]");
    assert.match((await figure.locator(".edited").textContent()) ?? "", /^With your 2 changes/);
    assert.match((await page.locator("figure[data-picture=attention] .edited").textContent()) ?? "", /^With your 2 changes/);
    const shown = await figure.locator(".cell").evaluateAll((all) => all.filter((cell) => cell.getAttribute("data-at")?.startsWith("0 ")).at(-1)?.textContent);
    assert.equal(shown, answer, "the picture and the dock say two things");
    assert.match((await page.locator("figure[data-picture=logit-lens] .unchanged").textContent()) ?? "", /2 changes/);
    await page.locator(".dock-changes").click();
    await page.locator(".unchanged").first().waitFor({ state: "detached" });
    assert.equal(await page.locator(".unchanged").count(), 0);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("patching begins with a second prompt that fits, and says in plain words what does not", async () => {
    const { page, faults } = await openLive();
    const part = await trial(page, "patch");
    const second = part.getByLabel("Second prompt");
    const patch = part.getByRole("button", { name: "Patch", exact: true });
    /** Waits until the page has proposed a second prompt for this one; it would write over one that is typed before. @param {string} own */
    const proposed = (own) => page.waitForFunction((own) => {
      const { value } = /** @type {HTMLInputElement} */ (document.querySelector("[data-experiment=patch] input[type=text]"));
      return ![own, ""].includes(value) && value.startsWith("Once") === own.startsWith("Once");
    }, own);
    for (const [text, expected] of [[prompt, prompt.replace("king", "queen")], ["Hansel and Gretel went into", null]]) {
      if (text !== prompt) await page.locator(".dock textarea").fill(text ?? "");
      await proposed(text ?? "");
      if (expected !== null) assert.equal(await second.inputValue(), expected);
      await quiet(page);
      await patch.click();
      await part.locator(".heat-numbers text").first().waitFor();
      const cells = (await part.locator(".heat-numbers text").allTextContents()).map((cell) => Number(cell.replace("−", "-")));
      assert.ok(cells.length > 20 && cells.every(Number.isFinite), `${text}: ${cells.join(" ")}`);
    }
    await page.locator(".dock textarea").fill(prompt);
    await proposed(prompt);
    await second.fill(prompt);
    await patch.click();
    await part.getByText("Both prompts are the same").waitFor();
    await second.fill(`${prompt} was old`);
    await patch.click();
    await part.getByText("Both prompts need as many tokens").waitFor();
    assert.match((await part.locator("[role=status]").textContent()) ?? "", /The prompt has 10 and the second prompt 12: /);
    assert.doesNotMatch((await part.textContent()) ?? "", /NaN|not a number|recipe\.|corrupt|undefined/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("another prompt leaves every step where it is, and those that run backward are drawn for it once they are in sight", async () => {
    const { page, faults } = await openLive();
    const headings = () => page.locator("main > section > h2").allTextContents();
    const before = await headings();
    assert.ok(before.some((title) => title.includes("way back")));
    await page.locator(".dock textarea").fill("The wolf said to");
    await page.waitForFunction(() => /** @type {any} */ (window.vitrine).prompt.text === "The wolf said to");
    assert.deepEqual(await headings(), before);
    await page.locator("#back-propagation .redraw").waitFor();
    assert.equal(await page.locator("#back-propagation figure").count(), 0, "pictures of the old prompt");
    assert.equal(await page.locator("#lacking [data-picture^=gradient]").count(), 0);
    await page.locator("#back-propagation").evaluate((step) => step.scrollIntoView({ block: "start", behavior: "instant" }));
    await page.locator("#back-propagation figure[data-picture=gradient-norms]").waitFor();
    assert.equal(await page.locator(".redraw").count(), 0);
    const shown = await page.evaluate(() => /** @type {any} */ (window.vitrine));
    assert.equal(shown.prompt.text, "The wolf said to");
    const theirs = JSON.parse(run("vitrine picture gradient-norms --json --compute f32 --model \"$(ls *.gguf)\" 'The wolf said to'"));
    near(shown.pictures["gradient-norms"].loss, theirs.pictures["gradient-norms"].loss, "the loss");
    assert.deepEqual(await headings(), before);
    // A prompt of one token has nothing to learn from; behind it the step is there again.
    await page.locator(".dock textarea").fill("");
    await page.locator("#back-propagation").waitFor({ state: "detached" });
    await page.locator(".dock textarea").fill("The wolf said");
    await page.locator("#back-propagation").waitFor();
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a prompt that ends with a space is told, and mended", async () => {
    const { page, faults } = await openLive();
    assert.equal(await page.locator(".dock-hint").count(), 0);
    const before = await page.locator(".dock-next li").allTextContents();
    await page.locator(".dock textarea").fill(`${prompt} `);
    await page.locator(".dock-hint").waitFor();
    await quiet(page);
    await page.getByRole("button", { name: "Remove the space" }).click();
    await page.locator(".dock-hint").waitFor({ state: "detached" });
    assert.equal(await page.locator(".dock textarea").inputValue(), prompt);
    await quiet(page);
    assert.deepEqual(await page.locator(".dock-next li").allTextContents(), before);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("an empty prompt has a heading in words", async () => {
    const { page, faults } = await openLive();
    await page.locator(".dock textarea").fill("");
    await page.waitForFunction(() => /** @type {any} */ (window.vitrine).prompt.text === "");
    assert.match((await page.locator("h1").textContent()) ?? "", /\p{L}{3}/u);
    assert.doesNotMatch((await page.locator("h1").textContent()) ?? "", /“\s*”/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("390 pixels: nothing is cut off in the dock, tables begin at their beginning, the stream has room", async () => {
    const { page, faults } = await openLive(390);
    assert.deepEqual(await spilt(page.locator(".dock")), []);
    assert.ok((await page.locator(".dock-next li").filter({ visible: true }).count()) >= 2);
    const row = await trial(page, "row");
    while (await row.getByRole("button", { name: "Next step" }).isEnabled()) {
      await row.getByRole("button", { name: "Next step" }).click();
      const box = row.locator(".table-scroll");
      assert.equal(await box.evaluate((element) => element.scrollLeft), 0);
      assert.ok(await box.evaluate((element) => element.scrollWidth <= element.clientWidth + 1), "the newest column is out of sight");
    }
    const stream = await trial(page, "stream");
    assert.ok(((await stream.locator("canvas").boundingBox())?.width ?? 0) > 250);
    const off = await trial(page, "off");
    await off.locator("[data-part='head 1.3']").click();
    await off.locator("[data-part='mlp 0']").click();
    await page.getByRole("button", { name: "Undo 2 changes" }).waitFor();
    await quiet(page);
    assert.deepEqual(await spilt(page.locator(".dock")), []);
    assert.deepEqual(await spilt(off), []);
    assert.equal(await tooWide(page), 0);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a reader's own model takes the place of the page's, and what is none is refused in plain words", async () => {
    run(`vitrine convert '${fileURLToPath(new URL("../../models/tales9m", import.meta.url))}' own.gguf --dtype q4_0`);
    const { page, faults } = await openLive();
    const part = page.locator("#own-model");
    const choose = part.getByLabel("GGUF file");
    const before = await page.locator(".dock-next li").allTextContents();
    await choose.setInputFiles({ name: "notes.gguf", mimeType: "application/octet-stream", buffer: Buffer.from("some notes") });
    await part.getByText("notes.gguf is not a GGUF file").waitFor();
    await choose.setInputFiles({ name: "broken.gguf", mimeType: "application/octet-stream", buffer: readFileSync(join(folder, "own.gguf")).subarray(0, 100000) });
    await part.getByRole("button", { name: "Open broken.gguf" }).click();
    await part.getByText("broken.gguf cannot be opened, and the page goes on with its model.").waitFor();
    assert.deepEqual(await page.locator(".dock-next li").allTextContents(), before);

    // Dropped on the page, anywhere.
    const dropped = await page.evaluateHandle((base64) => {
      const data = new DataTransfer();
      data.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], "own.gguf"));
      return data;
    }, readFileSync(join(folder, "own.gguf")).toString("base64"));
    await page.locator("main").dispatchEvent("drop", { dataTransfer: dropped });
    await part.getByText("MB. The weights stay in their type").waitFor();
    await part.getByRole("button", { name: "Open own.gguf" }).click();
    await part.getByText("The page now runs own.gguf.").waitFor();
    await quiet(page);
    const next = await trial(page, "next");
    const [predict = ""] = await offered(next);
    assert.match(predict, /--model own\.gguf/);
    sameBars(await bars(next), JSON.parse(run(`${predict} --json --top 64`)).predictions[0].top, predict);
    assert.notDeepEqual(await page.locator(".dock-next li").allTextContents(), before);
    const off = await trial(page, "off");
    await off.locator("[data-part='head 1.3']").click();
    await page.locator(".dock-changes").waitFor();
    await quiet(page);
    const [recipe = "", intervene = ""] = await offered(off);
    writeFileSync(join(folder, "recipe.yaml"), recipe);
    sameBars((await bars(off)).filter((one) => one.probability > 0), JSON.parse(run(`${intervene} --json --top 100`)).after[0].top, recipe);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("on paper there is nothing to try", async () => {
    const { page, faults } = await openLive();
    await trial(page, "row");
    await page.emulateMedia({ media: "print" });
    await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
    const left = await page.evaluate(() => [...document.querySelectorAll("button, input, select, textarea, .dock, .experiment, .redraw")].filter((element) => element.closest(".choice, .guess-choices") === null && element.getBoundingClientRect().width > 0 && element.closest(".token, .split") === null && !element.matches(".token, .split")).map((element) => element.outerHTML.slice(0, 90)));
    assert.deepEqual(left, []);
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).paddingBottom), "0px");
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

  test("what is wrong is said in the words of the page", async () => {
    const { page, faults } = await openLive();
    const off = await trial(page, "off");
    await off.getByText("Steer: add a direction").click();
    await off.getByLabel("plus").fill("x".repeat(6000));
    await off.getByLabel("minus").fill("y");
    await page.locator(".dock-trouble").waitFor();
    assert.match((await page.locator(".dock-trouble").textContent()) ?? "", /^Steer, “plus”: the text has 6001 tokens/);
    await off.getByRole("button", { name: "No direction" }).click();
    await quiet(page);
    const train = await trial(page, "train");
    await train.getByLabel("Steps").fill("1");
    await train.getByLabel("Should follow").fill("");
    await train.getByRole("button", { name: "Train one step" }).click();
    await train.getByText("Write what should follow the prompt.").waitFor();
    // A word that goes on within the prompt's last token.
    await train.getByLabel("Should follow").fill("le");
    await train.getByRole("button", { name: "Train one step" }).click();
    await train.locator("[role=status], .live-head", { hasText: /Should follow: |The loss on “le”/ }).first().waitFor();
    assert.doesNotMatch((await train.textContent()) ?? "", /--target|interventions|edits:|recipe:/);
    assert.equal(await page.locator(".dock-trouble").count(), 0, "what was wrong is put right");
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  for (const chapter of ["gpt2", "heads", "gemma2", "trainable"])
    test(`what the texts of the chapter ${chapter} name can be tried there`, async () => {
      const other = join(folder, `${chapter}.html`);
      run(`vitrine explain --live --no-gradients --chapter ${chapter} --out ${chapter}.html '${prompt}'`);
      const { page, faults } = await openAddress(browser, `file://${other}`, (url) => url === `file://${other}` || url.startsWith("blob:null/"));
      await page.locator(".dock-next li").first().waitFor();
      /** @type {{id: string, experiments: typeof experiments[number][]}[]} */
      const steps = await page.evaluate(() => /** @type {any} */ (window.vitrine).steps);
      const named = steps.flatMap((step) => step.experiments.map((name) => [step.id, name]));
      assert.deepEqual(await page.locator(".experiment").evaluateAll((all) => all.map((one) => [one.closest("section[id]")?.id, one.getAttribute("data-experiment")])), named);
      for (const step of steps) for (const name of step.experiments) assert.doesNotMatch((await (await trial(page, name)).textContent()) ?? "", /NaN|undefined|The engine is starting/, `${step.id}: ${name}`);
      assert.equal(await page.locator("[role=alert]").count(), 0);
      if (steps.some((step) => step.experiments.includes("train"))) assert.ok((await trained(page))[0] > 0);
      assert.deepEqual(faults, []);
      await page.context().close();
    });

  test("how long a reader waits: printed, not judged", async (t) => {
    const { page, faults } = await openLive();
    await page.evaluate(() => { location.hash = "#look=1"; });
    await quiet(page);
    /** Milliseconds until what `act` changes is drawn: a page-side loop over frames. @param {{ act: string, text: string, done: string }} what */
    const wait = (what) => page.evaluate(({ act, text, done }) => new Promise((settle) => {
      const from = performance.now();
      if (act === "") {
        const area = /** @type {HTMLTextAreaElement} */ (document.querySelector(".dock textarea"));
        area.value = text;
        area.dispatchEvent(new Event("input", { bubbles: true }));
      } else /** @type {HTMLElement} */ (document.querySelector(act)).click();
      const look = () => (done === "" ? /** @type {any} */ (window.vitrine).prompt.text === text : document.querySelector(done) !== null) ? requestAnimationFrame(() => settle(performance.now() - from)) : requestAnimationFrame(look);
      look();
    }), what);
    /** @type {number[]} */
    const off = [];
    /** @type {number[]} */
    const first = [];
    /** @type {number[]} */
    const whole = [];
    for (const text of ["Once upon a time there was a queen who had a son, and he", "Once upon a time there was a king who had a son, and she", "Once upon a time there was a wolf who had a son, and it"]) {
      off.push(await wait({ act: ".closer-switch", text: "", done: ".dock-next .ba-before" }));
      await quiet(page);
      await page.locator(".dock-changes").click();
      await quiet(page);
      const from = performance.now();
      first.push(await wait({ act: "", text, done: "" }));
      await quiet(page);
      whole.push(performance.now() - from);
    }
    for (const [what, all] of /** @type {const} */ ([["a head switched off: the answer", off], ["16 tokens: pictures in sight", first], ["16 tokens: the whole page", whole]])) t.diagnostic(`${what} after ${all.map(Math.round).join(", ")} ms`);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("an engine that fails at a question says so, and answers the next", async () => {
    const { page } = await openLive();
    const [engine] = page.workers();
    assert.ok(engine !== undefined);
    await engine.evaluate(() => { TextEncoder.prototype.encode = () => { throw new Error("no memory"); }; });
    await page.locator(".dock textarea").fill("The queen");
    await page.locator(".dock-trouble", { hasText: "The engine has failed and was started again: no memory" }).waitFor();
    await page.locator(".dock textarea").fill("The queen had");
    await page.locator("h1", { hasText: "The queen had" }).waitFor();
    await quiet(page);
    assert.equal(await page.locator(".dock-trouble").count(), 0);
    await page.context().close();
  });

  test("an address brings parts that are off, and another one switches them on again", async () => {
    const { page, faults } = await openLive();
    await page.evaluate(() => { location.hash = "#off=1.3,mlp.2"; });
    await page.locator(".dock-changes", { hasText: "2 changes" }).waitFor();
    await page.evaluate(() => { location.hash = "#depth=3"; });
    await page.locator(".dock-changes").waitFor({ state: "detached" });
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a page of ids takes no text from its address", async () => {
    const ids = join(folder, "ids.html");
    run(`vitrine explain --live --out ids.html --tokens 2,651,77,89 --model "$(ls *.gguf | head -1)"`);
    const { page, faults } = await openAddress(browser, `file://${ids}#prompt=The+queen`, (url) => url.startsWith(`file://${ids}`) || url.startsWith("blob:null/"));
    await page.locator(".dock-next li").first().waitFor();
    await quiet(page);
    assert.equal(await page.locator(".dock textarea").inputValue(), "2, 651, 77, 89");
    assert.equal(await page.locator(".dock-trouble").count(), 0);
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
