// How the page reads: each test would have found something that a reader stumbled over.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, open, settle } from "./browser.mjs";
import { inSight, show } from "./checks.mjs";
import { documents, writePage } from "./fixture.mjs";

const desktop = { width: 1280, height: 900 };
const phone = { width: 390, height: 844 };

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

describe("the map and the rail", () => {
  test("every part's area is its share of the parameters", async () => {
    const { page } = await open(browser, writePage("short"), desktop);
    const { model } = documents.short();
    const area = (/** @type {string} */ selector) => page.locator(`#map ${selector}`).evaluateAll((all) => all.reduce((sum, one) => sum + Number(one.getAttribute("width")) * Number(one.getAttribute("height")), 0));
    const grouping = documents.short().pictures["head-grouping"];
    assert.ok(grouping?.available);
    const attention = model.nLayers * Object.values(grouping.parameters).reduce((a, b) => a + b, 0);
    const mlp = model.parameters - model.embeddingParameters - attention;
    const [table, attentions, mlps] = [await area(".map-embedding"), await area(".map-attention"), await area(".map-mlp")];
    assert.ok(Math.abs(attentions / table / (attention / model.embeddingParameters) - 1) < 0.08, `${attentions / table}`);  // gaps between heads are not filled
    assert.ok(Math.abs(mlps / table / (mlp / model.embeddingParameters) - 1) < 0.03, `${mlps / table}`);
    assert.equal(await page.locator("#map .map-attention").count(), model.nLayers * model.nHeads);
    assert.equal(await page.locator("#map .map-attention.windowed").count(), model.windows.filter((w) => w > 0).length * model.nHeads);
    await page.context().close();
  });

  test("a head of the map leads to its attention, an MLP to its step, by key and by click", async () => {
    const { page, faults } = await open(browser, writePage("short"), { ...desktop, calm: true });
    await settle(page);
    const map = page.locator("#map [role=application]");
    await show(map);
    await map.focus();
    for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft", "Enter"]) await page.keyboard.press(key);
    const heading = page.locator(".enlarged .row-title").first();
    assert.match((await heading.textContent()) ?? "", /^Layer [01], head \d$/);
    await inSight(page.locator("#picture-attention .figure-title"));
    await show(map);
    const box = await page.locator("#map .map-mlp").nth(2).boundingBox();
    assert.ok(box !== null);
    await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
    await inSight(page.locator("#mlp h2"));
    assert.deepEqual(faults, []);
    await page.context().close();
  });

  for (const [name, size] of /** @type {const} */ ([["rail", desktop], ["bar-top", phone]]))
    test(`${name}: says which step is read, and keeps the answer in sight`, async () => {
      const { page } = await open(browser, writePage("long"), { ...size, calm: true });
      await settle(page);
      const document_ = documents.long();
      const at = document_.steps.findIndex((step) => step.id === "mlp");
      await page.locator("#mlp").evaluate((element) => element.scrollIntoView());
      const place = page.locator(`.${name}`);
      const [marked, here] = name === "rail" ? ["[aria-current]", `${at + 1} ${document_.steps[at]?.title}`] : ["summary", `${at + 1} of ${document_.steps.length} ${document_.steps[at]?.title}`];
      await place.locator(marked, { hasText: here }).waitFor();
      const box = await place.boundingBox();
      assert.ok(box !== null && box.y >= 0 && box.y < 5, "it stays at the top");
      const next = document_.pictures["next-tokens"];
      assert.ok(next?.available);
      const likeliest = document_.pieces[String(next.ids.at(-1)?.[0])]?.replace("▁", "␣") ?? "?";
      assert.ok((await place.textContent())?.includes(likeliest), "the answer");
      if (name === "bar-top") {
        assert.equal(await place.locator("nav").isVisible(), false);
        await place.locator("summary").click();
        await place.getByRole("link", { name: document_.steps[2]?.title ?? "" }).click();
        await place.locator("nav").waitFor({ state: "hidden" });  // it folds again
        await inSight(page.locator(`#${document_.steps[2]?.id} h2`));
      }
      await page.context().close();
    });

  test("a long prompt is shown from its end", async () => {
    const { page } = await open(browser, writePage("long"), desktop);
    const { prompt, tokens } = documents.long();
    assert.ok(prompt.text !== null);
    const title = (await page.locator("h1").textContent()) ?? "";
    assert.ok(title.includes(`${prompt.text.slice(-30)}”`), title);
    assert.equal(await page.locator("figure[data-picture=tokens] .token").last().locator(".token-id").textContent(), String(tokens.at(-1)?.id));
    await page.context().close();
  });
});

describe("what a reader asks for comes into sight", () => {
  test("an enlarged head and the box that tells how to reproduce a number", async () => {
    const { page } = await open(browser, writePage("short"), { width: 1280, height: 500, calm: true });
    await settle(page);
    const thumbs = page.locator(".thumbs-area");
    await thumbs.evaluate((element) => element.scrollIntoView({ block: "start" }));
    await thumbs.locator(".thumb").nth(1).click();
    await inSight(page.locator(".enlarged .row-title").first(), true);
    const lens = page.locator("figure[data-picture=logit-lens] [role=application]");
    await lens.evaluate((element) => element.scrollIntoView({ block: "start" }));
    await lens.focus();
    for (const key of ["ArrowRight", "Enter"]) await page.keyboard.press(key);
    await inSight(page.locator("figure[data-picture=logit-lens] .reproduce header"), true);
    await page.context().close();
  });

  test("the frame of what is pointed at has another color than that of the true next token", async () => {
    for (const dark of [false, true]) {
      const { page } = await open(browser, writePage("short"), { ...desktop, dark });
      await settle(page);
      const grid = page.locator("figure[data-picture=next-tokens] .cells");
      await show(grid);
      await grid.focus();
      await page.keyboard.press("ArrowRight");
      const [at, framed] = await grid.evaluate((element) => [getComputedStyle(/** @type {Element} */ (element.querySelector(".cell-at"))).outlineColor, getComputedStyle(/** @type {Element} */ (element.querySelector(".cell.framed"))).boxShadow]);
      const channels = (/** @type {string} */ color) => (color.match(/\d+(\.\d+)?/g) ?? []).slice(0, 3).map(Number);
      const [a, b] = [channels(at ?? ""), channels(framed ?? "")];
      assert.ok(Math.hypot(...a.map((v, i) => v - (b[i] ?? 0))) > 100, `${at} beside ${framed}`);
      await page.context().close();
    }
  });
});

describe("single pictures", () => {
  test("the regions of the MLP are polygons that fill the square", async () => {
    const { page } = await open(browser, writePage("short"), desktop);
    await settle(page);
    const areas = await page.locator("figure[data-picture=mlp-surfaces] polygon.region").evaluateAll((all) => all.map((one) => {
      const points = (one.getAttribute("points") ?? "").split(" ").map((p) => p.split(",").map(Number));
      return { corners: points.length, area: Math.abs(points.reduce((sum, [x = 0, y = 0], i) => sum + (points.at(i - 1)?.[0] ?? 0) * y - x * (points.at(i - 1)?.[1] ?? 0), 0)) / 2 };
    }));
    assert.equal(areas.length, 6);
    const side = await page.locator("figure[data-picture=mlp-surfaces] .regions svg").evaluate((svg) => Number(svg.getAttribute("width")) - 30);
    assert.ok(Math.abs(areas.reduce((sum, one) => sum + one.area, 0) / side ** 2 - 1) < 1e-3);
    assert.ok(areas.every((one) => one.corners <= 5), "a wedge cut by the square has at most five corners");
    await page.context().close();
  });

  test("activations are drawn from −2 to 2 and told apart by color", async () => {
    const { page } = await open(browser, writePage("short"), desktop);
    await settle(page);
    const chart = page.locator("figure[data-picture=activation-curves] svg.drawing").first();
    const looks = await chart.locator("path.line").evaluateAll((all) => all.map((one) => getComputedStyle(one).stroke));
    assert.equal(new Set(looks).size, 3, looks.join(" "));
    const ticks = await chart.locator(".axis text").allTextContents();
    assert.ok(ticks.includes("−2") && ticks.includes("2") && !ticks.includes("4"), ticks.join(" "));
    await page.context().close();
  });

  test("query lengths have a scale for each layer, norms a panel for each kind, reach the whole context", async () => {
    const { page } = await open(browser, writePage("short"), desktop);
    await settle(page);
    const document_ = documents.short();
    const lengths = page.locator("figure[data-picture=query-length]");
    assert.equal(await lengths.locator(".scale-key").count(), await lengths.locator(".heat").count());
    const picture = /** @type {any} */ (document_.pictures["query-length"]);
    assert.ok(picture?.available);
    const longest = picture.shown.map((/** @type {number} */ layer) => {
      const stored = Buffer.from(picture.layers[layer]?.base64 ?? "", "base64");
      return Math.max(...Array.from({ length: stored.length / 4 }, (_, i) => stored.readFloatLE(4 * i)));
    });
    const written = (await lengths.locator(".scale-key span:last-child").allTextContents()).map(Number);
    written.forEach((value, i) => assert.ok(Math.abs(value - (longest[i])) < 0.01 * value, `${value} for ${longest[i]}`));
    const norms = document_.pictures["norm-statistics"];
    assert.ok(norms?.available);
    const kinds = norms.kinds.filter((kind) => kind.norms[0]?.name.startsWith("blocks."));
    assert.equal(await page.locator("figure[data-picture=norm-statistics] svg.drawing").count(), kinds.length);
    const reach = page.locator("figure[data-picture=reach]");
    const bars = await reach.locator("rect.reach-direct").evaluateAll((all) => all.map((one) => Number(one.getAttribute("width"))));
    const whole = Math.max(...bars);
    const sees = document_.pictures.reach;
    assert.ok(sees?.available);
    assert.equal(bars.length, sees.layers.length);
    bars.forEach((wide, i) => assert.ok(Math.abs(wide / whole - ((sees.layers[i]?.window ?? 0) || sees.contextLength) / sees.contextLength) < 0.01, `layer ${i}`));
    await page.context().close();
  });

  test("the answer is set against the runner-up, and the recipe measures the difference", async () => {
    const { page } = await open(browser, writePage("short"), desktop);
    await settle(page);
    const picture = documents.short().pictures["logit-attribution"];
    assert.ok(picture?.available);
    const [first, second] = picture.targets;
    assert.ok(first !== undefined && second !== undefined);
    const figure = page.locator("figure[data-picture=logit-attribution]");
    const sum = async () => Number((await figure.locator(".bar-note").last().textContent())?.replace("−", "-").replace("\u202f", ""));
    const near = (/** @type {number} */ a, /** @type {number} */ b) => Math.abs(a - b) <= 6e-4 * Math.max(1, Math.abs(b));
    assert.ok(near(await sum(), first.uncapped - second.uncapped), `${await sum()}`);
    const grid = figure.locator(".heat-area");
    await show(grid);
    await grid.focus();
    for (const key of ["ArrowRight", "ArrowRight", "Enter"]) await page.keyboard.press(key);
    assert.match((await figure.locator(".reproduce .copyable code").nth(1).textContent()) ?? "", new RegExp(`metric: \\{logit_difference: \\[${first.id}, ${second.id}\\], position: ${picture.position}\\}`));
    await figure.getByText("nothing", { exact: true }).click();
    assert.ok(near(await sum(), first.uncapped));
    await page.context().close();
  });
});
