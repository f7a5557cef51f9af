// What the parts of a page for research share: its document, spelled tokens, distributions beside each other.

import type { ComponentChildren } from "preact";
import { Bars, type Bar } from "../bars";
import { percent, piece, short, spaceMark } from "../format";
import type { Likely, StudyDocument } from "./data";

const nothing: StudyDocument = { format: 2, kind: "study", version: "", kicker: "", title: "", lines: [], command: "", pieces: {}, sections: [] };
/** Empty on the page of another document, where no part that asks for it is drawn. */
export const study = "kind" in window.vitrine && window.vitrine.kind === "study" ? (window.vitrine as StudyDocument) : nothing;

/** How one vocabulary spells a token id; its number where it has no piece. */
export function speller(pieces: Record<string, string>): (id: number) => string {
  const space = spaceMark(Object.values(pieces));
  return (id) => {
    const text = pieces[String(id)];
    return text === undefined ? `#${id}` : piece(text, space);
  };
}
export const spell = speller(study.pieces);

interface DistributionProps {
  title: string;
  likely: Likely;
  spells?: (id: number) => string;
  /** Drawn strongly. */
  marked?: readonly number[];
}

/** The likeliest tokens as bars. */
export function Distribution({ title, likely, spells = spell, marked = [] }: DistributionProps) {
  const bars: Bar[] = [];
  for (let i = 0; i + 1 < likely.length; i += 2) {
    const [id, p] = [likely[i]!, likely[i + 1]!];
    bars.push({ name: short(spells(id), 16), value: p, tone: marked.includes(id) ? "mlp" : "attention", note: percent(p), text: `${spells(id)}\n${percent(p)}` });
  }
  return (
    <div class="half">
      <p class="row-title">{title}</p>
      {bars.length === 0 ? <p class="remark">Not kept.</p> : <Bars label={title} bars={bars} most={1} />}
    </div>
  );
}

/** What a reader has picked, below its picture. */
export function Picked({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="picked" role="region" aria-label={title} aria-live="polite">
      <p class="picked-title">{title}</p>
      {children}
    </div>
  );
}

/** Short names for the runs of a picture: the last parts of paths, whole where these are the same. */
export function runNames(names: readonly string[]): readonly string[] {
  const tails = names.map((name) => name.split(/[/\\]/).filter((part) => part !== "").at(-1) ?? name);
  return new Set(tails).size === tails.length ? tails : names;
}
