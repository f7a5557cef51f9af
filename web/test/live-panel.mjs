// What tests read off the panel of a live page, whoever's engine answers it.

import assert from "node:assert/strict";
import { drawn } from "./wait.mjs";

/** @typedef {import("playwright-core").Page} Page */

/** What can be tried on a page with every step. */
export const experiments = /** @type {const} */ (["stream", "row", "units", "next", "off", "patch", "train"]);

/** Scrolls to an experiment, waits until it has its answers, and returns it. @param {Page} page @param {typeof experiments[number]} name */
export async function trial(page, name) {
  const part = page.locator(`.experiment[data-experiment=${name}]`);
  await part.evaluate((element) => element.scrollIntoView({ block: "start", behavior: "instant" }));
  await quiet(page);
  return part;
}

/** The tokens of an experiment with their probabilities. @param {import("playwright-core").Locator} part @returns {Promise<{token: number, probability: number, kept: number}[]>} */
export const bars = (part) => part.locator(".ba-rows li[data-token]").evaluateAll((all) => all.map((one) => ({ token: Number(/** @type {HTMLElement} */ (one).dataset["token"]), probability: Number(/** @type {HTMLElement} */ (one).dataset["probability"]), kept: Number(/** @type {HTMLElement} */ (one).dataset["kept"]) })));

/** The commands and recipes of an experiment. @param {import("playwright-core").Locator} part */
export async function offered(part) {
  const folds = part.locator(".live-command");
  await folds.first().waitFor();
  for (const fold of await folds.all()) if (!(await fold.evaluate((e) => /** @type {HTMLDetailsElement} */ (e).open))) await fold.locator("summary").click();
  await folds.locator(".copyable code").first().waitFor();
  return folds.locator(".copyable code").allTextContents();
}

/** Nothing is under way: every question has been answered, and what is on the page asks no other. @param {Page} page */
export async function quiet(page) {
  const still = page.locator(".dock[data-busy=false]");
  do {
    await still.waitFor();
    await drawn(page);  // parts ask after the frame in which they are drawn
  } while ((await still.count()) === 0);
}

/** @param {number} a @param {number} b @param {string} what @param {number} [most] */
export const near = (a, b, what, most = 1e-4) => assert.ok(Math.abs(a - b) <= most, `${what}: ${a} on the page, ${b} in the program`);

/** The page's probabilities are those of the program's list. @param {Awaited<ReturnType<typeof bars>>} shown @param {{token: number, prob: number}[]} theirs @param {string} what */
export function sameBars(shown, theirs, what) {
  const known = new Map(theirs.map((one) => [one.token, one.prob]));
  for (const one of shown) {
    const other = known.get(one.token);
    assert.ok(other !== undefined, `${what}: the program does not list token ${one.token}`);
    near(one.probability, other, `${what}, token ${one.token}`);
  }
  assert.ok(shown.length >= 8, `${what}: ${shown.length} tokens`);
}

/** What temperature, top-k and top-p leave of a whole distribution, by their rules: the probability of each token in the draw.
 * @param {{token: number, logprob: number}[]} all  most likely first @param {number} temperature @param {number} topK @param {number} topP */
export function drawnOf(all, temperature, topK, topP) {
  const total = (/** @type {{weight: number}[]} */ list) => list.reduce((sum, one) => sum + one.weight, 0);
  const highest = all[0]?.logprob ?? 0;
  let left = all.map(({ token, logprob }) => ({ token, weight: Math.exp((logprob - highest) / temperature) }));
  if (topK > 0) left = left.slice(0, topK);
  let sum = 0;
  const whole = total(left);
  if (topP < 1) left = left.filter((one) => (sum += one.weight) - one.weight < topP * whole);
  const rest = total(left);
  return new Map(left.map((one) => [one.token, one.weight / rest]));
}

/** Trains one step on " was"; the loss behind it, and the command. @param {Page} page @returns {Promise<[number, string]>} */
export async function trained(page) {
  const part = await trial(page, "train");
  await part.getByLabel("Should follow").fill(" was");
  await part.getByLabel("Steps").fill("1");
  await part.getByRole("button", { name: "Train one step" }).click();
  const said = part.locator(".live-head", { hasText: "The loss on" });
  await said.waitFor();
  const [, loss = ""] = /to ([\d.]+)/.exec((await said.textContent()) ?? "") ?? [];
  const [train = ""] = await offered(part);
  return [Number(loss), train];
}
