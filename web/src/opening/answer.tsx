// What the model would say at the depth and token that are shown: the most likely tokens, before a change in outline, after it filled.

import { space } from "../document";
import { spaceShown } from "../format";
import { BeforeAfter } from "../live/before-after";
import type { Word } from "./run";

const shown = 5;

/** The most likely tokens of the changed model, and those that were most likely before. */
function listed(before: readonly Word[], after: readonly Word[] | null): readonly Word[] {
  if (after === null) return before.slice(0, shown);
  const all = after.slice(0, shown);
  for (const word of before.slice(0, 2)) if (!all.some((one) => one.id === word.id)) all.splice(shown - 1, 0, word);
  return all.slice(0, shown + 1);
}

export function Answer({ says, before, after }: { says: string; before: readonly Word[]; after: readonly Word[] | null }) {
  const of = (words: readonly Word[] | null, id: number) => words?.find((one) => one.id === id)?.prob ?? null;
  const rows = listed(before, after).map(({ id, name }) => {
    const [was, is] = after === null ? [null, of(before, id)] : [of(before, id), of(after, id)];
    return {
      key: id, name: <bdi class="live-piece">{name}</bdi>, before: was, after: is, lacks: "rare",
      data: { "data-token": id, "data-probability": is ?? "", ...(after === null ? {} : { "data-before": was ?? "" }) },
    };
  });
  return (
    <div class="opening-answer">
      <p class="opening-says">{says}</p>
      <BeforeAfter label={`Most likely next tokens${after === null ? "" : ", before and after the change"}`} unit="%" rows={rows} />
      {space !== null && <p class="space-legend"><bdi class="chip">{spaceShown}</bdi> is a space: it belongs to the piece behind it.</p>}
    </div>
  );
}
