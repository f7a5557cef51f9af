// Patching: the values of the page's prompt, put one by one into the run of another prompt with as many tokens.

import { useEffect, useState } from "preact/hooks";
import { Choice } from "../controls";
import { named, visible } from "../document";
import { number } from "../format";
import { Heat, ScaleKey } from "../heat";
import type { MetricValues, Prediction, TokenLogprob } from "../results";
import { BeforeAfter } from "./before-after";
import { interveneCommand } from "./commands";
import type { Engine } from "./engine";
import { WithTheProgram } from "./program";
import { secondPrompt } from "./second";
import { promptField, recipePrompt, useLive, type Next } from "./state";
import { tokenPairs } from "./token";

type What = "resid_pre" | "attn_out" | "mlp_out" | "z";
const kinds: { value: What; name: string }[] = [
  { value: "resid_pre", name: "residual stream" },
  { value: "attn_out", name: "attention" },
  { value: "mlp_out", name: "MLPs" },
  { value: "z", name: "heads" },
];

interface Report {
  prompt: { pieces: string[] | null };
  corrupt: { pieces: string[] | null };
  before: Prediction[];
  after: Prediction[];
  metric: MetricValues;
  grid: { values: (number | null)[][]; normalized: (number | null)[][] | null; columns: { axis: string; labels: string[] }; rows: { labels: string[] } };
  yaml: string;
}

interface Made {
  of: string;
  what: What;
  report: Report;
  tokens: readonly [TokenLogprob, TokenLogprob];
}

export function Patch({ active }: { active: boolean }) {
  const { engine, prompt, plain } = useLive();
  const [corrupt, setCorrupt] = useState("");
  const [own, setOwn] = useState(false);
  const [what, choose] = useState<What>("resid_pre");
  const [made, set] = useState<Made | null>(null);
  const [cell, setCell] = useState<{ title: string; report: Report } | null>(null);
  const [said, say] = useState("");
  // Until the reader writes one, the second prompt is found for the first.
  useEffect(() => {
    if (!active || own || plain === null || engine === null) return;
    let gone = false;
    secondPrompt(engine, prompt, plain).then((found) => !gone && setCorrupt(found ?? prompt), () => !gone && setCorrupt(prompt));
    return () => {
      gone = true;
    };
  }, [active, own, plain?.tokens.join()]);
  const run = async () => {
    if (engine === null || plain === null) return;
    say("Running …");
    setCell(null);
    try {
      const [clean, other] = await Promise.all([mostLikely(engine, prompt), mostLikely(engine, corrupt)]);
      const wrong = unfit(clean, other);
      if (wrong !== null) return say(wrong);
      // The page's answer against the other's; where both say the same, against the other's second.
      const [first, second] = other.next;
      const against = first!.token === clean.next[0]!.token ? second! : first!;
      const report = await engine.ask<Report>("patch", { prompt: recipePrompt(prompt), corrupt: recipePrompt(corrupt), metric: { logit_difference: [clean.next[0]!.token, against.token] }, patch: { what } });
      if (report !== null && report.metric.clean === report.metric.corrupt) return say("Both prompts get exactly the same answer, so there is no difference to bring back. Change another word of the second prompt.");
      if (report !== null) set({ of: `${prompt}\n${corrupt}`, what, report, tokens: [clean.next[0]!, against] });
      say("");
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
  };
  const pick = async (row: number, col: number) => {
    if (engine === null || made === null) return;
    const column = made.report.grid.columns.labels[col]!.split(" ")[0]!;
    const one = made.what === "z" ? { head: `${row}.${column}` } : { hook: `${made.what}.${row}`, positions: [Number(column)] };
    const [a, b] = made.tokens;
    try {
      const report = await engine.ask<Report>("patch", { prompt: recipePrompt(prompt), corrupt: recipePrompt(corrupt), run: "corrupt", metric: { logit_difference: [a.token, b.token] }, interventions: [{ ...one, do: "resample", from: "clean" }] });
      if (report !== null) setCell({ title: `${made.what === "z" ? `head ${row}.${column}` : `${made.what} of layer ${row} at position ${column}`} from the first prompt`, report });
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
  };
  const shown = made !== null && made.of === `${prompt}\n${corrupt}` && made.what === what ? made : null;
  return (
    <>
      <p>The model reads a second prompt, which differs from the prompt in a word. One value at a time is replaced by that of the first prompt. Where the first answer comes back, the model keeps what decides.</p>
      <label class="live-wide">Second prompt <input type="text" value={corrupt} onInput={(event) => (setOwn(true), setCorrupt(event.currentTarget.value))} /></label>
      <div class="live-row">
        <Choice label="Values of" options={kinds} value={what} onChange={choose} />
        <button type="button" onClick={() => void run()}>Patch</button>
        <span role="status">{said}</span>
      </div>
      {shown !== null && <Grid made={shown} pick={(row, col) => void pick(row, col)} />}
      {cell !== null && <Cell title={cell.title} report={cell.report} />}
    </>
  );
}

interface Answered {
  tokens: readonly number[];
  pieces: readonly (string | null)[];
  next: TokenLogprob[];
}

async function mostLikely(engine: Engine, prompt: string): Promise<Answered> {
  const answer = await engine.ask<Next>("next", { ...promptField(prompt), top: 2 });
  if (answer === null) throw new Error("The engine gave no answer.");
  return { ...answer, next: answer.next.map((one) => ({ ...one, prob: Math.exp(one.logprob) })) };
}

/** Why two prompts cannot be patched, in the words of the page; null: they can. */
function unfit(first: Answered, second: Answered): string | null {
  const spelled = ({ tokens, pieces }: Answered) => pieces.map((piece, i) => named(piece, tokens[i]!)).join(" · ");
  if (first.tokens.join() === second.tokens.join()) return "Both prompts are the same, so there is nothing to bring back. Change a word of the second prompt.";
  if (first.tokens.length === second.tokens.length) return null;
  return `Both prompts need as many tokens, because a value goes to the same position. The prompt has ${first.tokens.length} and the second prompt ${second.tokens.length}: ${spelled(second)}.`;
}

function Grid({ made: { report, what, tokens }, pick }: { made: Made; pick: (row: number, col: number) => void }) {
  const { grid, metric } = report;
  const [a, b] = tokens.map((one) => named(one.piece, one.token));
  const share = (row: number, col: number) => grid.normalized?.[row]?.[col] ?? null;
  const names = grid.columns.labels.map((label, col) => (what === "z" ? `head ${label}` : visible(report.corrupt.pieces?.[Number(label.split(" ")[0])] ?? label) + (label === "" ? ` ${col}` : "")));
  return (
    <>
      <Heat
        label="Effect of each patch."
        rows={grid.values.length}
        cols={names.length}
        value={share}
        scale="diverging"
        most={1}
        rowNames={grid.values.map((_, layer) => `layer ${layer}`)}
        colNames={names}
        cell={48}
        tall={26}
        write={(value) => value.toFixed(2).replace("-", "−")}
        describe={(row, col) => `layer ${row}, ${names[col]}\nbrings back ${number(share(row, col))} of the difference\nclick or Enter: before and after`}
        picks="before and after"
        onPick={pick}
      />
      <ScaleKey scale="diverging" label={`${a} against ${b}`} low="away" high="1: as after the first prompt" />
      <p class="remark">The logit of {a} less that of {b} is {number(metric.clean)} after the first prompt and {number(metric.corrupt)} after the second.</p>
      <WithTheProgram recipe={report.yaml} commands={[interveneCommand()]} />
    </>
  );
}

function Cell({ title, report }: { title: string; report: Report }) {
  const before = report.before[0]?.top ?? [];
  const after = report.after[0]?.top ?? [];
  return (
    <section class="live-cell" aria-label={title}>
      <p class="live-head">With {title}</p>
      <BeforeAfter label="Most likely next tokens before and after the patch" unit="%" rows={tokenPairs(before, after)} />
      <WithTheProgram recipe={report.yaml} commands={[interveneCommand()]} />
    </section>
  );
}
