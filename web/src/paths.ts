// Paths to values of a picture, by which its tables and charts are declared: src/app/picture/data/paths.h states what they mean.

import type { Packed } from "./data";
import { floats, triangle } from "./decode";
import { place, spelling, tokenAt, visible, vitrine } from "./document";
import { count, number, percent } from "./format";

/** Where each * of a path stands. */
export type Places = readonly number[];

/** A part of packed numbers, which are lists of lists to a path. */
class Part {
  constructor(readonly packed: Packed, readonly depth: number, readonly offset: number) {}
}

function partOf(node: unknown): Part | null {
  if (node instanceof Part) return node;
  return typeof node === "object" && node !== null && "base64" in node ? new Part(node as Packed, 0, 0) : null;
}

function size(node: unknown): number {
  if (Array.isArray(node)) return node.length;
  const part = partOf(node);
  return part?.packed.shape[part.depth] ?? 0;
}

function child(node: unknown, index: number): unknown {
  if (index < 0 || index >= size(node)) return undefined;
  if (Array.isArray(node)) return node[index];
  const { packed, depth, offset } = partOf(node)!;
  const at = offset * packed.shape[depth]! + index;
  if (depth + 1 < packed.shape.length) return new Part(packed, depth + 1, at);
  if (packed.layout === "dense") return floats(packed)[at];
  const n = packed.shape.at(-1)!;
  return triangle(packed, Math.floor(at / (n * n)))(Math.floor(at / n) % n, at % n);
}

/** Of "*" and "1::10": the first element and the step to the next. */
function every(step: string): readonly [number, number] | null {
  if (step === "*") return [0, 1];
  const [first, by] = step.split("::");
  return by === undefined ? null : [Number(first), Number(by)];
}

const stepsOf = (path: string) => path.replace(/^\//, "").split(".");

export function wildcards(path: string): number {
  return stepsOf(path).filter((step) => every(step) !== null).length;
}

export class Paths {
  /** bound: places that every path begins with; their wildcards are named #0, #1, … and not * again. */
  constructor(private readonly picture: object, private readonly bound: Places = []) {}

  within(bound: Places): Paths {
    return new Paths(this.picture, bound);
  }
  /** Places of these wildcards, the bound ones before them. */
  inside(...at: number[]): Places {
    return [...this.bound, ...at];
  }

  /** Every combination of places of the path's wildcards, the last one fastest. */
  places(path: string): Places[] {
    const all: Places[] = [];
    const gather = (node: unknown, steps: readonly string[], at: Places): void => {
      const [step, ...rest] = steps;
      if (node === undefined) return;
      if (step === undefined) return void all.push(at);
      if (node === null) return;
      const next = every(step);
      if (next === null) return gather(this.go(node, step, at), rest, at);
      for (let i = next[0]; i < size(node); i += next[1]) {
        if (rest.length === 0) all.push([...at, (i - next[0]) / next[1]]);
        else gather(child(node, i), rest, [...at, (i - next[0]) / next[1]]);
      }
    };
    gather(path.startsWith("/") ? vitrine : this.picture, stepsOf(path), this.bound);
    return all;
  }

  /** Null where the path leads nowhere. */
  value(path: string, at: Places = this.bound): unknown {
    if (path.startsWith("#")) return at[Number(path.slice(1))] ?? null;
    let star = this.bound.length;
    let node: unknown = path.startsWith("/") ? vitrine : this.picture;
    for (const step of stepsOf(path)) {
      if (node === null || node === undefined) return null;
      const next = every(step);
      if (step === "length" && (Array.isArray(node) || partOf(node) !== null)) node = size(node);
      else node = next === null ? this.go(node, step, at) : child(node, next[0] + next[1] * (at[star++] ?? NaN));
    }
    return node instanceof Part ? Array.from({ length: size(node) }, (_, i) => child(node, i)) : node ?? null;
  }

  /** How many elements each of the two wildcards of a grid's path stands for. */
  sizes(path: string): readonly [number, number] {
    const length = (whole: string) => Number(this.value(whole.slice(0, whole.indexOf("*")) + "length") ?? 0);
    return [length(path), length(path.replace("*", "0"))];
  }

  number(path: string, at: Places = this.bound): number {
    const found = this.value(path, at);
    return typeof found === "number" ? found : NaN;
  }

  /** Text with the values of the paths between its braces. */
  text(words: string, at: Places = this.bound): string {
    return words.replace(/\{([^|}]*)\|?([^}]*)\}/g, (_, path: string, as: string) => written(this.value(path, at), as));
  }

  private go(node: unknown, step: string, at: Places): unknown {
    if (!Array.isArray(node) && partOf(node) === null) return (node as Record<string, unknown>)[step];
    const index = step.startsWith("#") ? at[Number(step.slice(1))] ?? NaN : Number(step);
    return child(node, index < 0 ? index + size(node) : index);
  }
}

/** A value in words; Paths::written of the program lists the ways. Numbers keep the page's own form. */
export function written(value: unknown, as = ""): string {
  if (value === null || value === undefined) return "not a number";
  if (typeof value === "boolean") return value ? as || "yes" : "";
  if (typeof value === "string") return as === "piece" ? visible(value) : value;
  if (Array.isArray(value)) return value.slice(0, Number(/^first (\d+)$/.exec(as)?.[1] ?? value.length)).map((one: unknown) => written(one, "piece")).join(typeof value[0] === "string" ? " | " : " ");
  const n = value as number;
  switch (as) {
    case "token": return spelling(n);
    case "at": return tokenAt(n);
    case "place": return place(n);
    case "ordinal": return String(n + 1);
    case "%": return percent(n);
    case "count": return count(n);
    case ".2f": return n.toFixed(2).replace("-", "−");
    case ".2g": return number(n, 2);
    default: return number(n, 4);
  }
}
