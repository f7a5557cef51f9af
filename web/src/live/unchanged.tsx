// Pictures are drawn from the model as it is: they say so while a reader has changed it.

import { plural } from "../format";
import type { Made } from "../made";
import { edits, useLive } from "./state";

/** `made`: where the picture's numbers come from. Those of the weights alone are the same with changes. */
export function Unchanged({ made }: { made: readonly Made[] }) {
  const changes = edits(useLive()).length;
  if (changes === 0 || !made.includes("run")) return null;
  return <p class="unchanged">Without your {plural(changes, "change")}: this picture shows the model as it is.</p>;
}
