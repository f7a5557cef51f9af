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
  const from = parts.findIndex((part) => part.getBoundingClientRect().bottom > 0);
  const below = (from < 0 ? [] : parts.slice(from)).map((part) => ({ part, top: part.getBoundingClientRect().top }));
  draw();
  if (window.scrollY === 0) return;
  requestAnimationFrame(() => {
    const seen = below.find(({ part }) => part.isConnected);  // some parts go, and others come in their place
    if (seen !== undefined) window.scrollBy({ top: seen.part.getBoundingClientRect().top - seen.top, behavior: "instant" });
  });
}
