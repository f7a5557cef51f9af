// Patching: the values of the page's prompt, put one by one into the run of another prompt with as many tokens.

import { useState } from "preact/hooks";
import { visible } from "../document";
import { Choice } from "../controls";
import { number, percent } from "../format";
import { Heat, ScaleKey } from "../heat";
import type { MetricValues, Prediction, TokenLogprob } from "../results";
import { interveneCommand } from "./commands";
import { WithTheProgram } from "./program";
import { promptField, recipePrompt, useLive, type Next, type State } from "./state";

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

export function Patch() {
  const { engine, prompt, plain } = useLive();
  const [corrupt, setCorrupt] = useState(prompt);
  const [what, choose] = useState<What>("resid_pre");
  const [made, set] = useState<Made | null>(null);
  const [cell, setCell] = useState<{ title: string; report: Report } | null>(null);
  const [said, say] = useState("");
  const run = async () => {
    if (engine === null || plain === null) return;
    say("Running …");
    setCell(null);
    try {
      const [clean, other] = await Promise.all([mostLikely(engine, prompt), mostLikely(engine, corrupt)]);
      // The page's answer against the other's; where both say the same, against the other's second.
      const against = other[0]!.token === clean[0]!.token ? other[1]! : other[0]!;
      const report = await engine.ask<Report>("patch", { prompt: recipePrompt(prompt), corrupt: recipePrompt(corrupt), metric: { logit_difference: [clean[0]!.token, against.token] }, patch: { what } });
      if (report !== null) set({ of: `${prompt}\n${corrupt}`, what, report, tokens: [clean[0]!, against] });
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
      <p>Where does the model keep what decides? The second prompt runs, and one value at a time is replaced by that of the first. Change a word of it; both need as many tokens.</p>
      <label class="live-wide">Second prompt <input type="text" value={corrupt} onInput={(event) => setCorrupt(event.currentTarget.value)} /></label>
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

async function mostLikely(engine: NonNullable<State["engine"]>, prompt: string): Promise<TokenLogprob[]> {
  const answer = await engine.ask<Next>("next", { ...promptField(prompt), top: 2 });
  return (answer?.next ?? []).map((one) => ({ ...one, prob: Math.exp(one.logprob) }));
}

function Grid({ made: { report, what, tokens }, pick }: { made: Made; pick: (row: number, col: number) => void }) {
  const { grid, metric } = report;
  const [a, b] = tokens.map((one) => visible(one.piece ?? `#${one.token}`));
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
      <SideBySide before={before} after={after} />
      <WithTheProgram recipe={report.yaml} commands={[interveneCommand()]} />
    </section>
  );
}

export function SideBySide({ before, after }: { before: readonly TokenLogprob[]; after: readonly TokenLogprob[] }) {
  return (
    <div class="live-columns">
      {([["before", before], ["after", after]] as const).map(([name, list]) => (
        <table key={name} class="live-table">
          <caption>{name}</caption>
          <tbody>{list.slice(0, 8).map((one) => <tr key={one.token}><td><bdi>{visible(one.piece ?? `#${one.token}`)}</bdi></td><td class="number">{percent(one.prob)}</td></tr>)}</tbody>
        </table>
      ))}
    </div>
  );
}
