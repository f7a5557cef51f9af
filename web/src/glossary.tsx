// The terms of the texts: what each means, shown on hover, focus and tap where a text uses it.

import type { JSX } from "preact";
import source from "../../src/app/picture/page/chapters/glossary.md?raw";
import { withSpaces } from "./document";
import { hideTip, showTip } from "./tip";

export interface Term {
  name: string;
  /** The name and its other forms. */
  forms: readonly string[];
  meaning: string;
}

/** "## token, tokens", then a paragraph. */
export function termsOf(text: string): Term[] {
  return text.split(/^## /m).slice(1).map((entry) => {
    const [heading = "", ...rest] = entry.split("\n");
    const forms = heading.split(",").map((form) => form.trim());
    return { name: forms[0]!, forms, meaning: rest.join(" ").trim().replace(/\s+/g, " ") };
  });
}

export const terms: readonly Term[] = termsOf(source);

const byForm = new Map(terms.flatMap((term) => term.forms.map((form) => [form.toLowerCase(), term] as const)));
const anyForm = new RegExp(`(?<![\\p{L}\\d_-])(${[...byForm.keys()].sort((a, b) => b.length - a.length).join("|")})(?![\\p{L}\\d_-])`, "giu");

/** Paragraphs with the first use of each term marked; `code` stays text. */
export function markTerms(texts: readonly string[]): JSX.Element[] {
  const used = new Set<Term>();
  return texts.map((text) => (
    <>
      {text.split("`").map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : part.split(anyForm).map((piece, j) => {
        const term = j % 2 === 1 ? byForm.get(piece.toLowerCase()) : undefined;
        if (term === undefined || used.has(term)) return withSpaces(piece);
        used.add(term);
        return <TermMark key={`${i}.${j}`} term={term} text={piece} />;
      })))}
    </>
  ));
}

function TermMark({ term, text }: { term: Term; text: string }) {
  const show = (element: HTMLElement, aloud: boolean) => {
    const box = element.getClientRects()[0];
    if (box !== undefined) showTip(`${term.name}\n${term.meaning}`, box.left, box.bottom - 14, aloud);
  };
  return (
    <span
      class="term"
      role="button"
      tabIndex={0}
      onPointerEnter={(event) => event.pointerType === "mouse" && show(event.currentTarget, false)}
      onPointerLeave={(event) => event.pointerType === "mouse" && hideTip()}
      onFocus={(event) => show(event.currentTarget, true)}
      onBlur={hideTip}
      onClick={(event) => show(event.currentTarget, true)}
      onKeyDown={(event) => {
        if (event.key === "Escape") hideTip();
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          show(event.currentTarget, true);
        }
      }}
    >
      {text}
    </span>
  );
}

/** All of them, as a list. */
export function GlossaryList() {
  return <dl class="glossary">{[...terms].sort((a, b) => a.name.localeCompare(b.name, "en")).map((term) => <div key={term.name}><dt>{term.name}</dt><dd>{term.meaning}</dd></div>)}</dl>;
}
