// Makes a page live where it holds the engine and the weights, or came from a server; any other page stays as it is.

import { render } from "preact";
import { vitrine } from "../document";
import { begin, onDocument } from "./actions";
import "./live.css";
import { Panel } from "./panel";
import { engineOfServer } from "./server";
import { set } from "./state";
import { engineOfPage } from "./thread";

/** `draw` draws the page again from the document. */
export function startLive(draw: () => void): void {
  if ("kind" in window.vitrine) return;
  const engine = engineOfPage() ?? engineOfServer();
  if (engine === null) return;
  onDocument(() => inPlace(draw));
  engine.onBusy((busy) => set({ busy }));
  set({ engine, prompt: vitrine.prompt.text ?? vitrine.prompt.ids.join(", ") });
  const place = document.createElement("div");
  place.id = "live";
  document.body.prepend(place);
  document.documentElement.classList.add("is-live");
  render(<Panel />, place);
  begin();
}

/** What the reader looks at stays where it is, though what stands above it may become longer or shorter. */
function inPlace(draw: () => void): void {
  const parts = [...document.querySelectorAll<HTMLElement>("main > section > *")];
  const seen = parts.find((part) => part.getBoundingClientRect().bottom > 0);
  const top = seen?.getBoundingClientRect().top ?? 0;
  draw();
  if (window.scrollY === 0 || seen === undefined) return;
  requestAnimationFrame(() => window.scrollBy({ top: seen.getBoundingClientRect().top - top, behavior: "instant" }));
}
