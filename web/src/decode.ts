// Numbers arrive as base64 of little-endian bytes; they are decoded when a picture first needs them.

import type { Packed } from "./data";

type Stored = Uint8Array | Uint16Array | Float32Array;

function bytes(base64: string): ArrayBuffer {
  const text = atob(base64);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) out[i] = text.charCodeAt(i);
  return out.buffer;
}

const decoded = new WeakMap<Packed, Stored>();

/** The stored numbers, not yet scaled. They are kept as long as the document keeps `packed`. */
export function stored(packed: Packed): Stored {
  let values = decoded.get(packed);
  if (values === undefined) {
    const raw = bytes(packed.base64);
    values = packed.type === "u8" ? new Uint8Array(raw) : packed.type === "u16" ? new Uint16Array(raw) : new Float32Array(raw);
    const want = cells(packed);
    if (values.length !== want) throw new RangeError(`a packed array of shape ${packed.shape.join(" × ")} holds ${values.length} numbers instead of ${want}`);
    decoded.set(packed, values);
  }
  return values;
}

function cells({ shape, layout }: Packed): number {
  const outer = (layout === "causal" ? shape.slice(0, -2) : shape).reduce((a, b) => a * b, 1);
  const side = shape.at(-1) ?? 0;
  return layout === "causal" ? (outer * side * (side + 1)) / 2 : outer;
}

/** A dense array as its values. */
export function floats(packed: Packed): Float32Array {
  const raw = stored(packed);
  return packed.type === "f32" ? (raw as Float32Array) : Float32Array.from(raw, (v) => packed.offset + packed.scale * v);
}

/** One square of a causal array as a function of target and source; nothing above the diagonal. */
export function triangle(packed: Packed, square: number): (target: number, source: number) => number | null {
  const raw = stored(packed);
  const side = packed.shape.at(-1)!;
  const start = (square * side * (side + 1)) / 2;
  const { scale, offset } = packed;
  return (target, source) => (source > target ? null : offset + scale * raw[start + (target * (target + 1)) / 2 + source]!);
}
