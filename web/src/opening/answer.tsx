// What the model would say at the depth and token that are shown: the most likely tokens, before a change in outline, after it filled.

import { css } from "../color";
import { space } from "../document";
import { percent, spaceShown } from "../format";
import { useTheme } from "../hooks";
import type { Likely } from "../live/state";
import { visible } from "../document";
import type { Word } from "./run";

const shown = 5;

interface Line extends Word {
  /** Null: it was or is not among the most likely ones. */
  before: number | null;
  after: number | null;
}

export function wordsOf(next: readonly Likely[]): Word[] {
  return next.map((one) => ({ id: one.token, name: one.piece === null ? `#${one.token}` : visible(one.piece), prob: one.prob }));
}

/** The most likely tokens of the changed model, and those that were most likely before. */
function lines(before: readonly Word[], after: readonly Word[] | null): Line[] {
  if (after === null) return before.slice(0, shown).map((word) => ({ ...word, before: null, after: word.prob }));
  const all = [...after.slice(0, shown)];
  for (const word of before.slice(0, 2)) if (!all.some((one) => one.id === word.id)) all.splice(shown - 1, 0, word);
  return all.slice(0, shown + 1).map((word) => ({
    ...word,
    before: before.find((one) => one.id === word.id)?.prob ?? null,
    after: after.find((one) => one.id === word.id)?.prob ?? null,
  }));
}

export function Answer({ says, before, after }: { says: string; before: readonly Word[]; after: readonly Word[] | null }) {
  useTheme();
  const list = lines(before, after);
  return (
    <div class="opening-answer">
      <p class="opening-says">{says}</p>
      <ol class="answer-next" aria-label={`Most likely next tokens${after === null ? "" : ", before and after the change"}`}>
        {list.map((one) => (
          <li key={one.id} data-token={one.id} data-probability={one.after ?? ""} {...(after === null ? {} : { "data-before": one.before ?? "" })}>
            <bdi>{one.name}</bdi>
            <span class="answer-bar" aria-hidden="true">
              {one.after !== null && <i style={{ width: `${Math.max(1, 100 * one.after)}%`, background: css("sequential", 0.45 + 0.55 * one.after, 1) }} />}
              {one.before !== null && <i class="outline" style={{ width: `${Math.max(1, 100 * one.before)}%` }} />}
            </span>
            <span class="answer-figure"><b>{one.after === null ? "rare" : percent(one.after)}</b>{after !== null && <small>was {one.before === null ? "rare" : percent(one.before)}</small>}</span>
          </li>
        ))}
      </ol>
      {after !== null && <p class="opening-key"><i class="outline" aria-hidden="true" /> before <i class="filled" aria-hidden="true" /> after</p>}
      {space !== null && <p class="space-legend"><bdi class="chip">{spaceShown}</bdi> is a space: it belongs to the piece behind it.</p>}
    </div>
  );
}
