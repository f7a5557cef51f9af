// The walk-through: what was asked, one section a step, and where it ends.

import { Fragment } from "preact";
import { Fold } from "./controls";
import { css } from "./color";
import type { Model, PictureName, Step } from "./data";
import { commandLine, edition, live, space, spelling, tokenAt, vitrine } from "./document";
import { Prose } from "./figure";
import { count, number, percent, plural, shape, spaceShown } from "./format";
import { ThemeButton } from "./frame";
import { markTerms } from "./glossary";
import { GuessBox } from "./guess";
import { useTheme } from "./hooks";
import { MadeLegend } from "./made";
import { ModelMap } from "./map";
import { Picture } from "./pictures";
import { Rail } from "./rail";
import { Recap } from "./recap";

const promptShown = 24;
const titleLength = 72;

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
        <Ending />
      </main>
    </>
  );
}

/** "9.45 million". */
function amount(value: number): string {
  for (const [size, name] of [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]] as const) if (value >= size) return `${number(value / size)} ${name}`;
  return count(value);
}

/** What the model is, in a sentence: its own size first, then whose architecture it has. */
function summary(m: Model): string {
  const keys = { MHA: "", GQA: `, which share ${plural(m.nKvHeads, "key and value head")}`, MQA: ", which share one key and value head" }[m.heads];
  const family = /^[a-z]/.test(m.familyTitle) ? `the ${m.familyTitle}` : m.familyTitle;
  const experts = vitrine.pictures.experts;
  const mlp = experts?.available === true ? `${plural(experts.count, "MLP")}, of which each token takes ${experts.perToken}` : `an MLP (${m.mlpTitle}) of ${count(m.dFf)} hidden units`;
  return `This model has ${amount(m.parameters)} parameters, the numbers that training sets, in ${plural(m.nLayers, "layer")}. Its architecture is that of ${family}: every token is a vector of ${count(m.dModel)} numbers; each layer has ${plural(m.nHeads, "attention head")}${keys}, and ${mlp}.`;
}

/** The end of a text: what comes next follows it. */
function ending(text: string, length: number): string {
  const letters = [...text];
  return letters.length <= length ? text : `…${letters.slice(letters.length - length + 1).join("")}`;
}

function Opening() {
  const { model, prompt, tokens } = vitrine;
  const name = model.name === "" ? "the model that vitrine ships with" : model.name;
  return (
    <header class="opening" id="top">
      <p class="kicker">A walk through {name}</p>
      <h1>{prompt.text === null ? `${plural(tokens.length, "token")}, and the next one` : <>“<bdi>{ending(prompt.text.replace(/\s+/g, " "), titleLength)}</bdi>”, and what comes next</>}</h1>
      <Answer />
      <p class="summary">A language model reads a text and says, for each piece of text that it knows, how probable it is that this piece comes next. This page follows one text through one model, from the letters to that answer.</p>
      <p class="summary">{summary(model)}</p>
      <p class="hint">Every picture says where its numbers come from. Point at one, touch it, or move to it with the Tab key and walk through it with the arrow keys, to read its values.</p>
      <MadeLegend />
    </header>
  );
}

/** The prompt as tokens, and the most likely continuations with their probabilities. */
function Answer() {
  useTheme();
  const next = vitrine.pictures["next-tokens"];
  if (next === undefined || !next.available) return null;
  const last = vitrine.tokens.length - 1;
  const start = Math.max(0, vitrine.tokens.length - promptShown);
  const [ids, probs] = [next.ids[last]!.slice(0, 5), next.probs[last]!];
  return (
    <div class="answer">
      <p class="answer-prompt">
        {start > 0 && <span>… {count(start)} tokens before these … </span>}
        {vitrine.tokens.slice(start).map((token, i) => <bdi key={i} class={token.control ? "chip control" : "chip"}>{tokenAt(start + i)}</bdi>)}
        <span class="answer-arrow" aria-label="is followed by">→</span>
        {space !== null && <span class="space-legend"><bdi class="chip">{spaceShown}</bdi> is a space: it belongs to the piece behind it.</span>}
      </p>
      <ol class="answer-next" aria-label="Most likely next tokens">
        {ids.map((id, i) => (
          <li key={id}>
            <bdi>{spelling(id)}</bdi>
            <span class="answer-bar" aria-hidden="true"><i style={{ width: `${Math.max(1, 100 * probs[i]!)}%`, background: css("sequential", 0.45 + 0.55 * probs[i]!, 1) }} /></span>
            <b>{percent(probs[i]!)}</b>
          </li>
        ))}
      </ol>
    </div>
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

/** Pictures that no step shows, because this model or prompt cannot have them, each with its reason. */
function Lacking() {
  if (vitrine.steps.length === 0) return null;
  const shown = new Set(vitrine.steps.flatMap((step) => [...step.pictures, ...step.engineers.pictures]));
  const names = (Object.keys(vitrine.pictures) as PictureName[]).filter((name) => !shown.has(name));
  if (names.length === 0) return null;
  return (
    <section id="lacking" aria-labelledby="heading-lacking">
      <h2 id="heading-lacking">What this model does without</h2>
      {names.map((name) => <Picture key={name} name={name} />)}
    </section>
  );
}

function Ending() {
  return (
    <footer>
      <p>
        Made by vitrine {vitrine.version} with weights in {vitrine.model.dtypes.join(", ")}. The page needs no network: its numbers are inside it, under <code>window.vitrine</code>. Other settings (<code>--compute f32</code>, <code>--exact</code>), quantized weights and other batches round differently, so the last digits of a percentage can differ from those of another run. To make it again:
      </p>
      <pre tabIndex={0} aria-label="command that makes this page"><code>{commandLine("explain", `${live ? "--live " : ""}--out page.html`)}</code></pre>
    </footer>
  );
}
