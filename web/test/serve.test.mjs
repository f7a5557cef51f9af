// The page with the program behind it: VITRINE_PROGRAM names one that has `vitrine serve`. What the page shows is what the command
// lines that it offers say, token by token.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { launch } from "./browser.mjs";
import { ended, lookAt, messages, openChat, reproduction, say } from "./chat-page.mjs";
import { graveFaults } from "./checks.mjs";
import { serve } from "./server.mjs";
import { until } from "./wait.mjs";

const program = process.env["VITRINE_PROGRAM"];
const serves = program !== undefined && spawnSync(program, ["serve", "--help"]).status === 0;
const skip = !serves && (program === undefined ? "VITRINE_PROGRAM is not set" : "this program has no `vitrine serve`");

const folder = mkdtempSync(join(tmpdir(), "vitrine-serve-"));
/** @type {import("playwright-core").Browser} */
let browser;
/** @type {import("node:child_process").ChildProcess[]} */
let servers = [];
before(async () => {
  if (!serves) return;
  symlinkSync(resolve(program), join(folder, "vitrine"));
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

/** Starts the server and returns its address. @param {string[]} args */
async function start(args = []) {
  const started = await serve(program ?? "", ["--exact", ...args]);
  servers.push(started.server);
  return started;
}

/** Runs a command line as a reader would. @param {string} line */
const run = (line) => execFileSync("sh", ["-c", line], { cwd: folder, encoding: "utf8", env: { ...process.env, PATH: `${folder}:${process.env["PATH"]}` }, stdio: ["ignore", "pipe", "pipe"] });

/** The same command with the numbers of --exact, as JSON. @param {string} line */
const exact = (line) => line.replace(/^(vitrine \w+)/, "$1 --exact --json");

/** Ids of a command line. @param {string} line */
const idsOf = (line) => (/--tokens ([\d,]+)/.exec(line)?.[1] ?? "").split(",").map(Number);

/** @param {import("playwright-core").Page} page @param {Record<string, string>} values */
async function settings(page, values) {
  if ((await page.locator(".sampling[open]").count()) === 0) await page.getByText("Sampling").click();
  for (const [label, value] of Object.entries(values)) await page.getByLabel(label, { exact: true }).fill(value);
}

/** The page gets this many events of the next stream and no more until it leaves the stream, however fast the server is. @param {import("playwright-core").Page} page @param {number} events */
const holdStream = (page, events) => page.evaluate((most) => {
  const ask = window.fetch;
  window.fetch = async (address, options) => {
    const answer = await ask(address, options);
    if (answer.body === null || !answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer;
    window.fetch = ask;
    let passed = 0;
    const held = new TransformStream({
      start: (out) => options?.signal?.addEventListener("abort", () => out.error(options.signal?.reason)),
      transform: async (/** @type {string} */ text, out) => {
        for (const part of text.split(/(?<=\n\n)/)) {
          if (passed >= most) await new Promise(() => undefined);
          out.enqueue(part);
          if (part.endsWith("\n\n")) ++passed;
        }
      },
    });
    const body = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(held).pipeThrough(new TextEncoderStream());
    return new Response(body, { status: answer.status, headers: answer.headers });
  };
}, events);

describe("the shipped model", { skip }, () => {
  test("the page and its head are as the browser wants them", async () => {
    const { url } = await start();
    const page = await fetch(url);
    assert.equal(page.status, 200);
    assert.match(page.headers.get("content-security-policy") ?? "", /^default-src 'none'; .*; frame-ancestors 'none'$/);
    const again = await fetch(url, { headers: { "If-None-Match": page.headers.get("etag") ?? "" } });
    assert.equal(again.status, 304);
    assert.equal(await again.text(), "");
  });

  test("a sampled text is what curl and the command line give", async () => {
    const { url } = await start();
    const { page, faults } = await openChat(browser, url);
    await settings(page, { Temperature: "0.8", "Top-k": "50", "Top-p": "0.95", "Min-p": "0.01", "Repetition penalty": "1.05", Seed: "11", "Tokens at most": "24" });
    await say(page, "Once upon a time there was");
    const [, [who, text = ""] = []] = await messages(page);
    assert.equal(who, "Continuation");
    assert.ok(text.length > 20);
    assert.equal(await page.locator(".message.assistant [data-token]").count(), 24);
    await page.getByRole("button", { name: "Reproduce" }).click();
    await page.locator(".message .copyable").nth(1).waitFor();
    const [curl = "", command = ""] = await page.locator(".message .copyable code").allTextContents();
    assert.equal(JSON.parse(run(curl)).choices[0].text, text);
    assert.ok(JSON.parse(run(exact(command))).text.endsWith(text));
    assert.deepEqual(await graveFaults(page, true), []);
    assert.deepEqual(faults, []);
  });

  test("alternatives are those of predict, and a branch goes on from exactly that token", async () => {
    const { url } = await start();
    const { page, faults } = await openChat(browser, url);
    await settings(page, { Temperature: "0", "Tokens at most": "16" });
    await say(page, "The king and the queen had a");
    await lookAt(page, 5);
    const [curl = "", command = ""] = await reproduction(page);
    const { predictions } = JSON.parse(run(exact(command)));
    const top = predictions.at(-1).top;
    const shares = (await page.locator(".alternatives b").allTextContents()).map((share) => parseFloat(share));
    top.forEach((/** @type {any} */ one, /** @type {number} */ i) => assert.ok(Math.abs(100 * one.prob - (shares[i] ?? NaN)) < 0.06, `${shares[i]} and ${one.prob}`));
    assert.equal(JSON.parse(run(curl)).choices[0].token_ids ?? top[0].token, top[0].token);
    const before = idsOf(command);
    await page.locator(".alternatives button").nth(2).click();
    await ended(page);
    await page.getByRole("button", { name: "Reproduce" }).click();
    await page.locator(".message .copyable").nth(1).waitFor();
    const branch = (await page.locator(".message .copyable code").nth(1).textContent()) ?? "";
    assert.deepEqual(idsOf(branch), [...before, top[2].token]);
    // The answer is the given tokens and what the program says behind them.
    const { tokens } = JSON.parse(run(exact(branch)));
    const [, [, text = ""] = []] = await messages(page);
    const detokenized = async (/** @type {number[]} */ ids) => (await (await fetch(`${url}detokenize`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ tokens: ids }) })).json()).content;
    const prompt = await detokenized(before.slice(0, -5));
    assert.equal(`${prompt}${text}`, await detokenized([...before, top[2].token, ...tokens]));
    assert.deepEqual(faults, []);
  });

  test("a text that is too long, and a server that ends, are told in words", async () => {
    const { url, server } = await start();
    const { page } = await openChat(browser, url);
    await say(page, "word ".repeat(3000));
    assert.match((await page.locator(".message .trouble p").textContent()) ?? "", /\d+ tokens.*Start a new conversation/s);
    server.kill("SIGTERM");
    await new Promise((done) => server.on("exit", done));
    await page.keyboard.press("Alt+KeyN");
    await say(page, "Once");
    assert.equal(await page.locator(".message .trouble p").textContent(), "The server does not answer. Is vitrine serve still running?");
  });

  test("a stopped answer ends on the server, and goes on from there", async () => {
    const { url } = await start();
    const { page, faults } = await openChat(browser, url);
    await settings(page, { Temperature: "0", "Tokens at most": "400" });
    await holdStream(page, 8);
    await page.fill("#text", "Once upon a time");
    await page.keyboard.press("Enter");
    await page.locator(".message.running [data-token]").nth(3).waitFor();
    await page.keyboard.press("Escape");
    await ended(page);
    const before = (await messages(page))[1]?.[1] ?? "";
    const idle = async () => (await (await fetch(`${url}slots`)).json()).every((/** @type {any} */ slot) => !slot.is_processing);
    await until(idle, "the end of the stream on the server");
    await settings(page, { "Tokens at most": "8" });
    await page.getByRole("button", { name: "Go on" }).click();
    await ended(page);
    assert.ok((await messages(page))[1]?.[1]?.startsWith(before));
    assert.deepEqual(faults, []);
  });

  test("a key is asked for", async () => {
    const { url } = await start(["--api-key", "open-sesame"]);
    const { page } = await openChat(browser, url);
    await page.locator("input[name=key]").fill("open-sesame");
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.waitForSelector("#text:not([disabled])");
    await page.waitForFunction(() => document.querySelector("h1 bdi")?.textContent !== "vitrine");
    await settings(page, { "Tokens at most": "8" });
    await say(page, "Once upon a time");
    assert.ok(((await messages(page))[1]?.[1]?.length ?? 0) > 0);
  });

  for (const [view, path, shown] of /** @type {const} */ ([["Attention", "/v1/inspect", ".looks"], ["Logit lens", "/v1/lens", ".cells"], ["Heads", "/v1/heads", ".heat-area"], ["Change", "/v1/steer", ".sides"]]))
    test(`${view}: what curl gives, and a command line that runs`, async (t) => {
      const { url } = await start();
      const { page, faults } = await openChat(browser, url);
      await settings(page, { Temperature: "0", "Tokens at most": "12" });
      await say(page, "Hansel and Gretel, Hansel and");
      await lookAt(page, 1, view);
      if (view === "Change") await page.getByRole("button", { name: "Answer twice" }).click();
      const routes = Object.keys((await (await fetch(`${url}openapi.json`)).json()).paths);
      if (!routes.includes(path)) {
        await page.locator(".glass .trouble").waitFor();
        assert.match((await page.locator(".glass .trouble").textContent()) ?? "", /^This server does not offer /);
        return t.skip(`this program has no ${path}`);
      }
      await page.locator(`.glass ${shown}`).waitFor();
      const [curl = "", command = ""] = await reproduction(page);
      assert.ok(JSON.parse(run(curl)).error === undefined);
      run(command);
      assert.deepEqual(await graveFaults(page, true), []);
      assert.deepEqual(faults, []);
    });
});
