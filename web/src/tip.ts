// The one note that shows exact numbers: beside the pointer on hover, beside the focused mark on keyboard focus. It is
// written to directly, not rendered, so that a move over a large grid costs no more than one text change.

import { calm } from "./theme";

let box: HTMLElement | undefined;
let voice: HTMLElement | undefined;
let spoken = false;  // the note belongs to the keyboard's focus, not to the pointer
let scrolled = 0;  // where the page stood when the note was placed
let place: readonly [number, number] = [0, 0];

export function startTip(): void {
  box = document.createElement("div");
  box.id = "tip";
  box.setAttribute("aria-hidden", "true");  // the same words reach a screen reader through `voice`
  voice = document.createElement("div");
  voice.className = "unseen";
  voice.setAttribute("role", "status");
  document.body.append(box, voice);
  window.addEventListener("scroll", () => {
    scrollTip();
    if (spoken && box !== undefined) move(place[0], place[1] + scrolled - window.scrollY);
  }, { passive: true });
}

/** Shows `text` (its first line as a heading) near the point x, y of the window. `aloud` also tells a screen reader. */
export function showTip(text: string, x: number, y: number, aloud = false): void {
  if (box === undefined || voice === undefined) return;
  const [head = "", ...rest] = text.split("\n");
  const strong = document.createElement("strong");
  strong.textContent = head;
  box.replaceChildren(strong, ...rest.map((line) => {
    const row = document.createElement("span");
    row.textContent = line;
    return row;
  }));
  box.className = calm() ? "shown calm" : "shown";
  const { offsetWidth: width, offsetHeight: height } = box;
  const right = document.documentElement.clientWidth;
  const left = x + 14 + width > right - 6 ? Math.max(6, x - 14 - width) : x + 14;
  // Below the place: above it stand the names of columns, titles and headings.
  const below = y + 22;
  const top = below + height > document.documentElement.clientHeight - 6 ? Math.max(6, y - height - 12) : below;
  place = [left, top];
  scrolled = window.scrollY;
  spoken = aloud;
  move(left, top);
  if (aloud) voice.textContent = text.replace(/\n/g, ", ");
}

function move(x: number, y: number): void {
  if (box !== undefined) box.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
}

/** What is under the pointer has moved away. What has the focus has not: moving the focus is what scrolls. */
export function scrollTip(): void {
  if (!spoken) hideTip();
}

export function hideTip(): void {
  if (box !== undefined) box.className = "";
}
