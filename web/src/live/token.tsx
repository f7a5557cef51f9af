// A token of the model's answer, as a button.

import { named } from "../document";
import { percent } from "../format";
import type { TokenLogprob } from "../results";
import { append } from "./actions";
import { pairs, type BeforeAfterRow } from "./before-after";
import type { Likely } from "./state";
import { written } from "./written";

/** A token that a click appends to the prompt. */
export function TokenButton({ of }: { of: Pick<Likely, "token" | "piece"> }) {
  const name = named(of.piece, of.token);
  const able = of.piece === null || written(of.piece) !== null;
  return <button type="button" class="live-token" disabled={!able} title={able ? "Append this token" : "This token is no text"} onClick={() => append(of.token, of.piece)}><bdi>{name}</bdi></button>;
}

/** Rows of two lists of likely tokens, the most likely of both first. */
export function tokenPairs(before: readonly TokenLogprob[], after: readonly TokenLogprob[], most = 8): BeforeAfterRow[] {
  const least = Math.max(before.at(-1)?.prob ?? 0, after.at(-1)?.prob ?? 0);
  return pairs(before, after, {
    id: (one) => one.token,
    value: (one) => one.prob,
    name: (one) => <bdi class="live-piece">{named(one.piece, one.token)}</bdi>,
    most,
    lacks: `< ${percent(least).replace(/^< /, "")}`,
  });
}
