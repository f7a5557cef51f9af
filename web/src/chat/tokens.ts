// The tokens of an answer: each with the most likely tokens at its place, and the part of the text that it wrote.

export interface Alternative {
  /** As the server spells it. */
  text: string;
  /** Null where the server does not tell it. */
  id: number | null;
  logprob: number;
  /** Its bytes where they are no whole characters. */
  bytes?: readonly number[];
}

export interface Token extends Alternative {
  top: readonly Alternative[];
}

export function sameToken(a: Alternative, b: Alternative): boolean {
  return a.id !== null && b.id !== null ? a.id === b.id : a.text === b.text;
}

/**
 * The part of `text` that each token wrote. A character of several tokens belongs to the last of them; a token that is not part
 * of the text (the end of an answer, what a stop string cut off) has none.
 */
export function parts(text: string, tokens: readonly Token[]): string[] {
  let decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let at = 0;
  return tokens.map((token) => {
    let piece = decoder.decode(token.bytes === undefined ? encoder.encode(token.text) : Uint8Array.from(token.bytes), { stream: true });
    if (!text.startsWith(piece, at)) {
      decoder = new TextDecoder();
      // What a tokenizer writes in front of a first word is no part of the text.
      const bare = piece.replace(/^ /, "");
      piece = at === 0 && bare !== "" && text.startsWith(bare) ? bare : "";
    }
    at += piece.length;
    return piece;
  });
}

export function probability(logprob: number): number {
  return Math.exp(Math.min(logprob, 0));
}
