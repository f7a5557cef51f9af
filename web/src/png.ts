// A figure as a PNG, finer than on the page: what it shows is put into an SVG image, in which every element has its styles with it, and
// the browser draws that. Nothing leaves the page.

const xhtml = "http://www.w3.org/1999/xhtml";
const svg = "http://www.w3.org/2000/svg";

const fineness = 2;
/** Pixels of the page around the figure. */
const edge = 16;
/** Of the image: what browsers can draw at once. */
const mostSide = 16000;

/** What a reader works with or listens to. */
const tools = ".unseen, .fold:not([open]), figcaption, .figure-foot, .reproduce, .slider input, .film button, .worst, .more, #tip";

const ofBoxes = /^(?:align|background|border|bottom|box-shadow|box-sizing|clip|color$|column-gap|direction|display|fill|filter|flex|float|font|grid|height|image-rendering|justify|left|letter|line-height|list-style|margin|max|min|mix|object|opacity|order|overflow|overflow-wrap|padding|position|right|row-gap|stroke|table|text|top|transform|unicode-bidi|vertical|visibility|white-space|width|word|writing|z-index)/;
const ofDrawings = /^(?:clip|color$|display|dominant|fill|font|letter|mix|opacity|paint|shape|stop|stroke|text|vector|visibility)/;
const useless = /emphasis|inline-|block-|size-adjust|timeline|anchor-name/;

/** Values of properties that nobody has set. */
let unset: Map<string, string> | undefined;

function unsetValues(): Map<string, string> {
  if (unset !== undefined) return unset;
  const plain = document.body.appendChild(document.createElement("span"));
  plain.style.all = "initial";
  const style = getComputedStyle(plain);
  unset = new Map(Array.from(style, (name) => [name, style.getPropertyValue(name)]));
  plain.remove();
  return unset;
}

/** What an element's style says beyond that of nobody's; what it inherits is left out where the element around it has nothing of its own, too. */
function styleOf(style: CSSStyleDeclaration, around: CSSStyleDeclaration | null, drawing: boolean): string {
  const initial = unsetValues();
  const set: string[] = [];
  for (const name of style) {
    if (!(drawing ? ofDrawings : ofBoxes).test(name) || useless.test(name)) continue;
    const value = style.getPropertyValue(name);
    if (value !== initial.get(name) || (around !== null && around.getPropertyValue(name) !== value)) set.push(`${name}:${value}`);
  }
  return set.join(";");
}

/** Whether the words in it stand on one line, which rounding must not break. */
function oneLine(element: Element): boolean {
  const range = document.createRange();
  range.selectNodeContents(element);
  const [first, ...rest] = range.getClientRects();
  return first !== undefined && rest.every((box) => box.bottom > first.top + 2 && box.top < first.bottom - 2);
}

function pseudo(element: Element, which: "::before" | "::after", around: CSSStyleDeclaration): Element | null {
  const style = getComputedStyle(element, which);
  const [, text] = /^"(.*)"$/.exec(style.content) ?? [];
  if (text === undefined || style.display === "none") return null;
  const made = document.createElementNS(xhtml, "div");
  made.setAttribute("style", styleOf(style, around, false));
  made.textContent = text.replaceAll("\\\"", "\"");
  return made;
}

/** The element as it looks now, without what the page's style sheets know of it; null: it does not show. */
function copyOf(element: Element, around: CSSStyleDeclaration | null): Element | null {
  const style = getComputedStyle(element);
  if (style.display === "none" || element.matches(tools)) return null;
  const drawing = element.namespaceURI === svg && element.parentElement?.namespaceURI === svg;
  const made = document.createElementNS(element.namespaceURI === svg ? svg : xhtml, element.namespaceURI === svg ? element.tagName : element instanceof HTMLCanvasElement ? "img" : "div");
  if (element.namespaceURI === svg) for (const { name, value } of element.attributes) if (!/^(?:class|style|on|data-|aria-|role|tabindex)/.test(name)) made.setAttribute(name, value);
  if (element instanceof HTMLCanvasElement) made.setAttribute("src", element.toDataURL());
  const more: string[] = [];
  if (!drawing) {
    if (element.querySelector(tools) !== null) more.push("height:auto");
    if (style.position === "sticky") more.push("position:relative", "inset:auto");
    if (/auto|scroll/.test(style.overflowX + style.overflowY)) more.push("overflow:visible");
    if (element.namespaceURI !== svg && [...element.childNodes].some((node) => node instanceof Text && node.data.trim() !== "") && oneLine(element) && !style.whiteSpace.startsWith("pre")) more.push("white-space:nowrap");
  }
  made.setAttribute("style", [styleOf(style, around, drawing), ...more].join(";"));
  if (element instanceof HTMLCanvasElement) return made;
  const inside: (Node | null)[] = [
    drawing ? null : pseudo(element, "::before", style),
    ...Array.from(element.childNodes, (node) => (node instanceof Text ? document.createTextNode(node.data) : node instanceof Element ? copyOf(node, style) : null)),
    drawing ? null : pseudo(element, "::after", style),
  ];
  made.append(...inside.filter((node) => node !== null));
  return made;
}

/** The figure's title and body. `paper`: the color behind it. Errors: what the browser cannot draw. */
export async function pngOf(figure: HTMLElement, paper: string): Promise<Blob> {
  const copy = copyOf(figure, null) as HTMLElement;
  Object.assign(copy.style, { margin: "0", height: "auto", position: "static" });
  const frame = document.createElementNS(xhtml, "div") as HTMLElement;
  frame.setAttribute("style", `box-sizing:content-box;position:absolute;left:0;top:0;padding:${edge}px;width:${figure.getBoundingClientRect().width}px;background:${paper}`);
  frame.append(copy);
  // Laid out where nobody sees it, for its size.
  const hidden = document.body.appendChild(document.createElement("div"));
  hidden.setAttribute("style", "position:fixed;left:0;top:0;width:0;height:0;overflow:hidden;visibility:hidden");
  hidden.append(frame);
  const [width, height] = [Math.max(frame.scrollWidth + (frame.scrollWidth > frame.clientWidth ? edge : 0), frame.clientWidth), frame.clientHeight];
  hidden.remove();
  frame.style.width = `${width - 2 * edge}px`;

  const image = document.createElementNS(svg, "svg");
  image.setAttribute("width", String(width));
  image.setAttribute("height", String(height));
  const foreign = image.appendChild(document.createElementNS(svg, "foreignObject"));
  foreign.setAttribute("width", "100%");
  foreign.setAttribute("height", "100%");
  foreign.append(frame);
  const drawn = new Image();
  drawn.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(image))}`;
  await drawn.decode();

  const scale = Math.min(fineness, mostSide / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d")!;
  context.fillStyle = paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(drawn, 0, 0, canvas.width, canvas.height);
  return new Promise((settle, refuse) => canvas.toBlob((blob) => (blob === null ? refuse(new Error("the browser made no image")) : settle(blob)), "image/png"));
}
