// A grid of runs that differ in one place: what each place carries, with the two distributions of the one that is picked.

import { useMemo, useState } from "preact/hooks";
import { Copyable } from "../controls";
import { Figure } from "../figure";
import { exact, number, percent } from "../format";
import { Heat, ScaleKey } from "../heat";
import type { PatchData } from "../results";
import { Distribution, Picked, spell, study } from "./shared";

const metricNames: Record<string, string> = { logprob: "log-probability", kl: "KL divergence" };
const known = (value: number | null | undefined): value is number => value !== null && value !== undefined;

export function Patch({ p }: { p: PatchData }) {
  const columns = p.columns.length;
  const { name: measure, before, clean, corrupt, tokens } = p.metric;
  const shares = p.cells.some((cell) => known(cell?.share));
  const run = p.runs_corrupt ? p.corrupt : p.clean;
  /** What the color shows: the share of the way to the clean run, or the change of the metric. */
  const effect = useMemo(() => p.cells.map((cell) => (cell === null ? null : shares ? cell.share : known(cell.value) && known(before) ? cell.value - before : null)), [p]);
  const most = Math.max(shares ? 1 : 1e-9, ...effect.filter(known).map(Math.abs));
  const strongest = effect.reduce((best: number, value, i) => (known(value) && Math.abs(value) > Math.abs(effect[best] ?? 0) ? i : best), 0);
  const [picked, pick] = useState(strongest);
  const names = p.columns.map((column, c) => (p.column_axis === "position" ? `${column} ${spell(run[p.positions[c]!]!)}` : column));
  const place = (i: number) => {
    const column = i % columns;
    const where = p.column_axis === "position" ? `position ${names[column]!}` : p.column_axis === "head" ? `head ${names[column]!}` : names[column]!;
    return `layer ${p.rows[Math.floor(i / columns)]!}, ${where}`;
  };
  const say = (i: number): string => {
    const cell = p.cells[i];
    if (cell === null || cell === undefined) return "there is no such cell";
    const change = shares ? `${number(cell.share)} of the way from the corrupt run to the clean one` : `${number(effect[i])} against the run as it is`;
    const [id, share] = [cell.likely[0], cell.likely[1]];
    return `${change}\n${metric}: ${exact(cell.value)}${id === undefined ? "" : `\nmost likely: ${spell(id)}, ${percent(share!)}`}`;
  };
  const [a, b] = tokens;
  const metricName = metricNames[measure] ?? measure.replace("_", " ");
  const metric = measure === "logit_difference" && a !== undefined && b !== undefined ? `logit(${spell(a)}) − logit(${spell(b)})` : a !== undefined ? `${metricName} of ${spell(a)}` : metricName;
  const value = useMemo(() => (row: number, col: number) => effect[row * columns + col] ?? null, [effect]);
  const cell = p.cells[picked];
  const alt = `The largest effect is at ${place(strongest)}: ${say(strongest).replaceAll("\n", ", ")}.`;
  const changed = p.kind === "ablate" ? "is taken away" : "comes from the other prompt";
  return (
    <>
      <dl class="prompts">
        <div><dt>{p.corrupt.length > 0 ? "clean" : "prompt"}</dt><dd>{p.clean.map((id, i) => <bdi key={i} class="chip">{spell(id)}</bdi>)}</dd></div>
        {p.corrupt.length > 0 && <div><dt>corrupt</dt><dd>{p.corrupt.map((id, i) => <bdi key={i} class={id === p.clean[i] ? "chip" : "chip differs"}>{spell(id)}</bdi>)}</dd></div>}
      </dl>
      <p>
        {p.kind === "patch" && <>Two prompts differ in what they ask for. The {p.runs_corrupt ? "corrupt" : "clean"} one is run again and again, each time with one value of <code>{p.what}</code> put in from the other run. Where that brings the other answer back, there the model keeps what tells the two apart.</>}
        {p.kind === "ablate" && <>The prompt is run again and again, each time without one value of <code>{p.what}</code>. Where the answer suffers, the model has use for it.</>}
        {p.kind === "path" && <>One head or MLP at a time is taken from the other prompt's run, along its direct path alone: everything in between is held as it is. What changes is its direct effect.</>}
        {known(clean) && known(corrupt) && p.corrupt.length > 0 && <> Here {metric} is {number(clean)} in the clean run and {number(corrupt)} in the corrupt one.</>}
        {p.corrupt.length === 0 && known(before) && <> Here {metric} is {number(before)} in the run as it is.</>}
      </p>
      <Figure
        name="patch"
        wide={false}
        alone={false}
        made={["run"]}
        title={shares ? "How far each place brings the clean answer back" : `How each place changes ${metric}`}
        alt={alt}
        caption={`A cell is one run, in which \`${p.what}\` of that layer and ${p.column_axis} ${changed}. ${shares ? "0: as in the corrupt run; 1: as in the clean one." : "Blue: more than in the run as it is; orange: less."} Press a cell to see what the model then expects, and the recipe of that run.`}
        table={() => ({ columns: ["layer", p.column_axis, metricName, ...(shares ? ["share of the way"] : ["change"])], rows: p.cells.flatMap((one, i) => (one === null ? [] : [[p.rows[Math.floor(i / columns)]!, names[i % columns]!, one.value, effect[i] ?? null]])) })}
      >
        <Heat
          label={`${metric} by layer and ${p.column_axis}.`}
          rows={p.rows.length}
          cols={columns}
          value={value}
          scale="diverging"
          most={most}
          rowNames={p.rows.map((row) => `layer ${row}`)}
          colNames={names}
          describe={(row, col) => `${place(row * columns + col)}\n${say(row * columns + col)}`}
          picks="what the model expects then"
          onPick={(row, col) => {
            if (p.cells[row * columns + col] !== null) pick(row * columns + col);
          }}
          write={(v) => v.toFixed(2).replace("-", "−").replace(/^−?0\.00$/, "0")}
          cell={68}
          tall={30}
        />
        <ScaleKey scale="diverging" low={number(-most)} high={number(most)} label={shares ? "share of the way to the clean run" : `change of ${metric}`} />
        {cell !== null && cell !== undefined && (
          <Picked title={`${place(picked)}${picked === strongest ? " (the largest effect)" : ""}`}>
            <p class="remark">{say(picked).split("\n")[0]}: what the model expects after {spell(run[p.position]!)}.</p>
            <div class="beside">
              <Distribution title={`${p.runs_corrupt ? "corrupt run" : "run"} as it is`} likely={p.before} marked={tokens} />
              <Distribution title="with this one change" likely={cell.likely} marked={tokens} />
              {p.runs_corrupt && <Distribution title="clean run" likely={p.clean_likely} marked={tokens} />}
            </div>
            <p class="remark">The recipe of this run. Save it as <code>recipe.yaml</code>:</p>
            <Copyable label="recipe" text={p.recipe_head + cell.recipe} />
            <Copyable label="intervene command" text={`vitrine intervene recipe.yaml${/ --compute f32\b/.test(study.command) ? " --compute f32" : ""}`} />
          </Picked>
        )}
      </Figure>
    </>
  );
}
