// Switching parts of the model off, in place: heads, attention, MLPs and norms of each layer, positions; and steering.

import type { TargetedKeyboardEvent } from "preact";
import { useRef, useState } from "preact/hooks";
import { css, inkOn } from "../color";
import { Fold, Slider } from "../controls";
import { named, vitrine } from "../document";
import { number, percent } from "../format";
import { useTheme } from "../hooks";
import { allOn, change, toggle } from "./actions";
import { interveneCommand } from "./commands";
import { Distribution } from "./next";
import { WithTheProgram } from "./program";
import { Recipe } from "./recipe";
import { edits, recipePrompt, set, useLive, type Next, type State } from "./state";

interface Cell {
  name: string;
  shown: string;
  says: string;
}

/** One row a layer: its heads, its attention and MLP as a whole, its norms. */
function layers(): Cell[][] {
  const { nLayers, nHeads } = vitrine.model;
  const statistics = vitrine.pictures["norm-statistics"];
  const norms = statistics?.available === true ? statistics.kinds.flatMap((kind) => kind.norms.map((norm) => norm.name)) : [];
  return Array.from({ length: nLayers }, (_, layer) => [
    ...Array.from({ length: nHeads }, (_, head) => ({ name: `head ${layer}.${head}`, shown: String(head), says: `layer ${layer}, head ${head}` })),
    { name: `attn ${layer}`, shown: "attn", says: `layer ${layer}, attention` },
    { name: `mlp ${layer}`, shown: "MLP", says: `layer ${layer}, MLP` },
    ...norms.filter((norm) => norm.startsWith(`blocks.${layer}.`)).map((norm) => {
      const short = norm.slice(`blocks.${layer}.`.length);
      return { name: `norm ${norm}`, shown: short.replace("_post", "′"), says: `layer ${layer}, norm ${short}` };
    }),
  ]);
}

export function SwitchOff() {
  const now = useLive();
  const { plain, changed, off, where, prompt } = now;
  if (plain === null) return <p>The engine is starting …</p>;
  const changes = edits(now);
  return (
    <div class="live-columns">
      <div>
        <Parts />
        <Positions plain={plain} off={off} />
        <div class="live-row">
          <label>At <select value={where === null ? "" : String(where)} onChange={(event) => change({ where: event.currentTarget.value === "" ? null : Number(event.currentTarget.value) })}>
            <option value="">every position</option>
            {plain.pieces.map((one, position) => <option key={position} value={position}>{position}: {named(one, plain.tokens[position]!)}</option>)}
          </select></label>
          <button type="button" disabled={changes.length === 0} onClick={allOn}>Everything on</button>
        </div>
        <Fold summary="Steer: add a direction">{() => <Steer />}</Fold>
      </div>
      <div>
        <p class="live-head">{changed === null ? "Nothing is changed yet." : `${plural(changes.length)}: the answer before and after`}</p>
        <Distribution of={changed ?? plain} before={changed === null ? null : plain} most={8} />
        {changed !== null && <Recipe now={now} commands={[interveneCommand()]} key={prompt} />}
      </div>
    </div>
  );
}

function plural(changes: number): string {
  return changes === 1 ? "One change" : `${changes} changes`;
}

interface Grid {
  values: (number | null)[][];
  before: number;
}

/** The grid of parts. Arrow keys move in it; a click or Enter switches a part. */
function Parts() {
  const now = useLive();
  const { off, engine, plain, prompt } = now;
  const [at, move] = useState<readonly [number, number]>([0, 0]);
  const [effect, show] = useState<{ prompt: string; grid: Grid; token: string; yaml: string } | null>(null);
  const [trying, setTrying] = useState(false);
  const table = useRef<HTMLTableElement>(null);
  useTheme();
  const rows = layers();
  const heads = vitrine.model.nHeads;
  const keys = (event: TargetedKeyboardEvent<HTMLTableElement>) => {
    const moves: Record<string, readonly [number, number]> = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const by = moves[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const row = Math.min(Math.max(at[0] + by[0], 0), rows.length - 1);
    const to = [row, Math.min(Math.max(at[1] + by[1], 0), rows[row]!.length - 1)] as const;
    move(to);
    table.current?.querySelector<HTMLElement>(`[data-cell="${to[0]} ${to[1]}"]`)?.focus();
  };
  const tryAll = async () => {
    const top = plain?.next[0];
    if (engine === null || top === undefined) return;
    setTrying(true);
    try {
      const made = await engine.ask<{ grid: Grid; metric: { before: number }; yaml: string }>("patch", { prompt: recipePrompt(prompt), metric: { logprob: top.token }, ablate: { what: "z" } });
      if (made !== null) show({ prompt, grid: { values: made.grid.values, before: made.metric.before }, token: named(top.piece, top.token), yaml: made.yaml });
    } catch (error) {
      set({ trouble: error instanceof Error ? error.message : String(error) });
    }
    setTrying(false);
  };
  const valid = effect !== null && effect.prompt === prompt ? effect : null;
  const shift = (row: number, head: number) => {
    const value = valid?.grid.values[row]?.[head];
    return value === null || value === undefined ? null : Math.exp(value) - Math.exp(valid!.grid.before);
  };
  const most = valid === null ? 1 : Math.max(1e-6, ...valid.grid.values.flatMap((row, layer) => row.map((_, head) => Math.abs(shift(layer, head) ?? 0))));
  return (
    <>
      <div class="parts-scroll">
        <table class="parts" ref={table} onKeyDown={keys} aria-label="Parts of the model. Arrow keys move; Enter switches a part off or on.">
          <thead><tr><th scope="col">layer</th><th scope="colgroup" colSpan={heads}>heads</th><th scope="colgroup" colSpan={Math.max(2, rows[0]!.length - heads)}>the whole, and norms</th></tr></thead>
          <tbody>
            {rows.map((cells, row) => (
              <tr key={row}>
                <th scope="row">{row}</th>
                {cells.map((cell, col) => {
                  const value = col < heads ? shift(row, col) : null;
                  return (
                    <td key={cell.name}>
                      <button
                        type="button"
                        class={off.has(cell.name) ? "part off" : "part"}
                        data-cell={`${row} ${col}`}
                        data-part={cell.name}
                        aria-pressed={off.has(cell.name)}
                        aria-label={`${cell.shown}: switch off ${cell.says}${value === null ? "" : `: ${number(100 * value)} points`}`}
                        title={value === null ? cell.says : `${cell.says}: without it ${valid!.token} changes by ${number(100 * value)} points`}
                        tabIndex={at[0] === row && at[1] === col ? 0 : -1}
                        style={value === null || off.has(cell.name) ? {} : { background: css("diverging", value, most), color: inkOn("diverging", value, most) }}
                        onFocus={() => move([row, col])}
                        onClick={() => toggle(cell.name)}
                      >{cell.shown}</button>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="live-row">
        <button type="button" disabled={trying} onClick={() => void tryAll()}>{trying ? "Trying …" : "Try every head"}</button>
        {valid !== null && <span>Without a head, {valid.token} falls (orange) or rises (blue) by up to {number(100 * most)} points from {percent(Math.exp(valid.grid.before))}.</span>}
      </div>
      {valid !== null && <WithTheProgram recipe={valid.yaml} commands={[interveneCommand()]} />}
    </>
  );
}

function Positions({ plain, off }: { plain: Next; off: ReadonlySet<string> }) {
  return (
    <div class="positions" role="group" aria-label="Positions of the prompt">
      <span>Tokens</span>
      {plain.pieces.map((one, position) => (
        <button key={position} type="button" class={off.has(`position ${position}`) ? "part off" : "part"} aria-pressed={off.has(`position ${position}`)} aria-label={`${named(one, plain.tokens[position]!)}: switch off position ${position}`} onClick={() => toggle(`position ${position}`)}><bdi>{named(one, plain.tokens[position]!)}</bdi></button>
      ))}
    </div>
  );
}

const someDirection = { plus: "The queen", minus: "The king", times: 2 };

function Steer() {
  const { steering } = useLive();
  const last = vitrine.model.nLayers - 1;
  const now = steering ?? { plus: "", minus: "", layer: Math.min(2, last), times: 2 };
  const put = (part: Partial<NonNullable<State["steering"]>>) => change({ steering: { ...now, ...part } });
  return (
    <div class="steer">
      <p>What the residual stream holds at the end of the first text and not of the second is added after a layer, at every position.</p>
      <label>plus <input type="text" value={now.plus} onInput={(event) => put({ plus: event.currentTarget.value })} /></label>
      <label>minus <input type="text" value={now.minus} onInput={(event) => put({ minus: event.currentTarget.value })} /></label>
      <Slider label="after layer" min={0} max={last} value={now.layer} onChange={(layer) => put({ layer })} says={String(now.layer)} />
      <Slider label="times" min={-6} max={6} step={0.5} value={now.times} onChange={(times) => put({ times })} says={String(now.times)} />
      <div class="live-row">
        <button type="button" onClick={() => put({ ...someDirection, layer: now.layer })}>Try: The queen − The king</button>
        <button type="button" disabled={steering === null} onClick={() => change({ steering: null })}>No direction</button>
      </div>
    </div>
  );
}
