// Pictures while a reader has changed the model: those that the engine draws anew show the changed one, the others say that they do not.

import type { PictureName, Vitrine } from "../data";
import { plural } from "../format";
import type { Made } from "../made";
import { edits, useLive } from "./state";

/** The picture of the changed model, where there is one. */
export function useEdited(name: PictureName): Vitrine["pictures"][PictureName] | null {
  const picture = useLive((now) => (edits(now).length === 0 ? undefined : now.edited?.pictures[name]));
  return picture?.available === true ? picture : null;
}

/** `made`: where the picture's numbers come from. Those of the weights alone are the same with changes. */
export function Changes({ made, edited }: { made: readonly Made[]; edited: boolean }) {
  const changes = useLive((now) => edits(now).length);
  if (changes === 0 || !made.includes("run")) return null;
  return <p class={edited ? "unchanged edited" : "unchanged"}>{edited ? `With your ${plural(changes, "change")}.` : `Without your ${plural(changes, "change")}: this picture shows the model as it is.`}</p>;
}
