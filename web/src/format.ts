// How numbers and tokens are written on the page.

const superscripts = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function raised(exponent: number): string {
  const digits = [...String(Math.abs(exponent))].map((d) => superscripts[Number(d)]).join("");
  return exponent < 0 ? `⁻${digits}` : digits;
}

/** `digits` significant digits, a real minus sign, powers of ten as 1.2×10⁻⁵; "not a number" and "∞" by name. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) {
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    const text = size.toFixed(Math.min(decimals, 12));
    return sign + (text.includes(".") ? text.replace(/\.?0+$/, "") : thousands(text));
  }
  const [mantissa = "", exponent = ""] = size.toExponential(digits - 1).split("e");
  return `${sign}${mantissa.replace(/\.?0+$/, "")}×10${raised(Number(exponent))}`;
}

/** A value of a grid whose largest is `most`, with so many decimals as tell the cells apart: "−0.17". */
export function inCell(value: number, most: number): string {
  const decimals = most < 0.1 ? 3 : most < 10 ? 2 : most < 100 ? 1 : 0;
  return value.toFixed(decimals).replace(/^-?0(\.0+)?$/, "0").replace("-", "−");
}

/** What a reader gets on hover. */
export function exact(value: number | null | undefined): string {
  return number(value, 4);
}

/** The value nearly as precisely as f32 holds it: in tables. */
export function precise(value: number | null | undefined): string {
  return number(value, 6);
}

function thousands(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+$)/g, "\u202f");  // narrow no-break space
}

export function count(value: number): string {
  return (value < 0 ? "−" : "") + thousands(String(Math.abs(Math.round(value))));
}

/** "9.45 million". */
export function amount(value: number): string {
  for (const [size, name] of [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]] as const) if (value >= size) return `${number(value / size)} ${name}`;
  return count(value);
}

/** Of a file: "12.6 MB". */
export function bytes(size: number): string {
  return size < 1e9 ? `${number(size / 1e6)} MB` : `${number(size / 1e9)} GB`;
}

/** A probability or share in per cent. */
export function percent(share: number): string {
  const value = 100 * share;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  if (value === 100) return "100 %";
  return `${value >= 10 ? value.toFixed(1) : value.toFixed(2)} %`;
}

export function power(exponent: number): string {
  return `10${raised(exponent)}`;
}

/** The mark that stands for a space wherever pieces are shown. */
export const spaceShown = "␣";

/** The character that a vocabulary writes for a space, told by its pieces: SentencePiece's, GPT-2's, or none. */
export function spaceMark(pieces: readonly string[]): string | null {
  return ["▁", "Ġ"].find((mark) => pieces.some((text) => text.includes(mark))) ?? null;
}

/** A piece as the vocabulary spells it, on one line: white space and control characters made visible, `space` among them. */
export function piece(text: string, space: string | null = null): string {
  if (text === "") return "∅";
  return (space === null ? text : text.replaceAll(space, spaceShown)).replace(/[\u0000-\u0020\u007f]/g, (c) => (c === "\u007f" ? "␡" : c === " " ? "␣" : String.fromCharCode(0x2400 + c.charCodeAt(0))));
}

export function shape(sizes: readonly number[]): string {
  return `[${sizes.map(count).join(", ")}]`;
}

/** At most `length` characters, the last an ellipsis where something was left out. */
export function short(text: string, length: number): string {
  const letters = [...text];
  return letters.length <= length ? text : `${letters.slice(0, length - 1).join("")}…`;
}

/** A length for a style: lengths there need their unit. */
export function px(length: number): string {
  return `${length}px`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
