// What a token adds to a text. Vocabularies spell their pieces in two ways: with ▁ for a space and <0x0A> for a byte
// (SentencePiece), or with a printable character for every byte (GPT-2's, https://github.com/openai/gpt-2/blob/master/src/encoder.py).

import { vitrine } from "../document";

/** Bytes by the character that stands for them: printable ones for themselves, the others in order from U+0100. */
const byteOf = new Map<string, number>();
for (let byte = 0, next = 256; byte < 256; ++byte) {
  const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  byteOf.set(String.fromCharCode(printable ? byte : next++), byte);
}

function decoded(bytes: readonly number[]): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return null;  // part of a character
  }
}

/** Null where a token adds no whole characters: a control token, or a byte of a longer character. */
export function written(piece: string): string | null {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
  if (byte !== null) return decoded([Number.parseInt(byte[1]!, 16)]);
  if (/^<.+>$|^\[.+\]$/.test(piece)) return null;
  const pieces = Object.values(vitrine.pieces);
  if (pieces.some((one) => one.startsWith("▁"))) return piece.replaceAll("▁", " ");
  const bytes = [...piece].map((letter) => byteOf.get(letter));
  return bytes.includes(undefined) ? piece : decoded(bytes as number[]);
}
