// The page that `vitrine serve` gives at /explain: asks the server for the data of the walk-through, with the reader's key where one is
// needed, and then runs the page of `vitrine explain` on it.

import type { Vitrine } from "../data";
import { setKey } from "../key";
import { withOptions } from "../options";
import { askServer, Refused, type ServedModel } from "./ask";

const root = document.getElementById("vitrine")!;

function element<K extends keyof HTMLElementTagNameMap>(name: K, properties: Partial<HTMLElementTagNameMap[K]>, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function show(...children: (Node | string)[]): void {
  root.replaceChildren(element("main", { id: "main" }, element("header", { className: "opening" }, ...children)));
}

function button(text: string, onclick: () => void): HTMLButtonElement {
  return element("button", { type: "button", onclick }, text);
}

function askForKey(problem: string): void {
  const input = element("input", { type: "password", name: "key", autocomplete: "off", required: true });
  const form = element("form", {}, element("label", {}, "API key ", input), " ", element("button", { type: "submit" }, "Use this key"));
  form.onsubmit = (event) => {
    event.preventDefault();
    setKey(input.value);
    void begin();
  };
  const said = element("p", {}, problem);
  said.setAttribute("role", "alert");
  show(element("h1", {}, "This server asks for a key"), said, form, element("p", { className: "hint" }, "It is kept until this tab is closed, and sent to this server alone."));
  input.focus();
}

/** The prompt in the page's address: "explain?prompt=The king". */
function promptOfAddress(): string | null {
  const given = new URLSearchParams(location.search).get("prompt");
  return given === "" ? null : given;
}

async function begin(): Promise<void> {
  show(element("h1", {}, "A walk through this model"), element("p", { className: "summary" }, "The server draws the pictures …"));
  try {
    const model = await askServer<ServedModel>("v1/live");
    const prompt = typeof model.prompt === "string" ? promptOfAddress() ?? model.prompt : model.prompt;
    const data = await askServer<Vitrine>("v1/live/document", { prompt, gradients: false });
    window.vitrine = withOptions(data, model.command_options);
    window.vitrineServer = model;
    document.title = `${data.prompt.text ?? "Token ids"} – ${model.model}`;
    // The policy knows the page's script by its hash, wherever it stands.
    document.body.append(element("script", { textContent: document.getElementById("vitrine-page")!.textContent }));
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) return askForKey(said);
    const alert = element("p", {}, said);
    alert.setAttribute("role", "alert");
    show(element("h1", {}, "The server gave no walk-through"), alert, button("Try again", () => void begin()));
  }
}

void begin();
