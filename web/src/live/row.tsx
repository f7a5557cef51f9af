// One row of attention, step by step: how one head at one position weighs every position before it, with the numbers of this run.

import { useEffect, useState } from "preact/hooks";
import { Slider } from "../controls";
import { named, vitrine } from "../document";
import { number, percent } from "../format";
import { traceCommand } from "./commands";
import { WithTheProgram } from "./program";
import { promptField, useLive } from "./state";

interface Hook {
  name: string;
  shape: number[];
  values: unknown;
}

/** The numbers of one row. */
export interface Row {
  pieces: string[];
  position: number;
  dots: number[];
  /** What scales the dot products, as this run's scores show it. */
  scale: number;
  scaled: number[];
  capped: number[];
  /** Null: the key is hidden, because it comes later or lies outside the window. */
  scores: (number | null)[];
  exponentials: (number | null)[];
  weights: number[];
  /** |v| of each key, and |weight · v|. */
  values: number[];
  weighted: number[];
  z: number;
  /** |Σ weight · v − z|, which is 0 but for rounding. */
  rest: number;
  output: number;
}

const length = (v: readonly number[]) => Math.hypot(...v);
const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, x, i) => sum + x * b[i]!, 0);

/** The only row of the only head: [1, 1, n] or, for keys and values, [tokens, 1, n]. */
function rowsOf(hook: Hook | undefined): number[][] {
  if (hook === undefined) throw new Error("the engine has left out a hook");
  return (hook.values as number[][][]).map((one) => one[0]!);
}

export function hooksOf(layer: number, head: number, position: number): string[] {
  const { model } = vitrine;
  const group = Math.floor(head / (model.nHeads / model.nKvHeads));
  const rotated = model.positions === "rotary" ? "rot_" : "";
  const at = `blocks.${layer}.attn`;
  return [
    `${at}.hook_${rotated}q[heads=${head},positions=${position}]`, `${at}.hook_${rotated}k[heads=${group}]`, `${at}.hook_v[heads=${group}]`,
    `${at}.hook_attn_scores[heads=${head},positions=${position}]`, `${at}.hook_pattern[heads=${head},positions=${position}]`,
    `${at}.hook_z[heads=${head},positions=${position}]`, `${at}.hook_result[heads=${head},positions=${position}]`,
  ];
}

export function rowOf(hooks: readonly Hook[], pieces: string[], position: number): Row {
  const find = (end: string) => hooks.find((hook) => hook.name.endsWith(end));
  const [q, z, result] = [rowsOf(find("q"))[0]!, rowsOf(find("hook_z"))[0]!, rowsOf(find("hook_result"))[0]!];
  const [k, v] = [rowsOf(find("k")), rowsOf(find("hook_v"))];
  const scores = (find("hook_attn_scores")!.values as (number | null)[][][])[0]![0]!;
  const weights = (find("hook_pattern")!.values as number[][][])[0]![0]!;
  const cap = vitrine.model.attentionSoftcap;
  const dots = k.map((key) => dot(q, key));
  // The scale is read from the score with the largest product: the one that rounding disturbs least.
  const seen = scores.flatMap((score, j) => (score === null ? [] : [j])).reduce((a, b) => (Math.abs(dots[b]!) > Math.abs(dots[a]!) ? b : a));
  const uncapped = cap > 0 ? cap * Math.atanh(scores[seen]! / cap) : scores[seen]!;
  const scale = uncapped / dots[seen]!;
  const scaled = dots.map((d) => d * scale);
  const highest = Math.max(...scores.filter((score) => score !== null));
  const sum = z.map((_, i) => v.reduce((total, value, j) => total + weights[j]! * value[i]!, 0));
  return {
    pieces, position, dots, scale, scaled, scores, weights,
    capped: scaled.map((s) => (cap > 0 ? cap * Math.tanh(s / cap) : s)),
    exponentials: scores.map((score) => (score === null ? null : Math.exp(score - highest))),
    values: v.map(length),
    weighted: v.map((value, j) => weights[j]! * length(value)),
    z: length(z),
    rest: length(sum.map((x, i) => x - z[i]!)),
    output: length(result),
  };
}

interface Column {
  title: string;
  /** Said while this column is the newest. */
  says: (row: Row) => string;
  value: (row: Row, key: number) => number | null;
  format?: (value: number) => string;
}

function columns(cap: number, window: number): Column[] {
  return [
    { title: "q·k", says: (row) => `The query of ${row.pieces[row.position]} is multiplied with the key of every token: a dot product each.`, value: (row, j) => row.dots[j]! },
    { title: "scaled", says: (row) => `Each is multiplied by ${number(row.scale, 4)} (1/√${number(1 / row.scale ** 2, 4)}), so that they do not grow with the width of a head.`, value: (row, j) => row.scaled[j]! },
    ...(cap > 0 ? [{ title: "capped", says: () => `The cap ${cap} · tanh(s / ${cap}) keeps scores between −${cap} and ${cap}; small ones it hardly touches.`, value: (row: Row, j: number) => row.capped[j]! }] : []),
    { title: "masked", says: (row) => `Tokens behind position ${row.position} are hidden${window > 0 ? `, and those more than ${window - 1} before it` : ""}.`, value: (row, j) => row.scores[j]! },
    { title: "exp", says: () => "Each score becomes a power of e, after the highest has been taken off, which changes no quotient.", value: (row, j) => row.exponentials[j]! },
    { title: "weight", says: (row) => `Divided by their sum, ${number(row.exponentials.reduce<number>((a, b) => a + (b ?? 0), 0), 4)}, they are weights that sum to 1: the softmax.`, value: (row, j) => row.weights[j]!, format: percent },
    { title: "|weight · v|", says: () => "Every token gives its value vector, times its weight. Here the lengths of what they give.", value: (row, j) => row.weighted[j]! },
  ];
}

export function AttentionRow({ active }: { active: boolean }) {
  const { engine, prompt, plain } = useLive();
  const { model } = vitrine;
  const [layer, setLayer] = useState(Math.min(1, model.nLayers - 1));
  const [head, setHead] = useState(model.nHeads - 1);
  const [position, setPosition] = useState<number | null>(null);
  const [step, go] = useState(0);
  const [row, set] = useState<Row | null>(null);
  const [trouble, tell] = useState("");
  const last = (plain?.tokens.length ?? 1) - 1;
  const at = Math.min(position ?? last, last);
  const pieces = plain?.pieces.map((one, i) => named(one, plain.tokens[i]!)) ?? [];
  useEffect(() => {
    if (!active || plain === null) return;
    let gone = false;
    engine?.ask<{ hooks: Hook[] }>("inspect", { ...promptField(prompt), hooks: hooksOf(layer, head, at) }, "row").then((answer) => {
      if (gone || answer === null) return;
      set(rowOf(answer.hooks, pieces, at));
      tell("");
    }).catch((error: unknown) => tell(error instanceof Error ? error.message : String(error)));
    return () => {
      gone = true;
    };
  }, [active, plain?.tokens.join(), layer, head, at]);
  const list = columns(model.attentionSoftcap, model.windows[layer] ?? 0);
  const lastStep = list.length;
  const now = Math.min(step, lastStep);
  return (
    <>
      <div class="live-row">
        <Slider label="Layer" min={0} max={model.nLayers - 1} value={layer} onChange={setLayer} says={String(layer)} />
        <Slider label="Head" min={0} max={model.nHeads - 1} value={head} onChange={setHead} says={String(head)} />
        <Slider label="Position" min={0} max={Math.max(last, 0)} value={at} onChange={setPosition} says={`${at}: ${pieces[at] ?? ""}`} />
      </div>
      {trouble !== "" && <p role="alert">{trouble}</p>}
      {row !== null && (
        <>
          <div class="live-row">
            <button type="button" disabled={now === 0} onClick={() => go(now - 1)}>Back</button>
            <button type="button" disabled={now === lastStep} onClick={() => go(now + 1)}>Next step</button>
            <span>Step {now + 1} of {lastStep + 1}</span>
          </div>
          <p role="status" class="live-says">{now < lastStep ? list[now]!.says(row) : `Their sum is z, of length ${number(row.z)} (what this head read; the sum above and the run's own z differ by ${number(row.rest, 2)}). Times W_O it is what the head writes: a vector of length ${number(row.output)}.`}</p>
          <RowTable row={row} columns={list.slice(0, now + 1)} />
          <WithTheProgram commands={[traceCommand(prompt, hooksOf(layer, head, at))]} />
        </>
      )}
    </>
  );
}

function RowTable({ row, columns: list }: { row: Row; columns: Column[] }) {
  const newest = list.at(-1)!;
  // Where there is no room for all columns, the newest two are shown: what goes in and what comes out.
  const past = (i: number) => (i < list.length - 2 ? "past" : "");
  const most = Math.max(1e-30, ...row.pieces.map((_, j) => Math.abs(newest.value(row, j) ?? 0)));
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="The row, one token a line">
      <table class="row-steps">
        <thead><tr><th scope="col">token</th>{list.map((column, i) => <th key={column.title} scope="col" class={past(i)}>{column.title}</th>)}<th scope="col" aria-hidden="true" /></tr></thead>
        <tbody>
          {row.pieces.map((name, j) => {
            const value = newest.value(row, j);
            return (
              <tr key={j} class={j === row.position ? "here" : undefined}>
                <th scope="row"><bdi>{name}</bdi></th>
                {list.map((column, i) => {
                  const cell = column.value(row, j);
                  return <td key={column.title} class={`number ${past(i)}`} data-value={cell ?? ""}>{cell === null ? "hidden" : (column.format ?? number)(cell)}</td>;
                })}
                <td class="row-bar" aria-hidden="true">{value !== null && <i class={value < 0 ? "less" : ""} style={{ width: `${(100 * Math.abs(value)) / most}%` }} />}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
