// The page's two color scales, in a light and a dark form: one sequential (0 is near the paper, 1 stands out from it), one
// diverging (negative orange, zero paper, positive blue). Their stops are part of the contract, so that SVG files look the
// same. Both change steadily in lightness, so they also read in grey, and neither needs red to be told from green. Colors
// between stops are mixed in OKLab (Ottosson 2020), where equal steps look equal.

import { DIVERGING, SEQUENTIAL } from "./data";
import { theme } from "./theme";

type Triple = readonly [number, number, number];
export type Scale = "sequential" | "diverging";

const stops = { sequential: SEQUENTIAL, diverging: DIVERGING } as const;

function linear(channel: number): number {
  const c = channel / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

function gamma(value: number): number {
  const c = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, c)));
}

function toLab(hex: string): Triple {
  const [r, g, b] = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16))) as unknown as Triple;
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toRgb([lightness, a, b]: Triple): Triple {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

const tables = new Map<string, Uint8ClampedArray>();

/** 256 colors of a scale for the theme in force, as r, g, b, r, g, b, … */
export function table(scale: Scale): Uint8ClampedArray {
  const key = `${scale} ${theme()}`;
  let rgb = tables.get(key);
  if (rgb === undefined) {
    const labs = stops[scale][theme()].map(toLab);
    rgb = new Uint8ClampedArray(256 * 3);
    for (let i = 0; i < 256; ++i) {
      const at = (i / 255) * (labs.length - 1);
      const low = Math.min(Math.floor(at), labs.length - 2);
      const [from, to] = [labs[low]!, labs[low + 1]!];
      const mix = (k: 0 | 1 | 2) => from[k] + (to[k] - from[k]) * (at - low);
      rgb.set(toRgb([mix(0), mix(1), mix(2)]), i * 3);
    }
    tables.set(key, rgb);
  }
  return rgb;
}

/** Where a value stands in its scale, 0 to 255. `most` is the value of the scale's end (of both ends, when diverging). */
export function step(scale: Scale, value: number, most: number): number {
  const share = scale === "sequential" ? value / most : (value / most + 1) / 2;
  return Math.round(255 * Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0)));
}

export function css(scale: Scale, value: number, most: number): string {
  const rgb = table(scale);
  const at = step(scale, value, most) * 3;
  return `rgb(${rgb[at]} ${rgb[at + 1]} ${rgb[at + 2]})`;
}

/** Black or white text, whichever reads better on that color: at least 4.58 : 1 on every one (WCAG contrast). */
export function inkOn(scale: Scale, value: number, most: number): string {
  const rgb = table(scale);
  const at = step(scale, value, most) * 3;
  const light = 0.2126 * linear(rgb[at]!) + 0.7152 * linear(rgb[at + 1]!) + 0.0722 * linear(rgb[at + 2]!);
  return (light + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}
