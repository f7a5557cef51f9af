// A text colored by its loss, of one model or of two side by side; what was likely in the place of each word.

import type { TargetedKeyboardEvent } from "preact";
import { memo } from "preact/compat";
import { useMemo, useRef, useState } from "preact/hooks";
import { Choice } from "../controls";
import { Figure } from "../figure";
import { number, percent, piece, plural, short } from "../format";
import type { LossesData } from "../results";
import { hideTip, showTip } from "../tip";
import { Distribution, Picked, runNames, speller } from "./shared";

/** Nats that take the full color. */
const fullLoss = 8;
const fullDifference = 3;
const levels = 12;
const difference = -1;
const shownWorst = 8;
const tableRows = 2000;

interface Place {
  text: number;
  word: number;
}

function level(value: number | null | undefined, full: number): number | null {
  return value === null || value === undefined ? null : Math.round(Math.max(-1, Math.min(1, value / full)) * levels);
}

interface TextProps {
  words: readonly string[];
  level: readonly (number | null)[];
  picked: number | null;
}

/** The words; made again only when their colors change. */
const Words = memo(function Words({ words, level: all, picked }: TextProps) {
  return (
    <>
      {words.map((word, i) => {
        const at = all[i] ?? null;
        return <span key={i} data-at={i} data-l={at === null ? "none" : at} class={i === picked ? "chosen" : undefined}>{word.replace(/[▁Ġ]/g, " ").replaceAll("\n", "⏎\n")}</span>;
      })}
    </>
  );
});

function Text({ p, shown, text, picked, pick, describe }: { p: LossesData; shown: number; text: number; picked: number | null; pick: (word: number) => void; describe: (word: number) => string }) {
  const area = useRef<HTMLDivElement>(null);
  const at = useRef(0);
  const own = p.runs[Math.max(0, shown)]!.texts[text]!;
  const other = p.runs[1]?.texts[text];
  const colors = useMemo(() => own.nll.map((nll, i) => (shown !== difference ? level(nll, fullLoss) : nll === null || !other || other.nll[i] === null ? null : level(other.nll[i]! - nll, fullDifference))), [p, shown, text]);
  const under = (event: Event): number | null => {
    const found = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset["at"];
    return found === undefined ? null : Number(found);
  };
  const tell = (word: number, aloud: boolean) => {
    const box = area.current?.querySelector(`[data-at="${word}"]`);
    if (box === null || box === undefined) return;
    if (aloud) box.scrollIntoView({ block: "nearest" });
    const { left, bottom } = box.getBoundingClientRect();
    area.current!.querySelector(".here")?.classList.remove("here");
    box.classList.add("here");
    at.current = word;
    showTip(describe(word), left, bottom - 16, aloud);
  };
  const hide = () => {
    area.current?.querySelector(".here")?.classList.remove("here");
    hideTip();
  };
  const keys = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -own.words.length, End: own.words.length };
    const by = steps[event.key];
    if (by !== undefined) {
      event.preventDefault();
      tell(Math.max(0, Math.min(own.words.length - 1, at.current + by)), true);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick(at.current);
    } else if (event.key === "Escape") hide();
  };
  return (
    <div
      ref={area}
      class="loss-text"
      role="application"
      aria-roledescription="colored text"
      aria-label={`Text of ${plural(own.words.length, "word")} and marks. Arrow keys move from one to the next; Enter: what was likely there.`}
      tabIndex={0}
      onPointerMove={(event) => {
        const word = under(event);
        if (word === null) hide();
        else if (word !== at.current || area.current?.querySelector(".here") === null) tell(word, false);
      }}
      onPointerLeave={hide}
      onClick={(event) => {
        const word = under(event);
        if (word !== null) pick(word);
      }}
      onFocus={(event) => event.currentTarget.matches(":focus-visible") && tell(at.current, true)}
      onBlur={hide}
      onKeyDown={keys}
    >
      <Words words={own.words} level={colors} picked={picked} />
      {own.left_out > 0 && <em> … {plural(own.left_out, "word")} more</em>}
    </div>
  );
}

function LossPicture({ p }: { p: LossesData }) {
  const names = useMemo(() => runNames(p.runs.map((run) => run.name)), [p]);
  const spells = useMemo(() => p.runs.map((run) => speller(run.pieces)), [p]);
  const [shown, show] = useState(p.paired && p.runs.length > 1 ? difference : 0);
  const [picked, pick] = useState<Place | null>(null);
  const runs = shown === difference ? p.runs.map((_, i) => i) : [shown];
  const word = (place: Place, run: number): string => piece((p.runs[run]!.texts[place.text]!.words[place.word] ?? "").replaceAll("\n", "⏎"), "▁").replaceAll("Ġ", "␣");
  const write = (nll: number | null | undefined): string => (nll === null || nll === undefined ? "not predicted" : `${percent(Math.exp(-nll))}, −ln p ${number(nll)}`);
  const first = runs[0]!;
  const describe = (text: number) => (at: number): string => {
    const lines = [`“${word({ text, word: at }, first)}”`];
    for (const run of runs) {
      const own = p.runs[run]!.texts[text]!;
      lines.push(`${runs.length > 1 ? `${names[run]!}: ` : ""}${write(own.nll[at])}`);
      const likely = own.likely[at] ?? [];
      const said = [];
      for (let i = 0; i + 1 < Math.min(likely.length, 10); i += 2) said.push(`${spells[run]!(likely[i]!)} ${percent(likely[i + 1]!)}`);
      if (said.length > 0) lines.push(`expected: ${said.join(", ")}`);
    }
    return lines.join("\n");
  };
  const worst = useMemo(() => {
    const places: { place: Place; value: number }[] = [];
    p.runs[first]!.texts.forEach((text, t) => text.nll.forEach((nll, i) => {
      const other = p.runs[1]?.texts[t]?.nll[i];
      const kl = p.kl[i];
      const value = shown !== difference ? nll : kl !== null && kl !== undefined ? kl : nll === null || other === null || other === undefined ? null : Math.abs(other - nll);
      if (value !== null) places.push({ place: { text: t, word: i }, value });
    }));
    // Each word once, where it was worst.
    const seen = new Set<string>();
    return places.sort((a, b) => b.value - a.value).filter(({ place }) => seen.size < shownWorst && !seen.has(word(place, first)) && seen.add(word(place, first)));
  }, [p, shown]);
  const same = p.paired && p.runs.length > 1;
  return (
    <>
      {p.runs.length > 1 && <Choice label="Colors show" options={[...(same ? [{ value: difference, name: "the difference" }] : []), ...names.map((name, i) => ({ value: i, name }))]} value={shown} onChange={(to) => {
        show(to);
        if (!p.paired) pick(null);
      }} />}
      <div class="loss-key" aria-hidden="true">
        {shown === difference && <span data-l={-levels}>{names[1]} finds it more likely</span>}
        {shown === difference && <span data-l={-levels / 2}>&nbsp;</span>}
        <span data-l="0">{shown === difference ? "as likely" : "expected"}</span>
        <span data-l={levels / 2}>&nbsp;</span>
        <span data-l={levels}>{shown === difference ? `${names[1]} finds it less likely` : `surprising: ${fullLoss} nats and more`}</span>
      </div>
      {p.runs[first]!.texts.map((_, text) => (
        <Text key={text} p={p} shown={shown} text={text} picked={picked?.text === text ? picked.word : null} pick={(at) => pick({ text, word: at })} describe={describe(text)} />
      ))}
      <p class="row-title">{shown === difference ? `Where they differ most${p.kl.length > 0 ? " (KL in nats)" : ""}` : "What surprised it most"}</p>
      <div class="worst">
        {worst.map(({ place, value }) => (
          <button key={`${place.text} ${place.word}`} type="button" onClick={() => pick(place)}>{short(word(place, first), 14)} <small>{number(value)}</small></button>
        ))}
      </div>
      {picked !== null && (
        <Picked title={`In the place of “${word(picked, first)}”${p.kl[picked.word] === null || p.kl[picked.word] === undefined ? "" : `: KL ${number(p.kl[picked.word])}`}`}>
          <div class="beside">
            {(same ? p.runs.map((_, i) => i) : runs).map((run) => {
              const own = p.runs[run]!.texts[picked.text]!;
              return <Distribution key={run} title={`${p.runs.length > 1 ? names[run]! : "expected"}${own.nll[picked.word] === null ? "" : `; what came: ${write(own.nll[picked.word])}`}`} likely={own.likely[picked.word] ?? []} spells={spells[run]!} />;
            })}
          </div>
        </Picked>
      )}
    </>
  );
}

function rows(p: LossesData): (string | number | null)[][] {
  const [one, two] = p.runs;
  const both = p.paired && two !== undefined;
  return one!.texts.flatMap((text, t) => text.words.slice(0, tableRows).map((said, i) => [piece(said), text.nll[i] ?? null, ...(both ? [two.texts[t]!.nll[i] ?? null] : [])]));
}

export function Losses({ p }: { p: LossesData }) {
  const names = runNames(p.runs.map((run) => run.name));
  const facts = p.runs.flatMap((run) => run.facts);
  return (
    <>
      <p>A language model gives every word that could come next a probability. The loss of the word that came is −ln of its probability: 0 where the model was certain and right, 0.7 at one half, 4.6 at one in a hundred.{p.runs.length > 1 && " Two models are compared word by word."}</p>
      {facts.length > 0 && <ul class="notes">{facts.map((line) => <li key={line}>{line}</li>)}</ul>}
      <Figure
        name="losses"
        wide={false}
        alone={false}
        made={["run"]}
        title={p.runs.length > 1 ? "The text as both models read it" : "The text, colored by its loss"}
        alt={`Loss of ${plural(p.runs[0]!.texts.reduce((n, text) => n + text.words.length, 0), "word")} and marks${facts.length > 0 ? `. ${facts.join(" ")}` : "."}`}
        caption="Point at a word to see what was expected in its place, press it to see the most likely as bars. Grey words have no loss: nothing stands in front of them, or they were not scored."
        table={() => ({ columns: ["word", ...(p.paired && p.runs.length > 1 ? names.map((name) => `-ln p, ${name}`) : ["-ln p"])], rows: rows(p) })}
      >
        <LossPicture p={p} />
      </Figure>
    </>
  );
}
