// Light or dark: the reader's choice where there is one, else what the system prefers. Everything drawn on a canvas asks
// here, because a canvas does not follow style sheets.

export type Theme = "light" | "dark";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let chosen: Theme | undefined;
let paper = false;  // being printed

export function theme(): Theme {
  return paper ? "light" : chosen ?? (system.matches ? "dark" : "light");
}

/** Paper is light, whatever the page is. */
export function setPaper(to: boolean): void {
  if (paper === to) return;
  paper = to;
  announce();
}

/** What `work` gives while the page is light and drawn so. */
export async function inLight<T>(work: () => Promise<T>): Promise<T> {
  setPaper(true);
  try {
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return await work();
  } finally {
    setPaper(false);
  }
}

/** Calls `listener` after every change; returns the function that ends it. */
export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function toggleTheme(): void {
  chosen = theme() === "dark" ? "light" : "dark";
  announce();
}

function announce(): void {
  document.documentElement.dataset["theme"] = theme();
  for (const listener of listeners) listener();
}

/** Sets the page's colors for the first time and follows the system from then on. */
export function startTheme(): void {
  system.addEventListener("change", () => {
    if (chosen === undefined) announce();
  });
  announce();
}

const less = window.matchMedia("(prefers-reduced-motion: reduce)");

/** True where the reader has asked the system for less movement. */
export function calm(): boolean {
  return less.matches;
}

/** Calls `listener` once the reader asks for it; returns the function that ends that. */
export function onCalm(listener: () => void): () => void {
  const changed = () => calm() && listener();
  less.addEventListener("change", changed);
  return () => less.removeEventListener("change", changed);
}
