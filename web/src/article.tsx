// The walk-through: what was asked, one section a step, and where it ends.

import { Fragment } from "preact";
import { Fold } from "./controls";
import type { PictureName, Step } from "./data";
import { commandLine, edition, live, vitrine } from "./document";
import { Prose } from "./figure";
import { shape } from "./format";
import { ThemeButton } from "./frame";
import { markTerms } from "./glossary";
import { GuessBox } from "./guess";
import { Experiments } from "./live/experiment";
import { Backward } from "./live/redraw";
import { OwnModel } from "./live/own";
import { ModelMap } from "./map";
import { Opening } from "./opening";
import { Picture } from "./pictures";
import { Rail } from "./rail";
import { Recap } from "./recap";

export function Article() {
  return (
    <>
      <a class="skip" href="#main">To the text</a>
      <ThemeButton />
      <Rail steps={vitrine.steps} />
      <main id="main">
        <Opening />
        {vitrine.steps.length > 0 && <ModelMap steps={vitrine.steps} />}
        {vitrine.steps.map((step, i) => <Section key={step.id} step={step} at={i + 1} />)}
        {vitrine.steps.length === 0 && Object.keys(vitrine.pictures).map((name) => <Picture key={name} name={name as keyof typeof vitrine.pictures} />)}
        <Lacking />
        <Backward />
        <OwnModel />
        <Ending />
      </main>
    </>
  );
}

function Section({ step, at }: { step: Step; at: number }) {
  const paragraphs = markTerms(step.text);
  const recap = step.id === "recap";
  const boxes = (after: number) => !recap && step.guesses.filter((guess) => guess.after === after).map((guess) => <GuessBox key={`${edition} ${guess.question} ${guess.answer}`} guess={guess} />);
  return (
    <section id={step.id} aria-labelledby={`heading-${step.id}`}>
      <h2 id={`heading-${step.id}`}><span class="number" aria-hidden="true">{at}</span> {step.title}</h2>
      {step.question !== "" && <p class="question"><Prose text={step.question} /></p>}
      {boxes(0)}
      {paragraphs.map((text, i) => <Fragment key={i}><p>{text}</p>{boxes(i + 1)}</Fragment>)}
      {recap && <Recap guesses={step.guesses} />}
      <Formulas lines={step.formula} />
      {step.pictures.map((name) => <Picture key={name} name={name} />)}
      <Experiments step={step} />
      <Engineers step={step} />
    </section>
  );
}

/** What a learner may leave out: closed until it is asked for. */
function Engineers({ step }: { step: Step }) {
  const { text, formula, pictures } = step.engineers;
  if (text.length + formula.length + pictures.length + step.shapes.length + step.source.length === 0) return null;
  return (
    <Fold summary={<>For engineers<span class="unseen">: {step.title}</span></>} class="engineers" printed>
      {() => (
        <>
          {text.map((one, i) => <p key={i}><Prose text={one} /></p>)}
          <Formulas lines={formula} />
          {step.shapes.length > 0 && (
            <div class="shapes" role="group" aria-label="Shapes of this run">
              <p>Shapes of this run</p>
              <dl>
                {step.shapes.map((one, i) => (
                  <div key={i}>
                    <dt>{one.name}</dt>
                    <dd><span>{shape(one.shape)}</span> <small>{one.axes.join(" × ")}</small>{one.hook !== null && <small class="hook"><code>{one.hook}</code></small>}</dd>
                  </div>
                ))}
              </dl>
            </div>
          )}
          {pictures.map((name) => <Picture key={name} name={name} />)}
          {step.source.map((s) => <Source key={`${s.file}:${s.line}`} source={s} of={step.title} />)}
        </>
      )}
    </Fold>
  );
}

function Formulas({ lines }: { lines: readonly string[] }) {
  if (lines.length === 0) return null;
  return <div class="formula" role="group" aria-label="Formula">{lines.map((line) => <p key={line}><Formula text={line} /></p>)}</div>;
}

/** A line of a formula: what follows a single letter and an underscore stands below the line, what follows ^ above it. */
function Formula({ text }: { text: string }) {
  const parts = text.split(/(?<=(?:^|[^\p{L}\d_])\p{L})_([A-Za-z0-9]+)|\^\(([^()]*)\)|\^([\p{L}\d]+(?:\[[^\]]*\])?)/u);
  return <>{parts.map((part, i) => (part === undefined ? null : i % 4 === 0 ? part : i % 4 === 1 ? <sub key={i}>{part}</sub> : <sup key={i}>{part}</sup>))}</>;
}

/** Several steps may quote the same lines; `of` is the title of this one. */
function Source({ source: s, of }: { source: Step["source"][number]; of: string }) {
  const lines = s.code.split("\n");
  return (
    <div class="listing">
      <p><code>{s.file}:{s.line}</code></p>
      <pre tabIndex={0} role="region" aria-label={`${s.file} from line ${s.line}: ${of}`}>{lines.map((line, i) => <span key={i} class="code-line"><i aria-hidden="true">{s.line + i}</i><code>{line === "" ? " " : line}</code>{"\n"}</span>)}</pre>
    </div>
  );
}

/** A chapter without these pictures has their data for its opening alone. */
const openingDraws = new Set<PictureName>(["attention", "next-tokens", "logit-lens"]);

/** Pictures that no step shows, because this model or prompt cannot have them, each with its reason. */
function Lacking() {
  if (vitrine.steps.length === 0) return null;
  const shown = new Set(vitrine.steps.flatMap((step) => [...step.pictures, ...step.engineers.pictures]));
  const names = (Object.keys(vitrine.pictures) as PictureName[]).filter((name) => !shown.has(name) && !(openingDraws.has(name) && vitrine.pictures[name]?.available === true));
  if (names.length === 0) return null;
  return (
    <section id="lacking" aria-labelledby="heading-lacking">
      <h2 id="heading-lacking">What this model does without</h2>
      {names.map((name) => <Picture key={name} name={name} />)}
    </section>
  );
}

/** The option that makes this chapter, where it is not the first. */
function chapter(): string {
  const of = vitrine.chapter;
  return of === undefined || of.number === 1 ? "" : `--chapter ${of.name} `;
}

function Ending() {
  return (
    <footer>
      <p>
        Made by vitrine {vitrine.version} with weights in {vitrine.model.dtypes.join(", ")}. The page needs no network: its numbers are inside it, under <code>window.vitrine</code>. Other settings (<code>--compute f32</code>, <code>--exact</code>), quantized weights and other batches round differently, so the last digits of a percentage can differ from those of another run. To make it again:
      </p>
      <pre tabIndex={0} aria-label="command that makes this page"><code>{commandLine("explain", `${chapter()}${live ? "--live " : ""}--out page.html`)}</code></pre>
    </footer>
  );
}
