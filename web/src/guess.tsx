// A question that the reader answers before the page does. The answer is in the document, so it needs no engine.

import { useId, useState } from "preact/hooks";
import type { Guess } from "./data";
import { edition, withSpaces } from "./document";
import { Prose } from "./figure";
import { usePrinting } from "./hooks";

/** What was guessed, by question, so that a recap can count; another document starts anew. */
const given = new Map<string, boolean>();
let of = edition;

/** How many of these were answered, and how many of them as the run does. */
export function tally(guesses: readonly Guess[]): { answered: number; right: number } {
  if (of !== edition) given.clear();
  const answers = guesses.flatMap((guess) => given.get(guess.question) ?? []);
  return { answered: answers.length, right: answers.filter(Boolean).length };
}

/** Free answers are compared without case, spaces and marks of spaces. */
function same(a: string, b: string): boolean {
  const plain = (text: string) => text.toLowerCase().replace(/[\s\u2581\u0120\u2423"“”.]/gu, "");
  return plain(a) === plain(b);
}

interface Props {
  guess: Guess;
  onAnswer?: () => void;
}

export function GuessBox({ guess, onAnswer }: Props) {
  const [chosen, choose] = useState<string | null>(null);
  const [written, write] = useState("");
  const [shown, show] = useState(false);
  const paper = usePrinting();
  const label = useId();
  const answer = (text: string) => {
    if (of !== edition) [of] = [edition, given.clear()];
    given.set(guess.question, same(text, guess.answer));
    choose(text);
    show(true);
    onAnswer?.();
  };
  const open = shown || paper;
  const right = chosen !== null && same(chosen, guess.answer);
  return (
    <div class={open ? "guess answered" : "guess"} role="group" aria-labelledby={label}>
      <p class="guess-question" id={label}><span class="guess-kicker">Guess</span> <Prose text={guess.question} /></p>
      {guess.choices.length > 0 ? (
        <div class="guess-choices">
          {guess.choices.map((choice) => {
            const mark = open && choice === guess.answer ? "right" : open && choice === chosen ? "wrong" : "";
            return (
              <button key={choice} type="button" class={mark} disabled={open && mark === ""} aria-pressed={choice === chosen} onClick={() => !open && answer(choice)}>
                {mark === "right" && <span aria-hidden="true">✓ </span>}
                {mark === "wrong" && <span aria-hidden="true">✗ </span>}
                <bdi>{withSpaces(choice)}</bdi>
              </button>
            );
          })}
        </div>
      ) : (
        <form class="guess-choices" onSubmit={(event) => {
          event.preventDefault();
          if (written.trim() !== "" && !open) answer(written);
        }}>
          <input value={written} readOnly={open} aria-labelledby={label} autocomplete="off" onInput={(event) => write(event.currentTarget.value)} />
          <button type="submit" disabled={open || written.trim() === ""}>Guess</button>
        </form>
      )}
      {!open && <button type="button" class="guess-show" onClick={() => show(true)}>Show the answer</button>}
      <p class="guess-reveal" aria-live="polite" hidden={!open}>
        {open && <>{chosen !== null && <strong>{right ? "Yes. " : <>No: <bdi>{withSpaces(guess.answer)}</bdi>. </>}</strong>}<Prose text={guess.reveal} /></>}
      </p>
    </div>
  );
}
