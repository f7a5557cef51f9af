// The page in a real browser: opens from a file, asks nothing of a network, shows every picture, answers to pointer, keyboard
// and click, and has no accessibility fault. Of made-up documents; real.test.mjs does the same with pages of the program.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, open, settle } from "./browser.mjs";
import { show, tip } from "./checks.mjs";
import { everyPage } from "./every-page.mjs";
import { documents, html, writePage } from "./fixture.mjs";
import { longPage } from "./long-page.mjs";

const made = /** @type {(keyof typeof documents)[]} */ (Object.keys(documents)).map(writePage);
const sizes = { desktop: { width: 1280, height: 900 } };

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

for (const path of made) everyPage(() => browser, path, { bothThemes: true, paper: !path.endsWith("long.html") });

describe("the attention grid", () => {
  test("the heads that look most at a token are those of the data, and a click enlarges one", async () => {
    const { page, faults } = await open(browser, writePage("short"), sizes.desktop);
    const attention = documents.short().pictures.attention;
    assert.ok(attention?.available && attention.patterns);
    const [target, source] = [attention.nTokens - 1, attention.nTokens - 2];
    const cells = (attention.nTokens * (attention.nTokens + 1)) / 2;
    const all = attention.patterns.flatMap((layer, l) => {
      const raw = Buffer.from(layer.base64, "base64");
      return Array.from({ length: attention.nHeads }, (_, h) => ({ name: `layer ${l}, head ${h}`, weight: layer.scale * raw.readUInt16LE(2 * (h * cells + (target * (target + 1)) / 2 + source)) }));
    }).sort((a, b) => b.weight - a.weight);
    const names = await page.locator(".who-looks .bar-name").allTextContents();
    assert.equal(names[0], all[0]?.name);
    assert.equal(names.length, 6);
    await show(page.locator(".who-looks svg"));
    await page.locator(".who-looks .bar").nth(1).click();
    assert.equal((await page.locator(".enlarged .row-title").first().textContent())?.toLowerCase(), names[1]);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("a click enlarges a head, a click on a weight gives the recipe that switches it off", async () => {
    const path = writePage("short");
    const { page, faults } = await open(browser, path, sizes.desktop);
    await settle(page);
    const thumbs = page.locator(".thumbs-area");
    await thumbs.scrollIntoViewIfNeeded();
    const document_ = documents.short();
    const attention = document_.pictures.attention;
    assert.ok(attention?.available);
    // The second column is layer 1; its third row is the third of the heads from flat to spiky.
    await thumbs.locator(".thumb").nth(2 * attention.nLayers + 1).click();
    const head = attention.flatToSpiky[1]?.[2];
    assert.equal(await page.locator(".enlarged .row-title").first().textContent(), `Layer 1, head ${head}`);
    await page.getByText("as numbered").click();
    await thumbs.focus();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    assert.equal(await page.locator(".enlarged .row-title").first().textContent(), "Layer 2, head 1");

    const grid = page.locator(".enlarged-grid .heat-area");
    await show(grid);
    const area = await grid.boundingBox();
    assert.ok(area !== null);
    const cell = area.width / attention.nTokens;
    await page.mouse.move(area.x + 0.5 * cell, area.y + 5.5 * cell);
    const packed = attention.patterns?.[2];
    assert.ok(packed !== undefined);
    const stored = Buffer.from(packed.base64, "base64");
    const n = attention.nTokens;
    const weight = stored.readUInt16LE(2 * (((n * (n + 1)) / 2) * 1 + (5 * 6) / 2)) * packed.scale;
    assert.ok((await tip(page)).includes(`weight ${Number(weight.toPrecision(4))}`), `${await tip(page)} should hold ${weight}`);
    await page.mouse.down();
    await page.mouse.up();
    const codes = await page.locator(".reproduce .copyable code").allTextContents();
    assert.equal(codes[0], `vitrine trace --hooks 'blocks.2.attn.hook_pattern' --out values.safetensors ${document_.prompt.shell}`);
    assert.equal(codes[1], `prompt: ${JSON.stringify(document_.prompt.text)}\ninterventions:\n  - head: "2.1"\n    positions: 5\n    do: zero\n`);
    assert.equal(codes[2], "vitrine intervene recipe.yaml");
    assert.ok(await page.evaluate(() => document.activeElement?.closest(".reproduce") !== null), "the focus goes to what was opened");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".reproduce").count(), 0);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

});

describe("guesses and terms", () => {
  test("a guess is answered by click and by keyboard, right and wrong, without an engine", async () => {
    const { page, faults } = await open(browser, writePage("short"), sizes.desktop);
    const guess = page.locator("#tokens .guess");
    assert.equal(await guess.locator(".guess-reveal").isVisible(), false);
    await guess.getByRole("button", { name: "4", exact: true }).focus();
    await page.keyboard.press("Enter");
    assert.equal(await guess.locator(".guess-reveal").textContent(), "No: 5. There are 5 of them.");
    assert.equal(await guess.locator("button.wrong").textContent(), "✗ 4");
    assert.equal(await guess.locator("button.right").textContent(), "✓ 5");
    assert.equal(await guess.getByRole("button", { name: "6" }).isDisabled(), true);
    const free = page.locator("#output .guess");
    await free.getByRole("textbox").fill(" His");
    await page.keyboard.press("Enter");
    assert.equal(await free.locator(".guess-reveal").textContent(), "Yes. It is his.");
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("an answer can be seen without a guess, and paper shows all of them", async () => {
    const { page } = await open(browser, writePage("short"), sizes.desktop);
    await page.locator("#output .guess").getByRole("button", { name: "Show the answer" }).click();
    assert.equal(await page.locator("#output .guess-reveal").textContent(), "It is his.");
    await page.evaluate(async () => {
      window.dispatchEvent(new Event("beforeprint"));
      await Promise.resolve();
      await Promise.resolve();
    });
    assert.equal(await page.locator("#tokens .guess-reveal").textContent(), "There are 5 of them.");
    await page.context().close();
  });

  test("a term is explained on hover, focus and tap, once a section", async () => {
    const { page, faults } = await open(browser, writePage("short"), { ...sizes.desktop, calm: true });
    const section = page.locator("#residual");
    assert.deepEqual(await section.locator(".term").allTextContents(), ["token", "embedding", "residual stream"]);
    const term = section.getByRole("button", { name: "residual stream" });
    await term.scrollIntoViewIfNeeded();
    await term.hover();
    assert.match(await tip(page), /^residual stream\nWhat runs through the model/);
    await page.mouse.move(2, 2);
    assert.equal(await tip(page), "");
    await section.getByRole("button", { name: "embedding" }).focus();
    assert.match(await tip(page), /^embedding\n/);
    assert.match((await page.locator("[role=status]").textContent()) ?? "", /embedding, The vector that stands for a token/);
    await page.keyboard.press("Escape");
    assert.equal(await tip(page), "");
    await term.click();
    assert.match(await tip(page), /^residual stream\n/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("the recap counts, and lists every term", async () => {
    const { page } = await open(browser, writePage("short"), sizes.desktop);
    const recap = page.locator("#recap");
    for (const [i, choice] of ["that", "this"].entries()) await recap.locator(".guess").nth(i).getByRole("button", { name: choice }).click();
    assert.equal(await recap.locator(".recap-count").textContent(), "2 of 2 answered, 1 as this model does.");
    await recap.getByText("All terms").click();
    await recap.locator("dt").first().waitFor();
    const terms = await recap.locator("dt").allTextContents();
    for (const term of ["transformer", "token", "logit", "residual stream", "head"]) assert.ok(terms.includes(term), term);
    assert.equal(await recap.locator("dd").evaluateAll((all) => all.filter((one) => !/^[A-Z].*\.$/.test(one.textContent ?? "")).length), 0);
    await page.context().close();
  });
});

describe("commands and recipes", () => {
  for (const [what, change, kept] of /** @type {const} */ ([
    ["a text that begins with a dash, without BOS", { text: "- said", special: false, shell: "--no-special --adapter 'an \"adapter\"' -- '- said'" }, false],
    ["a text that speaks of an option", { text: "say --no-special", special: true, shell: "'say --no-special' --adapter 'an \"adapter\"'" }, true],
  ]))
    test(`${what}: options stand in front, the recipe has the same tokens and adapter`, async () => {
      const document_ = documents.short();
      document_.model.adapter = 'an "adapter"';
      document_.prompt = { ...document_.prompt, ...change };
      const path = join(dirname(writePage("short")), "commands.html");
      writeFileSync(path, html(document_));
      const { page, faults } = await open(browser, path, sizes.desktop);
      await settle(page);
      assert.equal(await page.locator("footer pre code").textContent(), `vitrine explain --out page.html ${change.shell}`);
      const figure = page.locator("figure[data-picture=update-scale]");
      await figure.locator("details.fold > summary").evaluateAll((all) => all.forEach((summary) => /** @type {HTMLElement} */ (summary).click()));
      await figure.locator(".copyable code").first().waitFor();
      const own = await figure.locator(".copyable code").allTextContents();
      assert.deepEqual(own, [`vitrine picture update-scale --out update-scale.svg ${change.shell}`, `vitrine picture update-scale --json ${change.shell}`]);
      const place = figure.locator("[role=application]").first();
      await show(place);
      await place.focus();
      for (const key of ["ArrowRight", "Enter"]) await page.keyboard.press(key);
      const [trace = "", recipe = ""] = await figure.locator(".reproduce .copyable code").allTextContents();
      assert.match(trace, /^vitrine trace --hooks '[^']*' --out values.safetensors /);
      assert.ok(trace.endsWith(` ${change.shell}`), trace);
      const prompt = kept ? JSON.stringify(change.text) : `{tokens: [${document_.prompt.ids.join(", ")}]}`;
      assert.ok(recipe.startsWith(`adapter: "an \\"adapter\\""\nprompt: ${prompt}\ninterventions:\n`), recipe);
      assert.deepEqual(faults, []);
      await page.context().close();
    });
});

describe("gradients", () => {
  test("the chosen hook's lengths are shown, and a click offers the trace that writes them", async () => {
    const { page, faults } = await open(browser, writePage("short"), sizes.desktop);
    await settle(page);
    const document_ = documents.short();
    const picture = /** @type {any} */ (document_.pictures["gradient-hooks"]);
    assert.ok(picture?.available);
    const figure = page.locator("figure[data-picture=gradient-hooks]");
    await figure.getByText("attn.hook_q", { exact: true }).click();
    const grid = figure.locator(".heat-area");
    await show(grid);
    await grid.focus();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
    const norms = picture.hooks.find((/** @type {any} */ one) => one.hook === "blocks.*.attn.hook_q")?.norms;
    assert.ok(norms !== undefined);
    const length = Buffer.from(norms.base64, "base64").readFloatLE(4 * (2 * (norms.shape[1] ?? 0) + 1));
    const words = await tip(page);
    assert.ok(words.startsWith("blocks.2.attn.hook_q\nat ␣Once (position 1)"), words);
    assert.ok(words.includes(`length of the gradient ${Number(length.toPrecision(4))}\n`), `${words} should hold ${length}`);
    await page.keyboard.press("Enter");
    assert.deepEqual(await figure.locator(".reproduce .copyable code").allTextContents(), [`vitrine trace --gradients-at 'blocks.2.attn.hook_q' --out values.safetensors ${document_.prompt.shell}`]);
    await figure.getByText("hook_embed", { exact: true }).click();
    assert.equal(await figure.locator(".reproduce").count(), 0);
    assert.match((await grid.getAttribute("aria-label")) ?? "", /hook_embed.* 1 rows/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  for (const [name, curves, said] of /** @type {const} */ ([["short", 2, /second curve is missing/], ["long", 1, /no gradient comes back/], ["bare", 1, /^(?!.*32-bit)/s]]))
    test(`${name}: what is lost without norms is said`, async () => {
      const { page } = await open(browser, writePage(name), sizes.desktop);
      await settle(page);
      const figure = page.locator("figure[data-picture=gradient-norms]");
      assert.equal(await figure.locator("svg.drawing").first().locator("path.line").count(), curves);
      assert.match((await figure.locator(".figure-body").textContent()) ?? "", said);
      await page.context().close();
    });

  test("the answer is shared out in three ways, the complete one with its sum", async () => {
    const { page, faults } = await open(browser, writePage("short"), sizes.desktop);
    await settle(page);
    const picture = /** @type {any} */ (documents.short().pictures["input-attribution"]);
    assert.ok(picture?.available && picture.integrated !== null);
    const figure = page.locator("figure[data-picture=input-attribution]");
    const notes = () => figure.locator(".bar-note").allTextContents();
    const written = (/** @type {string[]} */ all) => all.map((note) => Number(note.replace("−", "-")));
    const near = (/** @type {number[]} */ a, /** @type {(number | null)[]} */ b) => a.length === b.length && a.every((v, i) => Math.abs(v - (b[i] ?? NaN)) <= 6e-3 * Math.abs(v));
    assert.ok(near(written(await notes()), picture.integrated.parts), (await notes()).join(" "));
    const sum = picture.target.logprob - picture.integrated.baselineLogprob;
    assert.ok((await figure.textContent())?.includes(`complete would be ${Number(sum.toPrecision(4))}`));
    await figure.getByText("gradient × embedding", { exact: true }).click();
    assert.ok(near(written(await notes()), picture.gradientInput));
    await figure.getByText("saliency", { exact: true }).click();
    assert.ok(near(written(await notes()), picture.saliency));
    assert.deepEqual(faults, []);
    await page.context().close();
  });
});

longPage(() => browser, writePage("long"));

describe("the reader's choices", () => {
  test("the button changes the theme, the system's theme is followed until then", async () => {
    const { page } = await open(browser, writePage("bare"), { ...sizes.desktop, dark: false });
    const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await paper();
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction((was) => getComputedStyle(document.documentElement).backgroundColor !== was, light);
    await page.locator("button.theme").click();
    assert.equal(await paper(), light);
    await page.context().close();
  });

  test("what a reader slides changes the picture", async () => {
    const { page, faults } = await open(browser, writePage("short"), sizes.desktop);
    const later = () => page.locator("figure[data-picture=merges] .part.later").count();
    assert.equal(await later(), 0);
    await page.getByLabel("Merges done").fill("3");
    assert.ok((await later()) > 0);
    const dot = page.getByLabel("Turn the orange x");
    await dot.fill("90");
    assert.match((await dot.getAttribute("aria-valuetext")) ?? "", /x · a = 0$/);
    await dot.fill("60");
    assert.match((await dot.getAttribute("aria-valuetext")) ?? "", /x · a = 0\.5$/);
    await page.getByText("a toy: 18 steps", { exact: true }).click();
    assert.match((await page.locator("figure[data-picture=residual-scale]").textContent()) ?? "", /387\s420\s489/);
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  test("with less motion asked for, nothing moves by itself", async () => {
    const { page } = await open(browser, writePage("bare"), { ...sizes.desktop, calm: true });
    assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).scrollBehavior), "auto");
    await page.locator("[role=application]").first().focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.evaluate(() => getComputedStyle(/** @type {Element} */ (document.getElementById("tip"))).transitionDuration), "0s");
    await page.context().close();
  });
});
