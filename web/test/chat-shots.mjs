// Screenshots of the server's page to look at, against the made-up server: each view, on a desktop and a phone, light and dark,
// into out/shots.
//   node test/chat-shots.mjs [URL]      URL: of a real server, in place of the made-up one

import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "./browser.mjs";
import { ended, lookAt, openChat, say } from "./chat-page.mjs";
import { Mock } from "./mock.mjs";
import { still } from "./wait.mjs";

const out = join(dirname(fileURLToPath(import.meta.url)), "..", "out", "shots");
mkdirSync(out, { recursive: true });
const mock = process.argv[2] === undefined ? new Mock() : null;
const text = new Mock({ chat: false });
const url = process.argv[2] ?? (await mock?.start()) ?? "";
const textUrl = await text.start();
const browser = await launch();
for (const [size, width, height] of /** @type {const} */ ([["desktop", 1280, 900], ["phone", 390, 844]]))
  for (const dark of [false, true]) {
    const { page, faults } = await openChat(browser, url, { width, height, dark });
    const shot = (/** @type {string} */ name) => page.screenshot({ path: join(out, `chat-${size}-${dark ? "dark" : "light"}-${name}.png`) });
    await shot("1-empty");
    await say(page, "Once there was an old wolf who lived beside the water");
    await page.getByRole("button", { name: "Answer again" }).click();
    await ended(page);
    await say(page, "And then?");
    await shot("2-answered");
    for (const [i, view] of ["Alternatives", "Attention", "Logit lens", "Heads", "Change"].entries()) {
      await lookAt(page, 6, view);
      if (view === "Change") {
        await page.getByRole("button", { name: "Answer twice" }).click();
        await page.locator(".sides").waitFor();
      } else await page.locator(".glass .again").waitFor();
      await still(page);
      await shot(`${i + 3}-${view.toLowerCase().replace(" ", "-")}`);
    }
    await page.keyboard.press("Escape");
    if (width < 600) await page.getByText("Menu").click();
    await page.getByText("Sampling").click();
    await page.locator(".sampling input").first().waitFor();
    await shot("8-settings");
    if (width < 600) await page.keyboard.press("Escape");
    await page.keyboard.press("Alt+KeyK");
    await page.locator("dialog.help[open]").waitFor();
    await shot("9-keys");
    for (const fault of faults) console.log(`${size}: ${fault}`);
    await page.context().close();
    const other = await openChat(browser, textUrl, { width, height, dark });
    await say(other.page, "Once upon a time");
    await say(other.page, "");
    await other.page.screenshot({ path: join(out, `chat-${size}-${dark ? "dark" : "light"}-text.png`) });
    await other.page.context().close();
  }
await browser.close();
await mock?.stop();
await text.stop();
