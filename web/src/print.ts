// Printing: the page takes the width of the paper and a light theme and paints everything before the browser lays out the
// sheets, and goes back afterwards. What is drawn to a measured width listens here; style sheets do the rest under [data-print].

import { setPaper } from "./theme";

const listeners = new Set<() => void>();
let now = false;

export function printing(): boolean {
  return now;
}

/** Calls `listener` when printing begins and ends, after the page has taken its width; returns the function that ends it. */
export function onPrint(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function change(to: boolean): void {
  now = to;
  if (to) document.documentElement.dataset["print"] = "";
  else delete document.documentElement.dataset["print"];
  setPaper(to);
  for (const listener of listeners) listener();
}

export function startPrint(): void {
  window.addEventListener("beforeprint", () => change(true));
  window.addEventListener("afterprint", () => change(false));
}
