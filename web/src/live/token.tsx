// A token of the model's answer, as a button.

import { visible } from "../document";
import { append } from "./actions";
import type { Likely } from "./state";
import { written } from "./written";

/** A token that a click appends to the prompt. */
export function TokenButton({ of }: { of: Pick<Likely, "token" | "piece"> }) {
  const name = of.piece === null ? `#${of.token}` : visible(of.piece);
  const able = of.piece === null || written(of.piece) !== null;
  return <button type="button" class="live-token" disabled={!able} title={able ? "Append this token" : "This token is no text"} onClick={() => append(of.token, of.piece)}><bdi>{name}</bdi></button>;
}
