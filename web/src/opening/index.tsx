// The opening of the page: what a language model is, and the machine at work on the reader's own text.

import { useMemo } from "preact/hooks";
import { edition, vitrine } from "../document";
import { plural } from "../format";
import { MadeLegend } from "../made";
import { AddressKeeper } from "./keeper";
import { useChanged } from "./changed";
import { Machine } from "./machine";
import "./opening.css";
import { runOfDocument } from "./run";
import { words } from "./words";

const titleLength = 72;

/** The end of a text: what comes next follows it. */
function ending(text: string, length: number): string {
  const letters = [...text];
  return letters.length <= length ? text : `…${letters.slice(letters.length - length + 1).join("")}`;
}

export function Opening() {
  const { model, prompt, tokens, chapter } = vitrine;
  const run = useMemo(runOfDocument, [edition, vitrine]);
  const changed = useChanged(run);
  const name = model.name === "" ? "the model that vitrine ships with" : model.name;
  return (
    <header class="opening" id="top">
      <p class="kicker">{chapter === undefined ? `A walk through ${name}` : `Chapter ${chapter.number}: ${chapter.title}`}</p>
      <h1>{prompt.text === null ? `${plural(tokens.length, "token")}, and the next one` : <>“<bdi>{ending(prompt.text.replace(/\s+/g, " "), titleLength)}</bdi>”, and what comes next</>}</h1>
      <p class="summary">{words.first}</p>
      {run !== null && <Machine run={run} changed={changed} />}
      <p class="summary">{words.numbers(model)} {words.summary(model)}</p>
      <p class="hint">{words.hint}</p>
      <MadeLegend />
      <AddressKeeper />
    </header>
  );
}
