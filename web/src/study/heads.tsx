// What every head looks at, as a grid; over the checkpoints of a run as a film.

import { useEffect, useMemo, useState } from "preact/hooks";
import { linearDomain } from "../axes";
import { Choice, Copyable, Slider } from "../controls";
import { Figure, Prose } from "../figure";
import { number, percent, plural } from "../format";
import { Heat, ScaleKey } from "../heat";
import type { HeadsData } from "../results";
import { XyChart, type Series } from "../xychart";
import { Compositions } from "./compositions";
import { Picked, runNames } from "./shared";
import { headName, headWords, roleNames, roleTitles } from "./words";

/** The column of the scores, or what the OV circuits say. */
type Shown = number | "copying";
const difference = -1;
const mostly = 0.3;
const alone = { alone: false, wide: false } as const;

/** The first checkpoint at which a head does it, in words. */
function appears(p: HeadsData, role: number): string {
  const at = p.runs.findIndex((run) => run.scores.some((scores) => (scores[role] ?? 0) >= mostly));
  if (at < 0) return `At no checkpoint does a head spend ${percent(mostly)} on ${roleNames[role]!}.`;
  const names = p.heads.filter((_, i) => (p.runs[at]!.scores[i]![role] ?? 0) >= mostly).map(([layer, head]) => headName(layer, head));
  return `The first head that spends ${percent(mostly)} or more on ${roleNames[role]!} appears at ${p.runs[at]!.name}: ${names.join(", ")}.`;
}

function useFilm(last: number): { at: number; go: (at: number) => void; playing: boolean; play: () => void } {
  const [at, set] = useState(last);
  const [playing, turn] = useState(false);
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => (at >= last ? turn(false) : set(at + 1)), 450);
    return () => clearTimeout(timer);
  }, [playing, at, last]);
  return {
    at,
    playing,
    go: (to) => {
      turn(false);
      set(to);
    },
    play: () => {
      if (!playing && at >= last) set(0);
      turn(!playing);
    },
  };
}

function Grid({ p }: { p: HeadsData }) {
  const last = p.runs.length - 1;
  const film = p.runs[0]!.step !== null && p.runs.length > 1;
  const names = useMemo(() => runNames(p.runs.map((run) => run.name)), [p]);
  const { at, go, playing, play } = useFilm(last);
  const [pair, choose] = useState(0);
  const present = roleTitles.flatMap((name, role) => (p.queries[role]! > 0 ? [{ value: role as Shown, name }] : []));
  const [shown, show] = useState<Shown>(film ? 2 : present[0]?.value ?? 0);
  const [picked, pick] = useState<number | null>(null);
  const run = film ? at : p.runs.length > 1 ? pair : 0;
  const copying = p.circuits !== null && !film;
  const layers = useMemo(() => [...new Set(p.heads.map(([layer]) => layer))], [p]);
  const columns = Math.max(...p.heads.map(([, head]) => head)) + 1;
  const index = useMemo(() => new Map(p.heads.map(([layer, head], i) => [headName(layer, head), i])), [p]);
  const headAt = (row: number, col: number): number | undefined => index.get(headName(layers[row]!, col));
  const score = (of: number, i: number): number | null => {
    if (shown !== "copying") return p.runs[of]!.scores[i]![shown] ?? null;
    const [layer, head] = p.heads[i]!;
    return p.circuits?.heads.find((one) => one.layer === layer && one.head === head)?.copying ?? null;
  };
  const value = useMemo(() => (row: number, col: number): number | null => {
    const i = headAt(row, col);
    if (i === undefined) return null;
    if (run !== difference) return score(run, i);
    const [a, b] = [score(0, i), score(1, i)];
    return a === null || b === null ? null : b - a;
  }, [p, run, shown]);
  const both = run === difference || shown === "copying";
  const most = run === difference ? Math.max(0.01, ...p.heads.map((_, i) => Math.abs((score(1, i) ?? 0) - (score(0, i) ?? 0)))) : 1;
  const title = shown === "copying" ? "copying" : roleTitles[shown]!;
  return (
    <>
      {film && (
        <div class="film">
          <Slider label="Checkpoint" min={0} max={last} value={at} onChange={go} says={`${p.runs[at]!.name}, loss ${number(p.runs[at]!.loss)}${p.runs[at]!.loss_again === null ? "" : `, where it repeats ${number(p.runs[at]!.loss_again)}`}`} />
          <button type="button" onClick={play}>{playing ? "Stop" : "Play"}</button>
        </div>
      )}
      {!film && p.runs.length > 1 && <Choice label="Model" options={[...names.map((name, i) => ({ value: i, name })), { value: difference, name: "second minus first" }]} value={pair} onChange={choose} />}
      <Choice label="Share of attention on" options={copying ? [...present, { value: "copying" as Shown, name: "copying (OV)" }] : present} value={shown} onChange={show} />
      <Heat
        label={`${title} by layer and head.`}
        rows={layers.length}
        cols={columns}
        value={value}
        scale={both ? "diverging" : "sequential"}
        most={most}
        rowNames={layers.map((layer) => `layer ${layer}`)}
        colNames={Array.from({ length: columns }, (_, head) => String(head))}
        colTitle="head"
        describe={(row, col) => {
          const i = headAt(row, col);
          if (i === undefined) return `no head ${headName(layers[row]!, col)}`;
          if (run === difference) return [`head ${headName(...p.heads[i]!)}, ${title}`, ...[0, 1].map((of) => `${percent(score(of, i) ?? 0)} in ${names[of]!}`)].join("\n");
          return headWords(p, run, i).join("\n");
        }}
        picks="what this head does"
        onPick={(row, col) => pick(headAt(row, col) ?? null)}
        write={(v) => (shown === "copying" ? number(v, 2) : (100 * v).toFixed(0))}
        cell={56}
        tall={30}
      />
      <ScaleKey scale={both ? "diverging" : "sequential"} low={shown === "copying" ? "−1 suppresses" : both ? `−${percent(most)}` : "0 %"} high={shown === "copying" ? "+1 copies" : percent(most)} label={shown === "copying" ? "copying" : "share of the head's attention"} />
      {run !== difference && <ul class="sentences">{p.runs[run]!.sentences.map((line) => <li key={line}><Prose text={line} /></li>)}</ul>}
      {film && shown !== "copying" && <p class="remark"><strong>{appears(p, shown)}</strong></p>}
      {picked !== null && <Head p={p} run={run === difference ? 0 : run} index={picked} />}
    </>
  );
}

/** What one head does, and the commands that show more of it. */
function Head({ p, run, index }: { p: HeadsData; run: number; index: number }) {
  const [layer, head] = p.heads[index]!;
  const [title = "", ...words] = headWords(p, run, index);
  const of = p.runs[run]!;
  const picture = p.prompt.startsWith("--repeat") ? `--tokens ${p.ids.join(",")}` : p.prompt;
  // A line of a hundred ids helps nobody.
  const drawn = picture === p.prompt || p.ids.length <= 40;
  return (
    <Picked title={title}>
      <ul class="facts">{words.map((line) => <li key={line}>{line}</li>)}</ul>
      <p class="remark">These numbers{drawn && ", and a drawing of where it looks"}:</p>
      <Copyable label="circuits command" text={`vitrine circuits${of.options} --layer ${layer} --head ${head} ${p.prompt}`} />
      {drawn && <Copyable label="picture command" text={`vitrine picture attention${of.options} --layer ${layer} --head ${head} --out head.svg ${picture}`} />}
    </Picked>
  );
}

/** Scores by step: a line for each head, and the loss below. */
function ByStep({ p }: { p: HeadsData }) {
  const [role, choose] = useState(2);
  const steps = p.runs.map((run) => run.step ?? 0);
  const chart = useMemo(() => {
    const best = p.heads.map((_, i) => Math.max(...p.runs.map((run) => run.scores[i]![role] ?? 0)));
    const named = [...best.keys()].sort((a, b) => best[b]! - best[a]!).slice(0, 4);
    return p.heads.map(([layer, head], i): Series => {
      const rank = named.indexOf(i);
      return {
        name: headName(layer, head),
        tone: rank < 0 ? "plain faint" : ["attention", "mlp", "third", "plain"][rank]!,
        named: rank >= 0,
        draw: rank < 0 ? "line" : "both",
        points: p.runs.map((run) => ({ x: run.step ?? 0, y: run.scores[i]![role] ?? NaN, text: `head ${headName(layer, head)}, ${run.name}\n${percent(run.scores[i]![role] ?? 0)} on ${roleNames[role]!}` })),
      };
    });
  }, [p, role]);
  const x = { label: "step", domain: [Math.min(...steps), Math.max(...steps)] as const };
  const losses: Series[] = [
    { name: p.repeated > 0 ? "first time" : "loss", tone: "plain", draw: "both", points: p.runs.map((run) => ({ x: run.step ?? 0, y: run.loss ?? NaN, text: `${run.name}\nloss ${number(run.loss)}` })) },
    ...(p.repeated > 0 ? [{ name: "again", tone: "mlp", draw: "both" as const, points: p.runs.map((run) => ({ x: run.step ?? 0, y: run.loss_again ?? NaN, text: `${run.name}, where it repeats\nloss ${number(run.loss_again)}` })) }] : []),
  ];
  return (
    <>
      <Choice label="Share of attention on" options={roleTitles.flatMap((name, r) => (p.queries[r]! > 0 ? [{ value: r, name }] : []))} value={role} onChange={choose} />
      <XyChart label={`${roleTitles[role]!} by step.`} x={x} y={{ label: "share of attention", domain: [0, 1] }} series={chart} height={250} right={60} />
      <XyChart label="Loss by step." x={x} y={{ label: "loss, -ln p", domain: linearDomain(losses.flatMap((one) => one.points.map((point) => point.y)), 0) }} series={losses} height={210} right={86} />
    </>
  );
}

function table(p: HeadsData) {
  return {
    columns: ["run", "layer", "head", ...roleTitles],
    rows: p.runs.flatMap((run) => run.scores.map((scores, i) => [run.name, ...p.heads[i]!, ...scores])),
  };
}

export function Heads({ p }: { p: HeadsData }) {
  const film = p.runs[0]!.step !== null && p.runs.length > 1;
  const alt = (p.runs.at(-1)!.sentences).join(". ").replaceAll("`", "");
  return (
    <>
      <p>A head of attention spends all of its attention on earlier tokens. Four habits are known well enough to have names: looking at the <em>previous</em> token, at earlier copies of the same token (<em>duplicate</em>), at what followed such a copy (<em>induction</em>, which is how a model repeats what it has read once), and at the <em>first</em> token, where heads rest that have nothing to do.</p>
      <Figure {...alone} name="heads" made={["run"]} title={film ? "Head scores over the run" : "Head scores"} alt={alt} caption={`The share of a head's attention that goes there, in per cent, as a mean over the ${p.ids.length} tokens' positions that have such a key. Press a head to see what it does in words.`} table={() => table(p)}>
        <Grid p={p} />
      </Figure>
      {film && (
        <Figure {...alone} name="heads-by-step" made={["run"]} title="When the heads appear" alt={[0, 1, 2, 3].filter((role) => p.queries[role]! > 0).map((role) => appears(p, role)).join(" ")} caption={`Above, a line for each head over ${plural(p.runs.length, "checkpoint")}; below, the loss${p.repeated > 0 ? " of tokens that come the first time and of those that come again. Induction heads are what lets the second fall below the first" : ""}.`} table={() => ({ columns: ["step", "loss", ...(p.repeated > 0 ? ["loss again"] : [])], rows: p.runs.map((run) => [run.step, run.loss, ...(p.repeated > 0 ? [run.loss_again] : [])]) })}>
          <ByStep p={p} />
        </Figure>
      )}
      {p.circuits !== null && p.circuits.links.length > 0 && <Compositions circuits={p.circuits} options={p.runs.at(-1)!.options} prompt={p.prompt} />}
    </>
  );
}
