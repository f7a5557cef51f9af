// The questions at a chapter's end, and the terms that it has used.

import { useReducer } from "preact/hooks";
import { Fold } from "./controls";
import type { Guess } from "./data";
import { edition } from "./document";
import { GlossaryList } from "./glossary";
import { GuessBox, tally } from "./guess";

export function Recap({ guesses }: { guesses: readonly Guess[] }) {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const { answered, right } = tally(guesses);
  return (
    <>
      {guesses.map((guess) => <GuessBox key={`${edition} ${guess.question}`} guess={guess} onAnswer={() => again(0)} />)}
      {answered > 0 && <p class="recap-count" aria-live="polite">{answered} of {guesses.length} answered, {right} as this model does.</p>}
      <Fold summary="All terms" class="terms">{() => <GlossaryList />}</Fold>
    </>
  );
}
