// The opening of the page: what a language model is, and the machine at work on the reader's own text.

import { useMemo } from "preact/hooks";
import { edition, vitrine } from "../document";
import { plural } from "../format";
import { MadeLegend, type Made } from "../made";
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

/** The marks that this page's pictures carry. */
function marks(): Made[] {
  const all = new Set(Object.values(vitrine.pictures).flatMap((picture) => (picture?.available === true ? picture.made : [])));
  return (["run", "model", "sizes", "log", "toy"] as const).filter((of) => all.has(of));
}

export function Opening() {
  const { model, prompt, tokens, chapter } = vitrine;
  const run = useMemo(runOfDocument, [edition, vitrine]);
  const changed = useChanged(run);
  const machine = useMemo(() => run !== null && <Machine run={run} changed={changed} />, [run, changed]);
  const first = chapter === undefined || chapter.number === 1;
  const name = model.name === "" ? "the model that vitrine ships with" : model.name;
  return (
    <header class="opening" id="top">
      <p class="kicker">{chapter === undefined ? `A walk through ${name}` : first ? `Chapter ${chapter.number}: ${chapter.title}` : `Chapter ${chapter.number}`}</p>
      <h1>{!first ? chapter.title : prompt.text?.trim() === "" ? "Nothing yet, and what comes next" : prompt.text === null ? `${plural(tokens.length, "token")}, and the next one` : <>“<bdi>{ending(prompt.text.replace(/\s+/g, " "), titleLength)}</bdi>”, and what comes next</>}</h1>
      <p class="summary">{first ? words.first : <>{chapter.summary} {words.told(name)}</>}</p>
      {machine}
      <p class="summary">{first && words.numbers(model)} {words.summary(model)}</p>
      <p class="hint">{words.hint}</p>
      <MadeLegend of={marks()} />
      <AddressKeeper />
    </header>
  );
}
