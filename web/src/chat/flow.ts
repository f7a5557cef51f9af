// A text as it is laid out: blocks of code (between lines of three backquotes) stand apart, and every piece knows its token.

export interface Piece {
  /** Null for text whose token is not known. */
  token: number | null;
  text: string;
}

export interface Block {
  code: boolean;
  pieces: Piece[];
}

/** Cuts `text` at its blocks and tokens; `written` is the part of it that each token wrote. */
export function blocks(text: string, written: readonly string[]): Block[] {
  const cuts: Block[] = [];
  let [token, left] = [0, written[0]?.length ?? 0];  // the token that is being laid out, and how many letters of it remain
  const lay = (part: string, code: boolean) => {
    const pieces: Piece[] = [];
    for (let at = 0; at < part.length;) {
      while (left === 0 && token < written.length) left = written[++token]?.length ?? 0;
      const known = token < written.length;
      const size = known ? Math.min(left, part.length - at) : part.length - at;
      pieces.push({ token: known ? token : null, text: part.slice(at, at + size) });
      at += size;
      left -= known ? size : 0;
    }
    if (pieces.length > 0) cuts.push({ code, pieces });
  };
  let from = 0;
  // A block that is not closed goes on to the end: it may still be written.
  for (const found of text.matchAll(/^```[^\n`]*\n[^]*?(?:^```[ \t]*$|$(?![^]))/gm)) {
    lay(text.slice(from, found.index), false);
    lay(found[0], true);
    from = found.index + found[0].length;
  }
  lay(text.slice(from), false);
  return cuts;
}
