// The page of `vitrine serve` in a real browser, against a server that is made up (mock.mjs): what it asks, what it shows, what
// it keeps, how it fails, and that all of it can be done by keyboard.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, afterEach, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { launch } from "./browser.mjs";
import { ended, lookAt, messages, openChat, reload, reproduction, say } from "./chat-page.mjs";
import { graveFaults, overlaps, tip, tooWide } from "./checks.mjs";
import { Mock } from "./mock.mjs";
import { until } from "./wait.mjs";

/** @type {import("playwright-core").Browser} */
let browser;
/** @type {Mock[]} */
let mocks = [];
before(async () => {
  browser = await launch();
});
afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
  for (const mock of mocks) await mock.stop();
  mocks = [];
});
after(() => browser.close());

/** A made-up server and its page. @param {import("./mock.mjs").Options} [options] @param {Parameters<typeof openChat>[2]} [look] */
async function start(options = {}, look = {}) {
  const mock = new Mock(options);
  mocks.push(mock);
  const url = await mock.start();
  return { mock, url, ...(await openChat(browser, url, look)) };
}

/** The last request to a path. @param {Mock} mock @param {string} path */
const last = (mock, path) => {
  const found = mock.requests.findLast((one) => one.path === path);
  assert.ok(found !== undefined, `nothing asked ${path}`);
  return found.body;
};

const views = ["Alternatives", "Attention", "Logit lens", "Heads", "Change"];

describe("looks", () => {
  // Two looks show both sizes and both themes.
  for (const [size, width, height, dark] of /** @type {const} */ ([["desktop", 1280, 900, false], ["phone", 390, 844, true]]))
    test(`${size}, ${dark ? "dark" : "light"}: no fault, no foreign request, accessible in every view`, async () => {
      const { page, faults } = await start({}, { width, height, dark });
      const check = async (/** @type {string} */ where) => {
        assert.equal(await tooWide(page), 0, `${where}: pixels by which the page is wider than the window`);
        assert.deepEqual(await graveFaults(page, true), [], where);
      };
      await check("empty");
      if (size === "desktop") {
        const [above, below] = await Promise.all(["New conversation", "Import"].map((name) => page.getByRole("button", { name, exact: true }).boundingBox()));
        assert.ok((below?.y ?? 0) - (above?.y ?? 0) - (above?.height ?? 0) >= 8, "buttons touch each other");
      }
      await say(page, "Tell me of the wolf");
      await say(page, "And then?");
      await check("answered");
      await lookAt(page, 4);
      for (const view of views) {
        await page.locator(".glass").getByText(view, { exact: true }).click();
        if (view === "Change") {
          await page.getByText("Answer twice").click();
          await page.locator(".sides").waitFor();
        } else await page.locator(".glass .again").waitFor();
        await page.locator(".glass .again summary").click();
        await page.locator(".glass .again .copyable").nth(1).waitFor();
        assert.deepEqual(await overlaps(page), [], view);
        await check(view);
      }
      await page.keyboard.press("Escape");
      await page.keyboard.press("Alt+KeyK");
      await page.locator("dialog.help[open]").waitFor();
      await check("keys");
      await page.keyboard.press("Escape");
      if (size === "phone") await page.getByText("Menu").click();
      await page.getByText("Sampling").click();
      await page.locator(".sampling input").first().waitFor();
      await check("settings");
      assert.deepEqual(faults, []);
    });

  test("a text model, a key, an error: accessible too", async () => {
    const { page } = await start({ chat: false }, { width: 390, height: 844 });
    await say(page, "Once upon a time");
    assert.deepEqual(await graveFaults(page, true), []);
    const locked = await start({ key: "secret" });
    await locked.page.locator("input[name=key]").waitFor();
    assert.deepEqual(await graveFaults(locked.page, true), []);
  });

  test("nothing moves for a reader who asked for less movement", async () => {
    const { page } = await start({}, { calm: true });
    const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((element) => {
      const style = getComputedStyle(element);
      return style.transitionDuration.split(",").some((time) => parseFloat(time) > 0) || style.animationName !== "none" || style.scrollBehavior === "smooth";
    }).map((element) => element.className));
    assert.deepEqual(moving, []);
  });
});

describe("an answer", () => {
  test("is asked for with what was set, and comes token by token", async () => {
    const { page, mock, faults } = await start();
    mock.hold(5);
    await page.getByLabel("System prompt").fill("Be brief.");
    await page.getByText("Sampling").click();
    for (const [label, value] of [["Temperature", "0.7"], ["Top-p", "0.9"], ["Top-k", "40"], ["Min-p", "0.05"], ["Repetition penalty", "1.1"], ["Seed", "7"], ["Tokens at most", "20"]])
      await page.getByLabel(label ?? "", { exact: true }).fill(value ?? "");
    await page.fill("#text", "Hello");
    await page.keyboard.press("Enter");
    await page.locator(".message.running [data-token]").nth(2).waitFor();
    assert.ok((await page.locator(".message.running [data-token]").count()) <= 5, "the answer is shown while it comes");
    mock.release();
    await ended(page);
    assert.deepEqual(last(mock, "/v1/chat/completions"), {
      model: "made-up-4x3", messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }],
      temperature: 0.7, top_p: 0.9, top_k: 40, min_p: 0.05, repetition_penalty: 1.1, seed: 7, max_tokens: 20,
      logprobs: true, top_logprobs: 8, return_token_ids: true, reasoning_format: "none", stream: true,
    });
    const [, [, text = ""] = []] = await messages(page);
    const prompt = mock.tokenize(mock.template([{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }]), true);
    assert.equal(text, mock.text(mock.generate(prompt, { temperature: 0.7, seed: 7, max_tokens: 20 }).tokens.map(({ id }) => id)));
    assert.match((await page.locator(".ending").textContent()) ?? "", /^20 tokens, cut off at the limit$/);
    // The next message carries what was said.
    await say(page, "More");
    assert.deepEqual(last(mock, "/v1/chat/completions").messages.slice(1), [{ role: "user", content: "Hello" }, { role: "assistant", content: text }, { role: "user", content: "More" }]);
    assert.deepEqual(faults, []);
  });

  test("a setting outside its range is not taken", async () => {
    const { page, mock } = await start();
    await page.getByText("Sampling").click();
    await page.getByLabel("Temperature", { exact: true }).fill("9");
    await say(page, "Hello");
    assert.equal(last(mock, "/v1/chat/completions").temperature, 1);
    assert.notEqual(await page.locator(".sampling .wrong").textContent(), "");
  });

  test("stops at the button and at Escape; the server is left; it can go on from there", async () => {
    const { page, mock, faults } = await start();
    mock.hold(6);
    await page.fill("#text", "Hello");
    await page.keyboard.press("Enter");
    await page.locator(".message.running [data-token]").nth(3).waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await ended(page);
    await until(() => mock.left === 1, "the server is left");
    const [, [, before = ""] = []] = await messages(page);
    const tokens = await page.locator(".message.assistant [data-token]").count();
    assert.ok(tokens >= 4 && tokens <= 6);
    mock.release();
    await page.getByRole("button", { name: "Go on" }).click();
    await ended(page);
    const { prompt, seed } = last(mock, "/v1/completions");
    const first = mock.tokenize(mock.template([{ role: "user", content: "Hello" }]), true);
    assert.deepEqual(prompt.slice(0, first.length), first);
    assert.ok(prompt.length > first.length);
    const [, [, whole = ""] = []] = await messages(page);
    assert.ok(whole.startsWith(before), `“${whole}” goes on from “${before}”`);
    assert.equal(whole, mock.text(prompt.slice(first.length)) + mock.text(mock.generate(prompt, { seed, max_tokens: 512 }, prompt.length - first.length).tokens.map(({ id }) => id)));
    mock.hold(6);
    await page.fill("#text", "More");
    await page.keyboard.press("Enter");
    await page.locator(".message.running [data-token]").first().waitFor();
    await page.keyboard.press("Escape");
    await ended(page);
    assert.match((await page.locator(".ending").last().textContent()) ?? "", /stopped$/);
    assert.deepEqual(faults, []);
  });

  test("once more, and an edited message, stand beside what they replace", async () => {
    const { page, mock, faults } = await start();
    await say(page, "Hello");
    const [, [, first = ""] = []] = await messages(page);
    await page.getByRole("button", { name: "Answer again" }).click();
    await ended(page);
    const [, [, second = ""] = []] = await messages(page);
    assert.notEqual(first, second, "another seed was drawn");
    assert.match((await page.locator(".places").textContent()) ?? "", /2 of 2/);
    assert.equal(await page.evaluate(() => document.activeElement?.className), "transcript chat", "the focus is not lost with the button");
    await page.getByLabel("The one before").click();
    assert.deepEqual((await messages(page))[1]?.[1], first);
    await page.getByRole("button", { name: "Edit" }).first().click();
    await page.getByLabel("Edited text").fill("Good evening");
    await page.getByRole("button", { name: "Send" }).first().click();
    await ended(page);
    assert.deepEqual(last(mock, "/v1/chat/completions").messages, [{ role: "user", content: "Good evening" }]);
    await page.locator(".message.user").getByLabel("The one before").click();
    // The newest answer of that message is shown.
    assert.deepEqual(await messages(page), [["You", "Hello"], ["Answer", second]]);
    // An edited answer is not answered: the reader writes on behind it.
    await page.locator(".message.assistant").getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Edited text").fill("My own words.");
    await page.getByRole("button", { name: "Use" }).click();
    const asked = mock.requests.length;
    await say(page, "Go on");
    assert.equal(mock.requests.length, asked + 1);
    assert.deepEqual(last(mock, "/v1/chat/completions").messages, [{ role: "user", content: "Hello" }, { role: "assistant", content: "My own words." }, { role: "user", content: "Go on" }]);
    assert.deepEqual(faults, []);
  });

  test("curl and the command line of an answer give it again", async () => {
    const { page, mock, faults } = await start();
    await say(page, "It's \"so\" $HOME");
    await page.getByRole("button", { name: "Reproduce" }).click();
    await page.locator(".message .copyable").nth(1).waitFor();
    const [curl = "", command = ""] = await page.locator(".message .copyable code").allTextContents();
    const { stream, ...body } = last(mock, "/v1/chat/completions");
    assert.equal(stream, true);
    await promisify(execFile)("sh", ["-c", curl]);
    assert.deepEqual(last(mock, "/v1/chat/completions"), body);
    assert.equal(command, `vitrine chat --temperature 1 --seed ${body.seed} --max-tokens 512 --model 'made up.gguf' 'It'\\''s "so" $HOME'`);
    // Of a longer conversation, the ids say what the model read.
    await say(page, "And?");
    await page.getByRole("button", { name: "Reproduce" }).last().click();
    await page.locator(".message .copyable").nth(3).waitFor();
    const { messages: longer, seed } = last(mock, "/v1/chat/completions");
    assert.equal(await page.locator(".message .copyable code").last().textContent(), `vitrine generate --tokens ${mock.tokenize(mock.template(longer), true).join(",")} --temperature 1 --seed ${seed} --max-tokens 512 --model 'made up.gguf'`);
    assert.deepEqual(faults, []);
  });

  test("shows code apart, with every token where it was", async () => {
    const { page, mock, faults } = await start();
    mock.rename(" house", "\n```js\nlet a");
    mock.rename(" the", " = 1;\n");
    mock.rename(" sat", "\n```\n");
    const prompt = mock.tokenize(mock.template([{ role: "user", content: "Code" }]), true);
    const said = (/** @type {number} */ seed) => mock.text(mock.generate(prompt, { seed, max_tokens: 512 }).tokens.map(({ id }) => id));
    let seed = 0;
    while (!/^[^`]*\n```js\nlet a[^`]*\n```\n[^`]* /.test(said(seed)) || said(seed).includes("🦊")) ++seed;
    await page.getByText("Sampling").click();
    await page.getByLabel("Seed", { exact: true }).fill(String(seed));
    await say(page, "Code");
    const [, [, text = ""] = []] = await messages(page);
    const { tokens } = mock.generate(prompt, { seed, max_tokens: 512 });
    assert.equal(text, said(seed));
    const [code = ""] = await page.locator(".fenced").allTextContents();
    assert.equal(code, /```js\nlet a[^`]*\n```/.exec(text)?.[0]);
    assert.deepEqual(await page.locator(".message.assistant [data-token]").evaluateAll((all) => {
      /** @type {string[]} */
      const by = [];
      for (const one of all) by[Number(one.getAttribute("data-token"))] = (by[Number(one.getAttribute("data-token"))] ?? "") + one.textContent;
      return by;
    }), tokens.map(({ id }) => mock.vocabulary[id]));
    assert.deepEqual(faults, []);
  });

  test("is text and nothing else, whatever it says", async () => {
    const { page, mock, faults } = await start();
    for (const word of [" house", " the", " one", " a", " it"]) mock.rename(word, " <img src=x onerror=alert(1)>");
    for (const word of [" wolf", " sat", " had", " on", " king"]) mock.rename(word, " <script>document.title='spoilt'</script>");
    await say(page, "<b>bold</b> & <img src=y>");
    assert.match((await messages(page))[1]?.[1] ?? "", /<img src=x.*<script>|<script>.*<img src=x/);
    await say(page, "again");
    assert.equal(await page.locator(".message img, .message script, .message b").count(), 0);
    assert.equal((await messages(page))[0]?.[1], "<b>bold</b> & <img src=y>");
    assert.equal(await page.title(), "made-up-4x3 – vitrine");
    // The policy refuses scripts that are not the page's own.
    await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "document.title = 'spoilt'";
      document.body.append(script);
    });
    assert.equal(await page.title(), "made-up-4x3 – vitrine");
    // Refused by the policy of the answer and by that of the page.
    assert.equal(faults.filter((fault) => fault.includes("Content Security Policy")).length, 2);
    assert.equal(faults.length, 2, faults.join("\n"));
  });
});

describe("a model without a chat template", () => {
  test("continues texts, and goes on when nothing is added", async () => {
    const { page, mock, faults } = await start({ chat: false });
    assert.equal(await page.getByLabel("System prompt").count(), 0);
    await say(page, "Once upon a time");
    const { prompt, logprobs, return_token_ids } = last(mock, "/v1/completions");
    assert.deepEqual([prompt, logprobs, return_token_ids], ["Once upon a time", 8, true]);
    const [, [who, text = ""] = []] = await messages(page);
    assert.equal(who, "Continuation");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".message").length === 3);
    await ended(page);
    assert.equal(last(mock, "/v1/completions").prompt, `Once upon a time${text}`);
    await lookAt(page, 3, "Attention");
    await page.locator(".looks").waitFor();
    const { prompt: ids } = last(mock, "/v1/inspect");
    assert.deepEqual(ids.slice(0, 4), mock.tokenize("Once upon a time", true));
    assert.deepEqual(faults, []);
  });
});

describe("conversations", () => {
  test("stay in the browser, are exported, brought in elsewhere, and deleted", async () => {
    const { page, url, faults } = await start();
    await say(page, "The first");
    await page.keyboard.press("Alt+KeyN");
    await say(page, "The second");
    await page.getByRole("button", { name: "Answer again" }).click();
    await ended(page);
    const shown = await messages(page);
    await reload(page);
    assert.deepEqual(await messages(page), shown);
    assert.deepEqual(await page.locator(".conversations .title").allTextContents(), ["The second", "The first"]);
    // The tokens are kept too.
    await lookAt(page, 2);
    assert.equal(await page.locator(".alternatives li").count(), 8);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
    const path = await download.path();

    const other = await openChat(browser, url);
    await other.page.locator("input[type=file]").setInputFiles({ name: "conversations.json", mimeType: "application/json", buffer: await import("node:fs").then((fs) => fs.readFileSync(path)) });
    await other.page.waitForSelector(".conversations li >> nth=1");
    assert.deepEqual((await other.page.locator(".conversations .title").allTextContents()).sort(), ["The first", "The second"]);
    await other.page.getByText("The second").first().click();
    assert.deepEqual(await messages(other.page), shown);
    other.page.on("dialog", (dialog) => void dialog.accept());
    await other.page.getByLabel("Delete “The second”").click();
    await other.page.locator(".conversations .title", { hasText: "The second" }).waitFor({ state: "detached" });
    assert.deepEqual(await other.page.locator(".conversations .title").allTextContents(), ["The first"]);
    await reload(other.page);
    assert.deepEqual(await other.page.locator(".conversations .title").allTextContents(), ["The first"]);
    assert.deepEqual([faults, other.faults], [[], []]);
  });

  test("are the same in two tabs, and an answer that was coming is kept when the page is left", async () => {
    const { page, mock, url } = await start();
    await say(page, "The first");
    const other = await page.context().newPage();
    await other.goto(url);
    await other.waitForSelector(".message");
    await say(page, "And more");
    const shown = await messages(page);
    // The other tab is told twice: when the answer begins, and when it is complete.
    await other.waitForFunction((last) => [...document.querySelectorAll(".message .text")].at(3)?.textContent === last, shown[3]?.[1]);
    assert.deepEqual(await messages(other), shown);
    mock.hold(8);
    await page.fill("#text", "Once more");
    await page.keyboard.press("Enter");
    await page.locator(".message.running [data-token]").nth(4).waitFor();
    await reload(page);
    const [who, text = ""] = (await messages(page)).at(-1) ?? [];
    assert.equal(who, "Answer");
    assert.ok(text.length > 4, text);
    assert.match((await page.locator(".message.assistant").last().textContent()) ?? "", /, stopped$/);
  });

  test("files that are no export are refused by name", async () => {
    const { page, faults } = await start();
    for (const [what, text, said] of /** @type {const} */ ([
      ["no JSON", "{", /^x\.json: The file is no JSON/],
      ["another file", "[1, 2]", /the file is not an object/],
      ["another kind", '{"kind": "recipes", "version": 1}', /no "kind": "vitrine conversations"/],
      ["a message without a parent", JSON.stringify({ kind: "vitrine conversations", version: 1, conversations: [{ id: "a", title: "", changed: 1, mode: "chat", system: "", settings: {}, leaf: "b", messages: [{ id: "b", parent: "c", role: "user", text: "", tokens: [], given: 0, end: "stop", error: "", sampling: {} }] }] }), /parent does not stand before it/],
      ["a setting that is none", JSON.stringify({ kind: "vitrine conversations", version: 1, conversations: [{ id: "a", title: "", changed: 1, mode: "chat", system: "", settings: {}, leaf: null, messages: [{ id: "b", parent: null, role: "user", text: "", tokens: [], given: 0, end: "stop", error: "", sampling: { stream: 1 } }] }] }), /sampling has "stream", which is no setting/],
      ["a token that is none", JSON.stringify({ kind: "vitrine conversations", version: 1, conversations: [{ id: "a", title: "", changed: 1, mode: "chat", system: "", settings: {}, leaf: null, messages: [{ id: "b", parent: null, role: "user", text: "", tokens: [[["x", "y", 0], []]], given: 0, end: "stop", error: "", sampling: {} }] }] }), /conversations\[0\]\.messages\[0\]\.tokens\[0\]\[0\]\[1\] is not a number/],
    ])) {
      // The notice goes away by itself: it is looked out for before it comes.
      const refused = page.waitForFunction((source) => new RegExp(source).test(document.querySelector(".notice.shown")?.textContent ?? ""), said.source).catch(() => assert.fail(`${what} is not refused as it should`));
      await page.locator("input[type=file]").setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from(text) });
      await refused;
      assert.equal(await page.locator(".conversations").count(), 0);
    }
    assert.deepEqual(faults, []);
  });

  test("when the browser's room is full, the older tokens go first and the texts stay", async () => {
    const { page, faults } = await start();
    await say(page, "The first");
    await page.keyboard.press("Alt+KeyN");
    // All of the room but a little.
    await page.evaluate(() => {
      for (let size = 4 << 20; size > 500; size = Math.floor(size / 2))
        for (let i = 0; ; ++i)
          try {
            localStorage.setItem(`filler ${size} ${i}`, "x".repeat(size));
          } catch {
            break;
          }
    });
    await say(page, "The second");
    const kept = await page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("vitrine.")).map((key) => JSON.parse(localStorage.getItem(key) ?? "")));
    assert.deepEqual(kept.map((one) => [one.title, one.messages.length]).sort(), [["The first", 2], ["The second", 2]]);
    assert.deepEqual(kept.find((one) => one.title === "The first").messages[1].tokens, []);
    assert.ok(kept.find((one) => one.title === "The first").messages[1].text.length > 20);
    assert.deepEqual(faults, []);
  });
});

describe("the glass", () => {
  test("alternatives have their probabilities; one of them branches the answer", async () => {
    const { page, mock, faults } = await start();
    await say(page, "Hello");
    const first = mock.tokenize(mock.template([{ role: "user", content: "Hello" }]), true);
    const { seed } = last(mock, "/v1/chat/completions");
    const { tokens } = mock.generate(first, { seed, max_tokens: 512 });
    const shown = await messages(page);
    await lookAt(page, 5);
    const fifth = tokens[5];
    assert.ok(fifth !== undefined);
    assert.deepEqual(await page.locator(".alternatives li bdi").allTextContents(), fifth.top.slice(0, 8).map(({ id }) => (mock.vocabulary[id] ?? "").replaceAll(" ", "␣")));
    const shares = (await page.locator(".alternatives li b").allTextContents()).map((text) => parseFloat(text));
    fifth.top.slice(0, 8).forEach(({ logprob }, i) => assert.ok(Math.abs(100 * Math.exp(logprob) - (shares[i] ?? NaN)) < 0.06, `${shares[i]}`));
    const other = fifth.top.find(({ id }) => id !== fifth.id && !mock.vocabulary[id]?.startsWith("bytes:"));
    assert.ok(other !== undefined);
    await page.locator(".alternatives button", { hasText: (mock.vocabulary[other.id] ?? "").trim() }).first().click();
    await ended(page);
    const { prompt } = last(mock, "/v1/completions");
    assert.deepEqual(prompt, [...first, ...tokens.slice(0, 5).map(({ id }) => id), other.id]);
    const [, [, text = ""] = []] = await messages(page);
    assert.ok(text.startsWith(mock.text(prompt.slice(first.length))), text);
    assert.match((await page.locator(".places").textContent()) ?? "", /2 of 2/);
    assert.ok(await page.evaluate(() => document.activeElement !== document.body), "the focus is not lost");
    await page.getByLabel("The one before").click();
    assert.deepEqual(await messages(page), shown);
    assert.deepEqual(faults, []);
  });

  test("without ids from the server, they come from the tokenizer", async () => {
    const { page, mock, faults } = await start({ ids: false });
    await say(page, "Hello");
    const first = mock.tokenize(mock.template([{ role: "user", content: "Hello" }]), true);
    const { tokens } = mock.generate(first, { seed: last(mock, "/v1/chat/completions").seed, max_tokens: 512 });
    const whole = tokens.findIndex(({ id }, i) => i > 2 && !mock.vocabulary[id]?.startsWith("bytes:"));
    await lookAt(page, whole, "Logit lens");
    await page.locator(".cells").waitFor();
    assert.deepEqual(last(mock, "/v1/lens").prompt, [...first, ...tokens.slice(0, whole).map(({ id }) => id)]);
    assert.deepEqual(faults, []);
  });

  test("a character of two tokens is shown once, and each token is reached", async () => {
    const { page, mock, faults } = await start({ length: 200 });
    await say(page, "Hello");
    const { tokens } = mock.generate(mock.tokenize(mock.template([{ role: "user", content: "Hello" }]), true), { seed: last(mock, "/v1/chat/completions").seed, max_tokens: 512 });
    const at = tokens.findIndex(({ id }) => mock.vocabulary[id]?.startsWith("bytes:"));
    assert.ok(at >= 0, "the made-up model said it");
    const [, [, text = ""] = []] = await messages(page);
    assert.equal(text, mock.text(tokens.map(({ id }) => id)));
    // The first of them is the space and a part of the letter, which stands with the second.
    assert.deepEqual([await page.locator(`[data-token="${at}"]`).textContent(), await page.locator(`[data-token="${at + 1}"]`).textContent()], [" ", "🦊"]);
    await lookAt(page, at + 1);
    assert.equal(await page.locator(".steps output").textContent(), `${at + 2} of 200`);
    await page.getByLabel("The token before").click();
    assert.match((await page.locator("#glass-title").textContent()) ?? "", /^bytes:/);
    assert.deepEqual(faults, []);
  });

  test("attention, lens and head scores are the server's numbers, and each can be had without the page", async () => {
    const { page, mock, faults } = await start();
    await say(page, "Hello");
    const first = mock.tokenize(mock.template([{ role: "user", content: "Hello" }]), true);
    const { tokens } = mock.generate(first, { seed: last(mock, "/v1/chat/completions").seed, max_tokens: 512 });
    const at = 7, step = [...first, ...tokens.slice(0, at).map(({ id }) => id)];
    /** What the mock answers to a request like the page's. @param {string} path @param {any} body */
    const answer = (path, body) => {
      /** @type {any} */
      let found;
      mock.answer(path, body, (_, json) => (found = json), assert.fail, /** @type {any} */ (null));
      return found;
    };
    /** The curl of the view answers what the view shows. @param {string} path @param {any} body */
    const checkCurl = async (path, body) => {
      const [curl = "", command = ""] = await reproduction(page);
      assert.deepEqual(JSON.parse((await promisify(execFile)("sh", ["-c", curl])).stdout), answer(path, body));
      return command;
    };

    await lookAt(page, at, "Attention");
    const grid = page.locator(".glass .heat-area");
    await grid.waitFor();
    const inspect = { prompt: step, hooks: ["blocks.*.attn.hook_pattern[positions=-1]"] };
    assert.deepEqual(last(mock, "/v1/inspect"), inspect);
    await grid.focus();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    const weights = answer("/v1/inspect", inspect).hooks[2].values[1][0];
    const strongest = weights.indexOf(Math.max(...weights));
    assert.ok((await tip(page)).startsWith(`Layer 2, head 1\nmost on ${(mock.vocabulary[step[strongest] ?? 0] ?? "").replaceAll(" ", "␣")} (position ${strongest}): `), await tip(page));
    assert.equal(await page.locator(".glass h3").textContent(), "Layer 2, head 1");
    const [top = ""] = await page.locator(".looks li").allTextContents();
    assert.ok(Math.abs(parseFloat(/([\d.]+) %/.exec(top)?.[1] ?? "") - 100 * weights[strongest]) < 0.06, top);
    assert.equal(await page.locator(".weighted bdi").count(), step.length);
    assert.equal(await checkCurl("/v1/inspect", inspect), answer("/v1/inspect", inspect).command);

    await page.locator(".glass").getByText("Logit lens", { exact: true }).click();
    await page.locator(".cells").waitFor();
    const lens = { prompt: step, positions: [-1], top: 5 };
    assert.deepEqual(last(mock, "/v1/lens"), lens);
    assert.deepEqual((await page.locator(".cells .row-name").allTextContents()).slice(0, 2), ["embedding", "layer 0"]);
    // One direction of color: in the text and in the lens the more likely is the stronger.
    const lightness = (/** @type {string} */ color) => (color.match(/\d+/g) ?? []).slice(0, 3).reduce((sum, channel) => sum + Number(channel), 0);
    const ofText = await page.locator(".text [data-token]:not(.looked)").evaluateAll((all) => all.map((one) => [Number(one.getAttribute("data-token")), getComputedStyle(one).backgroundColor]));
    const shades = ofText.map(([i, color]) => ({ logprob: tokens[Number(i)]?.logprob ?? 0, light: lightness(String(color)) })).sort((a, b) => a.logprob - b.logprob);
    assert.ok((shades[0]?.light ?? 0) >= (shades.at(-1)?.light ?? 0), "the less likely token has the stronger color");
    assert.match((await page.locator(".glass").textContent()) ?? "", /Colors of the answer: the token’s probability0 %100 %/);
    const layer = answer("/v1/lens", lens).layers[4];
    assert.equal(await page.locator('.cell[data-at="4 1"] bdi').textContent(), layer.positions[0].top[1].piece.replaceAll(" ", "␣"));
    const framed = layer.positions[0].top.findIndex((/** @type {any} */ one) => one.token === tokens[at]?.id);
    assert.ok(await page.locator(`.cell[data-at="4 ${framed}"]`).evaluate((cell) => cell.classList.contains("framed")));
    assert.equal(await checkCurl("/v1/lens", lens), `vitrine picture logit-lens --tokens ${step.join(",")} --json --model 'made up.gguf'`);

    await page.locator(".glass").getByText("Heads", { exact: true }).click();
    await page.locator(".glass .heat-area").waitFor();
    const token = tokens[at];
    assert.ok(token !== undefined);
    const heads = { prompt: step, token: token.id, against: token.top.find(({ id }) => id !== token.id)?.id, position: -1 };
    assert.deepEqual(last(mock, "/v1/heads"), heads);
    assert.equal(await checkCurl("/v1/heads", heads), `vitrine picture logit-attribution --tokens ${step.join(",")} --json --model 'made up.gguf'`);
    await page.locator(".glass").getByText("logit", { exact: true }).first().click();
    await until(() => last(mock, "/v1/heads").against === undefined, "a score without another token");
    await page.locator(".glass .heat-area").waitFor();
    // A cell of the grid leads to the change that switches that part off.
    await page.locator(".glass .heat-area").focus();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    assert.equal(await page.getByLabel("Layer", { exact: true }).inputValue(), "1");
    assert.equal(await page.getByLabel("Head", { exact: true }).inputValue(), "1");
    assert.deepEqual(faults, []);
  });

  test("a head, a layer, attention or MLP off, or a direction added: both answers side by side", async () => {
    const { page, mock, faults } = await start();
    await say(page, "Hello");
    const first = mock.tokenize(mock.template([{ role: "user", content: "Hello" }]), true);
    const { seed } = last(mock, "/v1/chat/completions");
    await lookAt(page, 6, "Change");
    for (const [what, fill, edits] of /** @type {const} */ ([
      ["a head off", { Layer: "2", Head: "1" }, [{ head: "2.1", do: "zero" }]],
      ["a layer off", { Layer: "3" }, [{ layer: "3", do: "identity" }]],
      ["attention off", { Layer: "0" }, [{ attn: "0", do: "zero" }]],
      ["MLP off", { Layer: "1" }, [{ mlp: "1", do: "zero" }]],
      ["steer", { "More like": "The queen", "Less like": "The 'king'", "After layer": "2", Strength: "-1.5" }, [{ hook: "resid_post.2", do: "add", vector: { plus: "The queen", minus: "The 'king'" }, times: -1.5 }]],
    ])) {
      await page.locator(".change").getByText(what, { exact: true }).click();
      for (const [label, value] of Object.entries(fill)) await page.getByLabel(label, { exact: true }).fill(value);
      const body = { prompt: first, edits: [...edits], temperature: 1, seed, max_tokens: 40 };
      const text = (/** @type {any} */ one) => mock.text(mock.generate(first, one).tokens.map(({ id }) => id));
      await page.getByRole("button", { name: "Answer twice" }).click();
      await page.waitForFunction((changed) => document.querySelector(".sides section:nth-child(2) .text")?.textContent === changed, text(body)).catch(() => assert.fail(`${what}: the changed answer is not shown`));
      assert.deepEqual(last(mock, "/v1/steer"), body);
      assert.equal(await page.locator(".sides .text").first().textContent(), text({ ...body, edits: [] }));
      const [curl = "", command = ""] = await reproduction(page);
      assert.equal(JSON.parse((await promisify(execFile)("sh", ["-c", curl])).stdout).after.text, text(body));
      assert.ok(command.includes(`prompt: {tokens: [${first.join(", ")}]}\ninterventions:\n  - ${JSON.stringify(edits[0])}\nEND\nvitrine intervene recipe.yaml --model 'made up.gguf'`), command);
    }
    await page.getByText("this token", { exact: true }).click();
    await page.getByRole("button", { name: "Answer twice" }).click();
    await until(() => last(mock, "/v1/steer").prompt.length === first.length + 6, "a change from this token on");
    assert.deepEqual(faults, []);
  });

  test("a server that lacks an endpoint, or answers in another form, is said to", async () => {
    const { page, mock } = await start({ missing: ["/v1/lens", "/v1/model"] });
    await say(page, "Hello");
    await lookAt(page, 2, "Logit lens");
    await page.locator(".glass .trouble").waitFor();
    assert.match((await page.locator(".glass .trouble").textContent()) ?? "", /^This server does not offer v1\/lens/);
    // An answer in another form ends that view alone.
    mock.next.set("/v1/heads", { status: 200 });
    await page.locator(".glass").getByText("Heads", { exact: true }).click();
    await page.locator(".glass .trouble").waitFor();
    assert.match((await page.locator(".glass .trouble").textContent()) ?? "", /^The server answered in a form that this view does not read: /);
    await page.locator(".glass").getByText("Attention", { exact: true }).click();
    await page.locator(".looks").waitFor();
  });
});

describe("what goes wrong", () => {
  test("a key is asked for, kept for the tab alone, and not shown in commands", async () => {
    const { page, mock } = await start({ key: "top-secret" });
    await page.locator("input[name=key]").fill("wrong");
    await page.getByRole("button", { name: "Use this key" }).click();
    await until(() => mock.requests.at(-1)?.key === "Bearer wrong", "a request with the wrong key");
    await page.locator("input[name=key]").fill("top-secret");
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.waitForSelector("h1 bdi:text-is('made-up-4x3')");
    await say(page, "Hello");
    assert.equal(mock.requests.at(-1)?.key, "Bearer top-secret");
    await page.getByRole("button", { name: "Reproduce" }).click();
    await page.locator(".message .copyable").nth(1).waitFor();
    assert.match((await page.locator(".message .copyable code").first().textContent()) ?? "", /-H "Authorization: Bearer \$VITRINE_API_KEY"/);
    assert.ok(!(await page.content()).includes("top-secret"));
    assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("top-secret"));
  });

  test("a full queue, too long a conversation, a broken stream: told in words, and tried again", async () => {
    const { page, mock } = await start();
    for (const [what, next, said] of /** @type {const} */ ([
      ["a full queue", { status: 429, headers: { "Retry-After": "7" }, error: { message: "The queue is full.", type: "rate_limit_error", code: "queue_full" } }, "The queue is full. Try again in 7 s."],
      ["a server that ends", { status: 503, error: { message: "The server is shutting down.", type: "unavailable_error", code: "draining" } }, "The server is shutting down. Try again in a while."],
      ["too long a conversation", { status: 400, error: { message: "The prompt has 700 tokens, the model reads 512.", code: "context_length_exceeded" } }, "The prompt has 700 tokens, the model reads 512. Start a new conversation, edit an earlier message, or ask for fewer tokens."],
      ["a refused field", { status: 400, error: { message: "min_p is not supported", code: "unsupported_parameter" } }, "min_p is not supported"],
      ["a fault of the server", { status: 500, error: { message: "Something broke, report 17.", code: "internal" } }, "Something broke, report 17."],
      ["a connection that breaks off", { status: 200, breakAfter: 6 }, "The connection to the server broke off in the middle of the answer."],
      ["an error inside the stream", { status: 200, breakAfter: 6, error: { message: "The engine failed.", code: "engine" } }, "The engine failed."],
    ])) {
      mock.next.set("/v1/chat/completions", next);
      // A connection that breaks takes with it what the browser has not handed on yet: it breaks when the page shows something.
      if ("breakAfter" in next) mock.hold(next.breakAfter - 1);
      await page.fill("#text", "Hello");
      await page.keyboard.press("Enter");
      if ("breakAfter" in next) {
        await page.locator(".message.running [data-token]").first().waitFor();
        mock.release();
      }
      await ended(page);
      assert.equal(await page.locator(".message .trouble p").textContent(), said, what);
      await page.getByRole("button", { name: "Try again" }).click();
      await ended(page);
      assert.equal(await page.locator(".message .trouble").count(), 0, what);
      assert.ok((await page.locator(".ending").textContent())?.endsWith("24 tokens"), what);
      // What came before the end is kept beside the new answer.
      assert.equal(await page.locator(".places").count(), "breakAfter" in next ? 1 : 0, what);
      await page.keyboard.press("Alt+KeyN");
    }
  });

  test("a server that is gone: said, and found again", async () => {
    const { page, mock, url } = await start();
    await mock.stop();
    await say(page, "Hello");
    assert.equal(await page.locator(".message .trouble p").textContent(), "The server does not answer. Is vitrine serve still running?");
    await mock.start(Number(new URL(url).port));
    await page.getByRole("button", { name: "Try again" }).click();
    await ended(page);
    assert.equal(await page.locator(".message .trouble").count(), 0);
  });
});

describe("by keyboard alone", () => {
  test("from the top of the page to a changed answer", async () => {
    const { page, mock, faults } = await start();
    const focus = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.id ?? document.activeElement?.textContent ?? "");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "To the message");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "text");
    await page.keyboard.type("Hello");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("there");
    await page.keyboard.press("Enter");
    await ended(page);
    assert.equal(last(mock, "/v1/chat/completions").messages[0].content, "Hello\nthere");
    await page.keyboard.press("Alt+KeyL");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "glass-title");
    await page.keyboard.press("Tab");  // Close
    await page.keyboard.press("Tab");  // The token before is off at the first one
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("type")), "range");
    for (let i = 0; i < 4; ++i) await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator(".steps output").textContent(), "5 of 24");
    assert.equal(await page.locator(".looked").getAttribute("data-token"), "4");
    await page.keyboard.press("Tab");  // The next token
    await page.keyboard.press("Tab");  // the views
    for (let i = 0; i < 4; ++i) await page.keyboard.press("ArrowRight");
    await page.locator(".change").waitFor();
    await page.keyboard.press("Tab");  // what is changed
    await page.keyboard.press("Tab");  // Layer
    await page.keyboard.type("1");
    await page.keyboard.press("Enter");
    await page.locator(".sides").waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".glass").count(), 0);
    assert.equal(await focus(), "text", "the focus is where it was");
    // Every control of the page is reached, in the order in which it is read.
    /** @type {string[]} */
    const order = [];
    await page.locator(".skip").focus();
    for (let at = "A"; at !== "" && order.length < 60; await page.keyboard.press("Tab")) {
      at = await page.evaluate(() => {
        const element = document.activeElement;
        return element === null || element === document.body ? "" : `${element.closest("header, nav, main, aside")?.tagName ?? "A"} ${element.getAttribute("aria-label") ?? element.textContent}`;
      });
      if (at !== "") order.push(at);
    }
    const names = order.join("\n");
    for (const name of ["HEADER Keys", "NAV New conversation", "NAV Delete “Hello there”", "NAV Export", "MAIN Look inside", "MAIN Answer again", "MAIN Edit", "MAIN Copy", "MAIN Reproduce"]) assert.ok(names.includes(name), `${name} is not reached:\n${names}`);
    const places = order.map((at) => ["A", "HEADER", "NAV", "MAIN"].indexOf(at.split(" ")[0] ?? ""));
    assert.deepEqual(places, [...places].sort((a, b) => a - b), names);
    await page.keyboard.press("Alt+KeyN");
    assert.equal(await page.locator(".message").count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement?.id), "text");
    assert.deepEqual(faults, []);
  });
});
